"""Logs of brokers with tiered storage (KIP-405): the path `tiered:REMOTE!LOCAL` is a data directory, LOCAL, with the
copies of its older segments in REMOTE. Both are folders or URLs of objects.

REMOTE has the layout of Kafka's `LocalTieredStorage`: a folder TOPIC-PARTITION-ID for each partition, and in it the
files of a segment as OFFSET-ID.SUFFIX. `TieredTree` shows them under the names that they have in a log. A copy counts
if it is whole and, by the records of `__remote_log_metadata` in LOCAL, finished and not deleted; without records about
it, if it is whole. Local segments win, since both have the same records.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.remote_log_records import (
    COPY_FINISHED,
    TOPIC,
    RemoteLogSegmentMetadataRecord,
    decode,
)
from ...protocol.primitives import ZERO_UUID
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.format.file_names import offsets_in
from ...storage.format.partition_metadata import decode_id, encode_id, read_topic_id
from ...storage.io.files import File, Files
from .places import TIERED, Conf, StoreError

T = TypeVar("T")
DEFAULT_FOLDER = "kafka-tiered-storage"
"""The folder that `LocalTieredStorage` makes in the one that it is given."""

_FILE = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)")
_NEEDED = frozenset({".log", ".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot"})
_SHOWN = (".log", ".index", ".timeindex", ".txnindex")
_EPOCHS = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class TieredPlace:
    """A data directory with remote segments. `conf` has the settings of object stores."""

    url: str
    conf: Conf = ()

    @property
    def parts(self) -> tuple[str, str]:
        """REMOTE and LOCAL. Raises StoreError."""
        remote, mark, local = self.url.removeprefix(TIERED).partition("!")
        if not (remote and mark and local) or local.startswith(TIERED):
            raise StoreError(f"{self.url}: the path of a log with tiered storage is {TIERED}REMOTE!LOCAL")
        return remote, local


class Copy(NamedTuple):
    """What the records of a data directory state about the copy of a segment."""

    record: RemoteLogSegmentMetadataRecord
    state: int

    @property
    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yields (leader epoch, first offset, last offset), ascending."""
        epochs = [(one.leader_epoch, one.offset) for one in self.record.segment_leader_epochs]
        for (epoch, first), (_, following) in pairwise([*epochs, (-1, self.record.end_offset + 1)]):
            yield epoch, first, following - 1


class _Found(NamedTuple):
    """A whole copy: its base offset, its files by their suffixes, and what is recorded about it."""

    base: int
    paths: dict[str, str]
    copy: Copy | None


class TieredTree(inspect.InspectionFiles):
    """The files of a data directory together with those of its remote segments, for reading."""

    def __init__(self, place: TieredPlace, remote: Files, local: Files) -> None:
        """Raises StoreError if the remote segments cannot be listed."""
        root, self._root = place.parts
        self._prefix = f"{TIERED}{root}!"
        self._remote, self._local = remote, local
        if not inspect.is_folder(root, remote):
            raise StoreError(f"cannot read {root}, the place of the remote segments of {self._root}")
        beside = os.path.join(root, DEFAULT_FOLDER)
        self._remote_root = beside if inspect.is_folder(beside, remote) and remote.list(beside) else root
        self._shown: dict[str, dict[str, str]] = {}  # names of remote files by the local folder, with their paths
        self._recorded: tuple[list[tuple[str, int]], dict[bytes, Copy]] = ([], {})

    def list(self, path: str) -> list[str]:
        folder = self._own(path)
        names = self._local.list(folder)
        if inspect.partition_of(os.path.basename(folder)) is None:
            return names
        shown = self._shown[folder] = self._remote_files(folder, names)
        return [*names, *(name for name in shown if name not in names)]

    def size(self, path: str) -> int:
        return self._at(path, lambda files, where: files.size(where))

    def exists(self, path: str) -> bool:
        try:
            return self._at(path, lambda files, where: files.size(where)) >= 0
        except (FileNotFoundError, NotADirectoryError):
            return False

    def modified_ns(self, path: str) -> int:
        return self._at(path, lambda files, where: files.modified_ns(where))

    def read_bytes(self, path: str) -> bytes:
        return self._at(path, lambda files, where: files.read_bytes(where))

    def open(self, path: str, *, create: bool = False) -> File:
        return self._at(path, lambda files, where: files.open(where))

    def _own(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _at(self, path: str, read: Callable[[Files, str], T]) -> T:
        """Reads a local file, or else a remote one: a broker may delete a segment after its copy is finished."""
        where = self._own(path)
        folder, name = os.path.split(where)
        remote = self._shown.get(folder, {}).get(name)
        if remote is None:
            try:
                return read(self._local, where)
            except FileNotFoundError:
                if not offsets_in([name], ".log"):
                    raise
                self.list(folder)
                remote = self._shown.get(folder, {}).get(name)
                if remote is None:
                    raise
        return read(self._remote, remote)

    # -- copies

    def _remote_files(self, folder: str, names: Sequence[str]) -> dict[str, str]:
        """Returns the remote files that a partition's folder lacks: names in a log with their paths."""
        first = min(offsets_in(names, ".log"), default=None)
        shown: dict[str, str] = {}
        found = self._copies(folder)
        for one, following in pairwise([*found, None]):
            if one is None or (first is not None and one.base >= first):
                break
            for suffix in _SHOWN:
                if suffix in one.paths:
                    shown[f"{one.base:020}{suffix}"] = one.paths[suffix]
            end = following.base if following is not None else first
            if one.copy is not None:
                end = one.copy.record.end_offset + 1
                after = following.base if following is not None else first
                if after is not None and after > end:
                    what = f"no segment, local or remote, has the offsets {end} to {after - 1}"
                    raise OSError(errno.EIO, what, folder)
            if end is not None:  # the state of producers at its end
                shown[f"{end:020}.snapshot"] = one.paths[".snapshot"]
        return shown

    def _copies(self, folder: str) -> list[_Found]:
        """Returns the copies of a partition's segments, ascending. Raises OSError."""
        try:
            topic_id = read_topic_id(self._local, folder)
        except StorageError as error:
            raise OSError(errno.EIO, str(error), folder) from error
        if topic_id == ZERO_UUID:
            return []
        there = os.path.join(self._remote_root, f"{os.path.basename(folder)}-{encode_id(topic_id)}")
        try:
            names = self._remote.list(there)
        except FileNotFoundError:
            return []
        files: dict[str, dict[str, str]] = {}
        bases: dict[str, int] = {}
        for match in filter(None, map(_FILE.fullmatch, names)):
            files.setdefault(match[2], {})[match[3]] = os.path.join(there, match[0])
            bases[match[2]] = int(match[1])
        recorded = self._records()
        found: list[_Found] = []
        for text, paths in files.items():
            copy = recorded.get(_id(text))
            if not paths.keys() >= _NEEDED or (copy is not None and copy.state != COPY_FINISHED):
                continue
            if copy is not None and (size := self._remote.size(paths[".log"])) != copy.record.segment_size_in_bytes:
                what = f"the copy of a segment has {size} bytes, and had {copy.record.segment_size_in_bytes}"
                raise OSError(errno.EIO, what, paths[".log"])
            found.append(_Found(bases[text], paths, copy))
        return _of_lineage(found, self._epochs(folder))

    def _epochs(self, folder: str) -> dict[int, tuple[int, int | None]]:
        """Returns the offsets of the log's leader epochs: the first one, and the first one of the next epoch."""
        try:
            lines = self._local.read_bytes(os.path.join(folder, _EPOCHS)).decode().splitlines()[2:]
            entries = [(int(epoch), int(start)) for epoch, start in (line.split() for line in lines)]
        except (FileNotFoundError, ValueError):
            return {}
        ends: list[int | None] = [*(start for _, start in entries[1:]), None]
        return {epoch: (start, end) for (epoch, start), end in zip(entries, ends, strict=True)}

    def _records(self) -> dict[bytes, Copy]:
        """Returns what is recorded about each copy, read again when the topic has grown."""
        try:
            folders = inspect.partitions(self._root, self._local)
        except StorageError:  # a partition's folder by itself
            return {}
        segments = [one for folder in folders if folder.topic == TOPIC for one in folder.segments]
        state = [(one.path, one.size_bytes) for one in segments]
        if self._recorded[0] != state:
            try:
                self._recorded = state, self._read_records([path for path, _ in state])
            except StorageError as error:
                raise OSError(errno.EIO, str(error), self._root) from error
        return self._recorded[1]

    def _read_records(self, paths: Sequence[str]) -> dict[bytes, Copy]:
        found: dict[bytes, Copy] = {}
        for value in (one.value for path in paths for one in inspect.sound_records(path, self._local)):
            try:
                record = None if value is None else decode(bytes(value))
            except MalformedMessage:
                continue
            if isinstance(record, RemoteLogSegmentMetadataRecord):
                found[record.remote_log_segment_id.id] = Copy(record, record.remote_log_segment_state)
            elif record is not None and (known := found.get(record.remote_log_segment_id.id)) is not None:
                found[record.remote_log_segment_id.id] = known._replace(state=record.remote_log_segment_state)
        return found


def _id(text: str) -> bytes:
    try:
        return decode_id(text)
    except ValueError:
        return b""


def _of_lineage(found: Sequence[_Found], epochs: Mapping[int, tuple[int, int | None]]) -> list[_Found]:
    """Returns the copies in the order of their offsets, without those that were made of records that the log lost when
    another leader was elected."""

    def keeps(one: _Found) -> bool:
        if one.copy is None or not epochs:
            return True
        for epoch, first, last in one.copy.ranges:
            start, end = epochs.get(epoch, (last + 1, None))
            if first < start or (end is not None and last >= end):
                return False
        return True

    overlap = any(
        one.copy is not None and other.base <= one.copy.record.end_offset
        for one, other in pairwise(sorted(found, key=lambda one: one.base))
    )
    chosen: dict[int, _Found] = {}
    for one in sorted((one for one in found if not overlap or keeps(one)), key=lambda one: (one.base, _end(one))):
        chosen[one.base] = one  # of two with the same start the longer one
    return list(chosen.values())


def _end(one: _Found) -> int:
    return -1 if one.copy is None else one.copy.record.end_offset
