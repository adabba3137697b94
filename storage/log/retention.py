"""Retention: selects the oldest segments of a log for deletion, and deletes their files.

The decision is pure. Segments are deleted oldest first and only as a run: the first one to be kept keeps all after it,
so one timestamp in the far future keeps them for ever, as in Apache Kafka. Deleted files are renamed at once
(`.deleted`), so that no start takes them for a part of the log, and unlinked later, so that readers can finish.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ..compaction.swap import DELETED
from ..io.files import Files
from ..producers import txn_index
from ..producers.store import Producers
from ..segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment

if TYPE_CHECKING:
    from .results import LogState


def expired(log: LogState, now_ms: int) -> int:
    """Returns how many of the oldest segments to delete: none above the high watermark, and all only if the newest has
    records.

    In Kafka's order: those that end at or below the log start; then, with cleanup.policy=delete, those that exceed
    retention.bytes, then those whose newest record is older than retention.ms. May read index files. Raises
    StorageError.
    """
    segments, config, log_start_offset = log.segments, log.config, log.log_start_offset
    ends = [*(segment.base_offset for segment in segments[1:]), segments[-1].next_offset]
    number = 0
    # Whether the newest segment is below the log start is known only when there is a later one.
    while number < len(segments) - 1 and ends[number] <= log_start_offset:
        number += 1
    if config.deletes:
        if config.retention_bytes >= 0:
            over_bytes = sum(segment.size_bytes for segment in segments[number:]) - config.retention_bytes
            while number < len(segments) and over_bytes >= segments[number].size_bytes:
                over_bytes -= segments[number].size_bytes
                number += 1
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            while number < len(segments) and segments[number].retention_time_ms() < oldest_ms:
                number += 1
    if number == len(segments) and segments[-1].size_bytes == 0:
        number -= 1
    while number and segments[number - 1].next_offset > log.high_watermark:
        number -= 1
    return number


def due_ms(log: LogState) -> int | None:
    """Returns the time in ms from which on a segment is deleted if the log does not change: 0 for at once, None for
    never. Raises StorageError."""
    if expired(log, 0):  # by the log start or by size
        return 0
    config = log.config
    if not config.deletes or config.retention_ms < 0:
        return None
    when_ms = log.segments[0].retention_time_ms() + config.retention_ms + 1
    return when_ms if expired(log, when_ms) else None


def start_of_kept(log: LogState, now_ms: int) -> int:
    """Returns the log start that `PartitionLog.retain` would leave. Raises StorageError."""
    segments, number = log.segments, expired(log, now_ms)
    start = segments[number].base_offset if number < len(segments) else log.log_end_offset
    return max(start, log.log_start_offset)


def epochs_from(epochs: list[tuple[int, int]], log_start_offset: int) -> list[tuple[int, int]]:
    """Returns the (epoch, start offset) pairs that still have offsets at or above the log start. The first one then
    begins there, as in Kafka."""
    number = sum(start <= log_start_offset for _, start in epochs[1:])
    kept = epochs[number:]
    if kept and kept[0][1] < log_start_offset:
        kept[0] = kept[0][0], log_start_offset
    return kept


class Removed:
    """Deleted segments whose files still exist."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._paths: list[str] = []
        self._directory = directory
        self.segments: list[Segment] = []
        """The segments, oldest first; empty after `remove`."""

    @property
    def size_bytes(self) -> int:
        """The size of the logs, without the indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    def take(self, segment: Segment, producers: Producers | None) -> None:
        """Renames a segment's files and, with `producers`, its snapshot. After OSError it is still a part of the log.

        The rename of the log decides: an index or snapshot that stays is removed by the next start.
        """
        log_path = segment.path(LOG_SUFFIX)
        segment.is_removed = True  # first: another thread that fails to open the file must find the reason
        try:
            self._files.replace(log_path, log_path + DELETED)
        except OSError:
            segment.is_removed = False
            raise
        self.segments.append(segment)
        self._paths.append(log_path + DELETED)
        paths = [segment.path(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, txn_index.SUFFIX)]
        if producers is not None and (snapshot := producers.release(segment.base_offset)):
            paths.append(os.path.join(self._directory, snapshot))
        for path in paths:
            if self._files.exists(path):
                with contextlib.suppress(OSError):
                    self._files.replace(path, path + DELETED)
                    self._paths.append(path + DELETED)

    def remove(self) -> None:
        """Removes the files and closes their descriptors. Files that are gone or cannot be removed are left to the next
        start."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._files.remove(path)
        for segment in self.segments:
            with contextlib.suppress(OSError):
                segment.close()
        self.segments = []
