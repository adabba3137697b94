"""Which partitions lie under the paths, and which segments a partition's folder has at the moment.

Owns the listing of folders while a broker may roll, delete and swap segments in them. Paths are data directories of
Ottla or Apache Kafka, or folders of partitions. Raises ReadError; `Gone` for a folder that is not there any more.
"""

from __future__ import annotations

import glob
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....protocol.primitives import ZERO_UUID
from ....storage import inspect
from ....storage.errors import StorageError
from ....storage.format import partition_metadata
from ....storage.segments.segment import LOG_SUFFIX, file_name
from ...backend import ReadError, Selection, TopicPartition
from .windows import Gone

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""The brokers' own topics: read only where they are named."""

_LOG = re.compile(r"([0-9]{20})\.log")
_SWAP_SUFFIX = ".log.swap"  # a segment that is about to take the place of others
_SWAP_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


class Folder(NamedTuple):
    """A partition's folder, and the data directory that it lies in."""

    key: TopicPartition
    path: str

    @property
    def root(self) -> str:
        return os.path.dirname(self.path)


class Segment(NamedTuple):
    """A segment as it was listed. `end`: the base offset of the next one, None for the last."""

    base: int
    end: int | None
    path: str
    size_bytes: int


class Catalog:
    """The partitions under some paths, as they were when last looked for."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Paths may hold several by comma, and the wildcards of a shell; nothing is read yet."""
        self.paths = [os.path.abspath(one) for path in paths for one in _split(path)]
        if not self.paths:
            raise ReadError("no path of logs was given")
        self._known: dict[TopicPartition, Folder] = {}
        self._named: set[TopicPartition] = set()

    def refresh(self) -> dict[TopicPartition, Folder]:
        """The partitions that there are now."""
        known: dict[TopicPartition, Folder] = {}
        self._named = set()
        for path in self._expanded():
            found, is_named = _folders(path)
            for folder in found:
                other = known.setdefault(folder.key, folder)
                if os.path.realpath(other.path) != os.path.realpath(folder.path):
                    raise ReadError(f"{folder.key} is found twice: {other.path} and {folder.path}")
                if is_named:
                    self._named.add(folder.key)
        self._known = known
        return known

    def selected(self, selection: Selection) -> list[TopicPartition]:
        """Those of the partitions that there are now, sorted. What was named and is not there is an error."""
        known = self.refresh()
        if selection.assigned is not None:
            missing = [str(key) for key in selection.assigned if key not in known]
        else:
            there = {key.topic for key in known}
            missing = [topic for topic in selection.topics or () if topic not in there]
        if missing:
            raise ReadError(f"not in {', '.join(self.paths)}: {', '.join(missing)}")
        return sorted({*selection.of(known, INTERNAL), *selection.of(self._named, frozenset())})

    def folder(self, key: TopicPartition) -> Folder | None:
        """Where a partition lies; None if it is not there (any more)."""
        found = self._known.get(key)
        if found is None or not os.path.isdir(found.path):
            found = self.refresh().get(key)
        return found

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic, by its first partition that is known; ZERO_UUID where it has none, or none is known."""
        paths = [folder.path for key, folder in sorted(self._known.items()) if key.topic == topic]
        try:
            return partition_metadata.read_topic_id(inspect.INSPECTION_FILES, paths[0]) if paths else ZERO_UUID
        except StorageError as error:
            raise ReadError(str(error)) from error

    def _expanded(self) -> Iterable[str]:
        for path in self.paths:
            if glob.has_magic(path) and not os.path.exists(path):
                found = sorted(glob.glob(path))
                if not found:
                    raise ReadError(f"nothing lies at {path}")
                yield from found
            else:
                yield path


def _split(path: str) -> list[str]:
    """Paths of one option: by comma, unless there is something whose name has commas."""
    path = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    if os.path.exists(path):
        return [path]
    return [one.strip() for one in path.split(",") if one.strip()]


def _folders(path: str) -> tuple[list[Folder], bool]:
    """The partitions at a path, and whether it is a partition's itself."""
    if not os.path.exists(path):
        raise ReadError(f"nothing lies at {path}")
    try:
        path = inspect.followed(path)
        own = inspect.partition_folder(path)
        if own is not None:
            return [Folder(TopicPartition(own.topic, own.partition), path)], True
        found = inspect.partitions(path)
    except StorageError as error:
        raise ReadError(str(error)) from error
    return [Folder(TopicPartition(one.topic, one.partition), one.path) for one in found], False


def names(folder: str) -> list[str]:
    """The names in a partition's folder, at a moment when no segments are being swapped.

    A listing is not one step: a file that is renamed meanwhile may be in it by both names or by none. So it counts when
    it comes out twice the same.
    """
    deadline = time.monotonic() + _SWAP_SECONDS
    before: set[str] = set()
    while True:
        try:
            found = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Gone(folder) from error
        except OSError as error:
            raise ReadError(f"cannot read {folder}: {error.strerror}") from error
        logs = {name for name in found if name.endswith((LOG_SUFFIX, _SWAP_SUFFIX))}
        swaps = [name for name in logs if name.endswith(_SWAP_SUFFIX)]
        if logs == before and not swaps:
            return found
        if time.monotonic() > deadline:
            if swaps:
                raise ReadError(f"{folder} has a swap of segments that was interrupted ({swaps[0]}): a broker ends it")
            return found
        if swaps:
            time.sleep(_PAUSE_SECONDS)
        before = logs


def bases(folder: str) -> list[int]:
    """The base offsets of the segments that there are now, rising; at least one."""
    found = sorted(int(match[1]) for match in map(_LOG.fullmatch, names(folder)) if match)
    if not found:
        raise Gone(folder)
    return found


def log_path(folder: str, base: int) -> str:
    """The path of a segment's log."""
    return os.path.join(folder, file_name(base))


def segments(folder: str) -> list[Segment]:
    """The segments that there are now, oldest first."""
    for _ in range(100):
        found = bases(folder)
        ends: list[int | None] = [*found[1:], None]
        try:
            paths = [log_path(folder, base) for base in found]
            return [
                Segment(base, end, path, os.stat(path).st_size)
                for base, end, path in zip(found, ends, paths, strict=True)
            ]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ReadError(f"cannot read {folder}: {error.strerror}") from error
    raise ReadError(f"cannot read {folder}: its segments go faster than they are listed")


def number_of(found: Sequence[int], offset: int) -> int:
    """Which of these base offsets begins the segment that an offset is in; -1 if it lies before all of them."""
    return bisect_right(found, offset) - 1
