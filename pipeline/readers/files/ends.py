"""The start and end offsets of a partition's log for a reader of its files, with or without a running broker.

Owns the high watermark and the last stable offset as derived from files. While a broker uses the directory, its
checkpoint of high watermarks is the end, written every few seconds; otherwise the log ends at its last whole entry.
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import HEADER_BYTES
from ....storage.format import checkpoint, partition_metadata
from ...backend import as_read_error
from ...objects.logs import files_of
from . import catalog, indexes, transactions
from .broker_lock import is_in_use, was_closed
from .catalog import Folder, Segment
from .indexes import Mark
from .windows import Hops, LogFile, retried

_METADATA = "__cluster_metadata"


class _Open(NamedTuple):
    """The open transactions of a log at an offset: the first offset of each, by producer id."""

    log: tuple[object, ...]
    offset: int
    firsts: dict[int, int]


class _Root(NamedTuple):
    """The state of a data directory: in use or not, high watermarks and log start offsets."""

    in_use: bool
    watermarks: dict[tuple[str, int], int]
    starts: dict[tuple[str, int], int]


class Ends:
    """The ends of the logs in some folders, with a cache of how far they were read. Raises ReadError; `Gone` for a
    folder."""

    def __init__(self) -> None:
        self._ends: dict[str, Mark] = {}  # the last known entry of each segment
        self._open: dict[str, _Open] = {}
        self._root = functools.cache(_root)

    def look(self) -> None:
        """Drops the cached state of the data directories."""
        self._root.cache_clear()

    def start(self, folder: Folder) -> int:
        """Returns the log start offset: the base offset of the first segment, or a higher one after DeleteRecords."""
        noted = self._root(folder.root).starts.get(folder.key, 0)
        return max(noted, retried(lambda: catalog.bases(folder.path))[0])

    def high_watermark(self, folder: Folder) -> int:
        root = self._root(folder.root)
        start = self.start(folder)
        noted = root.watermarks.get(folder.key)
        # Kafka checkpoints none for the metadata log.
        if root.in_use and (noted is not None or folder.key.topic != _METADATA):
            return max(start, noted or 0)
        return max(start, retried(lambda: self._log_end(catalog.segments(folder.path)[-1], noted or 0)))

    def last_stable(self, folder: Folder) -> int:
        high_watermark, start = self.high_watermark(folder), self.start(folder)
        root = self._root(folder.root)
        if not root.in_use and was_closed(folder.root) and not transactions.may_have_any(folder.path):
            return high_watermark
        found = retried(lambda: self._open_at(folder, high_watermark, start))
        # The first offset of the oldest open transaction, if it is below the high watermark.
        return max(start, min([high_watermark, *found.values()]))

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
        """Returns the log end offset: the one after the last whole entry. A torn write and trailing zeros are not
        counted. Any other damage is left for the reader to report: the log then extends to the checkpointed offset, and
        by at least one."""
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
    """Returns values that change if the log is replaced: the topic was created again, or a new leader may have
    truncated it."""
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
    """Returns whether only a partial entry or zeros begin here: a write in progress, or one that a crash ended."""
    header = file.header(position)
    return header is not None or file.size() - position < HEADER_BYTES or file.is_zeros(position)


def _root(path: str) -> _Root:
    def noted(name: str) -> dict[tuple[str, int], int]:
        with as_read_error():
            return checkpoint.read_offsets(files_of(path), os.path.join(path, name))

    return _Root(is_in_use(path), noted(checkpoint.REPLICATION_OFFSET), noted(checkpoint.LOG_START_OFFSET))
