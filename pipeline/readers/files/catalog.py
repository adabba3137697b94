"""The partitions under the paths, and the current segments of a partition's folder.

Owns the listing of folders while a broker may roll, delete and swap segments in them. Paths are data directories of
Ottla or Apache Kafka, or folders of partitions. Raises ReadError; `Gone` for a folder that no longer exists.
"""

from __future__ import annotations

import glob
import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....protocol.primitives import ZERO_UUID
from ....storage.format import partition_metadata
from ....storage.format.file_names import offsets_in
from ....storage.segments.segment import LOG_SUFFIX, file_name
from ...backend import INTERNAL, ReadError, Selection, TopicPartition, as_read_error
from ...objects import logs
from ...objects.places import is_url
from .windows import Gone, unreadable

_SWAP_SUFFIX = ".log.swap"  # a segment that is about to replace others
_SWAP_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


class Folder(NamedTuple):
    """A partition's folder and its data directory."""

    key: TopicPartition
    path: str

    @property
    def root(self) -> str:
        return os.path.dirname(self.path)


class Segment(NamedTuple):
    """A segment as listed. `end` is the base offset of the next segment, None for the last one."""

    base: int
    end: int | None
    path: str
    size_bytes: int


class Catalog:
    """The partitions under some paths, as of the last listing."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Takes paths that may each hold several, separated by commas, and shell wildcards. Reads nothing yet."""
        self.paths = [logs.absolute(one) for path in paths for one in _split(path)]
        if not self.paths:
            raise ReadError("no path was given: name a log directory or the folder of a partition")
        self._known: dict[TopicPartition, Folder] = {}
        self._named: set[TopicPartition] = set()

    def refresh(self) -> dict[TopicPartition, Folder]:
        """Lists the partitions under the paths."""
        known: dict[TopicPartition, Folder] = {}
        self._named = set()
        for path in self._expanded():
            if not is_url(path) and not os.path.exists(path):
                raise ReadError(f"there is no folder {path}")
            found, is_named = logs.partitions_at(path)
            for one in found:
                folder = Folder(TopicPartition(one.topic, one.partition), one.path)
                other = known.setdefault(folder.key, folder)
                if os.path.realpath(other.path) != os.path.realpath(folder.path):
                    raise ReadError(f"{folder.key} is in two folders: {other.path} and {folder.path}")
                if is_named:
                    self._named.add(folder.key)
        self._known = known
        return known

    def selected(self, selection: Selection) -> list[TopicPartition]:
        """Lists the partitions again and returns the selected ones, sorted. Raises ReadError for a named one that does
        not exist."""
        known = self.refresh()
        if selection.assigned is not None:
            missing = [str(key) for key in selection.assigned if key not in known]
        else:
            there = {key.topic for key in known}
            missing = [topic for topic in selection.topics or () if topic not in there]
        if missing:
            raise ReadError(f"{', '.join(missing)} not found in {', '.join(self.paths)}")
        return sorted({*selection.of(known, INTERNAL), *selection.of(self._named, frozenset())})

    def folder(self, key: TopicPartition) -> Folder | None:
        """Returns the folder of a partition, or None if there is none (any more)."""
        found = self._known.get(key)
        if found is None or not (is_url(found.path) or os.path.isdir(found.path)):
            found = self.refresh().get(key)
        return found

    def topic_id(self, topic: str) -> bytes:
        """Returns the id of a topic from its first known partition; ZERO_UUID if it has no id or no known partition."""
        paths = [folder.path for key, folder in sorted(self._known.items()) if key.topic == topic]
        with as_read_error():
            return partition_metadata.read_topic_id(logs.files_of(paths[0]), paths[0]) if paths else ZERO_UUID

    def _expanded(self) -> Iterable[str]:
        for path in self.paths:
            if not is_url(path) and glob.has_magic(path) and not os.path.exists(path):
                found = sorted(glob.glob(path))
                if not found:
                    raise ReadError(f"no file or folder matches {path}")
                yield from found
            else:
                yield path


def _split(path: str) -> list[str]:
    """Returns the paths of one option, separated by commas, unless the whole text is an existing path."""
    path = path.removeprefix("file://") if path.startswith("file:///") else path.removeprefix("file:")
    if os.path.exists(path):
        return [path]
    return [one.strip() for one in path.split(",") if one.strip()]


def names(folder: str) -> list[str]:
    """Lists a partition's folder at a moment without a segment swap in progress.

    A directory listing is not atomic: a file renamed meanwhile may be in it under both names or none. So two equal
    listings in a row are required.
    """
    deadline = time.monotonic() + _SWAP_SECONDS
    before: set[str] = set()
    while True:
        try:
            found = logs.files_of(folder).list(folder)
        except OSError as error:
            raise unreadable(folder, error) from error
        known = {name for name in found if name.endswith((LOG_SUFFIX, _SWAP_SUFFIX))}
        swaps = [name for name in known if name.endswith(_SWAP_SUFFIX)]
        if (known == before or is_url(folder)) and not swaps:
            return found
        if time.monotonic() > deadline:
            if swaps:
                raise ReadError(f"{folder} has an unfinished segment swap ({swaps[0]}): a broker completes it")
            return found
        if swaps:
            time.sleep(_PAUSE_SECONDS)
        before = known


def bases(folder: str) -> list[int]:
    """Returns the base offsets of the current segments, ascending; at least one."""
    found = offsets_in(names(folder), LOG_SUFFIX)
    if not found:
        raise Gone(folder)
    return found


def log_path(folder: str, base: int) -> str:
    return os.path.join(folder, file_name(base))


def segments(folder: str) -> list[Segment]:
    """Returns the current segments, oldest first."""
    for _ in range(100):
        found = bases(folder)
        ends: list[int | None] = [*found[1:], None]
        try:
            paths = [log_path(folder, base) for base in found]
            return [
                Segment(base, end, path, logs.files_of(path).size(path))
                for base, end, path in zip(found, ends, paths, strict=True)
            ]
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ReadError(f"cannot read {folder}: {error.strerror}") from error
    raise ReadError(f"cannot read {folder}: its segments are deleted faster than they can be listed")


def number_of(found: Sequence[int], offset: int) -> int:
    """Returns the index of the segment that an offset belongs to; -1 for an offset before all segments."""
    return bisect_right(found, offset) - 1
