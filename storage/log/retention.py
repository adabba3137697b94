"""Retention: which of the oldest segments of a log go, and how their files do.

The decision is pure. Segments go from the oldest on and only as a run: the first that has to stay keeps all behind it,
so one timestamp of the far future keeps them for ever, as in Apache Kafka. What goes is renamed at once (`.deleted`),
so that no opening takes it for a part of the log, and unlinked later: who still reads it may finish.
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
    from .log_state import LogState


def expired(log: LogState, now_ms: int) -> int:
    """How many of the oldest segments go: none above the high watermark, and all only if the newest has records.

    In Kafka's order: those that end at or below the log start; then, if the policy deletes, those without which
    retention.bytes are left, then those whose newest record is older than retention.ms. Reads index files for the last.
    StorageError.
    """
    segments, config, log_start_offset = log.segments, log.config, log.log_start_offset
    ends = [*(segment.base_offset for segment in segments[1:]), segments[-1].next_offset]
    number = 0
    # The newest is not known to be below the log start before there is one behind it.
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
    """From when on some segment goes if the log stays as it is: 0 if at once, None if never. StorageError."""
    if expired(log, 0):  # by the log start or by size
        return 0
    config = log.config
    if not config.deletes or config.retention_ms < 0:
        return None
    when_ms = log.segments[0].retention_time_ms() + config.retention_ms + 1
    return when_ms if expired(log, when_ms) else None


def start_of_kept(log: LogState, now_ms: int) -> int:
    """The log start that `PartitionLog.retain` would leave. StorageError."""
    segments, number = log.segments, expired(log, now_ms)
    start = segments[number].base_offset if number < len(segments) else log.log_end_offset
    return max(start, log.log_start_offset)


def epochs_from(epochs: list[tuple[int, int]], log_start_offset: int) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs without those of which nothing is left at or behind the log start. The first one
    begins there then, as in Kafka."""
    number = sum(start <= log_start_offset for _, start in epochs[1:])
    kept = epochs[number:]
    if kept and kept[0][1] < log_start_offset:
        kept[0] = kept[0][0], log_start_offset
    return kept


class Removed:
    """Segments that are no part of their log any more, whose files are still there."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._paths: list[str] = []
        self._directory = directory
        self.segments: list[Segment] = []
        """Oldest first; none once they are removed."""

    @property
    def size_bytes(self) -> int:
        """Of the logs, without the indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    def take(self, segment: Segment, producers: Producers | None) -> None:
        """Renames a segment's files and, of these producers, its snapshot. OSError: then it is still a part of the log.

        The log goes first, which decides: an index or a snapshot that stays is removed by the next opening.
        """
        log_path = segment.path(LOG_SUFFIX)
        segment.is_removed = True  # before it is: who opens the file in another thread is to know why it is not there
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
        """Removes the files and gives the descriptors back. What is gone already, or cannot go, is left to the next
        opening of the log."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._files.remove(path)
        for segment in self.segments:
            with contextlib.suppress(OSError):
                segment.close()
        self.segments = []
