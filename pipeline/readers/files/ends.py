"""Where the log of a partition begins and ends for who reads its files, whether or not a broker is using them.

Owns the high watermark and the last stable offset as far as files tell them. While a directory is in use its checkpoint
of high watermarks counts, which the broker writes every few seconds; else the log ends with its last whole entry.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import HEADER_BYTES
from ....storage.errors import StorageError
from ....storage.format import checkpoint, partition_metadata
from ....storage.inspect import INSPECTION_FILES
from ...backend import ReadError
from . import catalog, indexes, transactions
from .broker_lock import is_in_use, was_closed
from .catalog import Folder, Segment
from .indexes import Mark
from .windows import Gone, Hops, LogFile

T = TypeVar("T")
_METADATA = "__cluster_metadata"
_TRIES = 20


class _Open(NamedTuple):
    """The transactions that are open at an offset: the first offset of each, by producer; of which log."""

    log: tuple[object, ...]
    offset: int
    firsts: dict[int, int]


class _Root(NamedTuple):
    """What a data directory says of its partitions."""

    in_use: bool
    starts: dict[tuple[str, int], int]
    watermarks: dict[tuple[str, int], int]


class Ends:
    """Ends of the logs in some folders; remembers how far it has read. Raises ReadError; `Gone` for a folder."""

    def __init__(self) -> None:
        self._ends: dict[str, Mark] = {}  # the last entries of segments, as they were found
        self._open: dict[str, _Open] = {}
        self._roots: dict[str, _Root] = {}

    def look(self) -> None:
        """Looks at the data directories anew when they are next asked for."""
        self._roots.clear()

    def _root(self, path: str) -> _Root:
        found = self._roots.get(path)
        if found is None:
            in_use = is_in_use(path)
            watermarks = _checkpoint(path, checkpoint.REPLICATION_OFFSET)
            found = _Root(in_use, _checkpoint(path, checkpoint.LOG_START_OFFSET), watermarks)
            self._roots[path] = found
        return found

    def start(self, folder: Folder) -> int:
        """The log start offset: the first segment's base, or behind it what was deleted by DeleteRecords."""
        noted = self._root(folder.root).starts.get(folder.key, 0)
        return max(noted, retried(lambda: catalog.bases(folder.path))[0])

    def high_watermark(self, folder: Folder) -> int:
        """The offset behind the last record that may be read."""
        root = self._root(folder.root)
        start = self.start(folder)
        noted = root.watermarks.get(folder.key)
        if root.in_use and (noted is not None or folder.key.topic != _METADATA):  # of which Kafka notes none
            return max(start, noted or 0)
        return max(start, retried(lambda: self._log_end(catalog.segments(folder.path)[-1], noted or 0)))

    def last_stable(self, folder: Folder) -> int:
        """The offset behind what of transactions is decided."""
        high_watermark, start = self.high_watermark(folder), self.start(folder)
        root = self._root(folder.root)
        if not root.in_use and was_closed(folder.root) and not transactions.may_have_any(folder.path):
            return high_watermark
        found = retried(lambda: self._open_at(folder, high_watermark, start))
        return max(start, transactions.oldest(found, high_watermark))

    def _open_at(self, folder: Folder, offset: int, start: int) -> dict[int, int]:
        known, log = self._open.get(folder.path), _identity(folder.path)
        if known is not None and known.log == log and known.offset <= offset:
            firsts = dict(known.firsts)
            transactions.follow(folder.path, firsts, known.offset, offset)
        else:
            firsts = transactions.open_at(folder.path, offset, start)
        self._open[folder.path] = _Open(log, offset, firsts)
        return firsts

    def _log_end(self, last: Segment, noted: int) -> int:
        """Behind the last whole entry. What is torn there, or zeros, does not count; damage that is neither is to be
        met by who reads: so the log goes on behind it, as far as was noted or one offset at least."""
        with LogFile(last.path) as file:
            known = self._ends.get(last.path)
            if known is None or not indexes.is_still(file, known):
                known = indexes.floor(file, last.base, INT64_MAX)
            offset = known.last_offset + 1 if known is not None else last.base
            hops = Hops(file, known.end if known is not None else 0)
            for table in hops:
                known = indexes.mark_at(table, -1)
                offset = known.last_offset + 1
            if known is not None:
                self._ends[last.path] = known
            stop = hops.stop
            if stop.problem is None or file.size() > stop.position + stop.left_bytes or is_torn(file, stop.position):
                return offset
            return max(offset + 1, noted)


def _identity(folder: str) -> tuple[object, ...]:
    """Is another one where the log is: the topic was made anew, or a new leader may have cut it."""
    found: list[object] = []
    for name in ("", partition_metadata.FILE_NAME, checkpoint.LEADER_EPOCH):
        try:
            status = os.stat(os.path.join(folder, name))
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns if name else 0))
    return tuple(found)


def is_torn(file: LogFile, position: int) -> bool:
    """Whether what begins here is cut, or nothing but zeros: a write that is under way, or that a crash ended."""
    header = file.header(position)
    return header is not None or file.size() - position < HEADER_BYTES or file.is_zeros(position)


def _checkpoint(root: str, name: str) -> dict[tuple[str, int], int]:
    try:
        return checkpoint.read_offsets(INSPECTION_FILES, os.path.join(root, name))
    except StorageError as error:
        raise ReadError(str(error)) from error


def retried(look: Callable[[], T]) -> T:
    """What a look gives, which is repeated as long as files go while it goes on. `Gone` if they do not come back."""
    for _ in range(_TRIES):
        try:
            return look()
        except Gone:
            continue
    return look()
