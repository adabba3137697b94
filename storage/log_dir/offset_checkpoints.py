"""The offsets that a data directory records of its partitions, in Apache Kafka's four checkpoint files.

Recovery points, log starts, high watermarks and cleaner offsets. Partitions that are not open keep their lines. The
files are written from several threads, one at a time. Raises StorageError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping

from ..errors import StorageError
from ..format import checkpoint
from ..io.disk_errors import lasting_error
from ..io.files import Files
from ..partition_log import PartitionLog

TopicPartition = tuple[str, int]


class OffsetCheckpoints:
    """The checkpoints of one directory. `unopened` and `logs` are its partitions, which its owner changes."""

    def __init__(
        self,
        files: Files,
        path: str,
        unopened: Collection[TopicPartition],
        logs: Mapping[TopicPartition, PartitionLog],
    ) -> None:
        self._files = files
        self._path = path
        self._unopened = unopened
        self._logs = logs
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._adopted_later: dict[PartitionLog, int] = {}  # log starts that are durable and not adopted yet
        self.writing = threading.Lock()
        """Held while a file is replaced, and by callers that change the set of partitions."""
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.watermarks: dict[TopicPartition, int] = {}
        self.cleaned: dict[TopicPartition, int] = {}
        self.warnings: list[str] = []
        """Files that could not be read, one line each."""

    def read(self) -> None:
        """Reads the four files. A malformed one counts as empty and is listed in `warnings`."""
        self.recovery_points = self._read(checkpoint.RECOVERY_POINT)
        self.log_starts = self._read(checkpoint.LOG_START_OFFSET)
        self.watermarks = self._read(checkpoint.REPLICATION_OFFSET)
        self.cleaned = self._read(checkpoint.CLEANER_OFFSET)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(self._files, self._join(name))
        except StorageError as error:
            if lasting_error(error) is not None:
                raise
            self.warnings.append(str(error))
            return {}

    def _join(self, name: str) -> str:
        return os.path.join(self._path, name)

    # -- writing

    def write_recovery_points(self) -> None:
        """Writes the current recovery points."""
        with self.writing:
            points = {key: offset for key, offset in self.recovery_points.items() if key in self._unopened}
            points.update((key, log.recovery_point) for key, log in list(self._logs.items()))
            self._write(checkpoint.RECOVERY_POINT, points)
            self.recovery_points = points

    def write_watermarks(self) -> None:
        """Writes the current high watermarks."""
        with self.writing:
            watermarks = {key: offset for key, offset in self.watermarks.items() if key in self._unopened}
            watermarks.update((key, log.high_watermark) for key, log in list(self._logs.items()))
            self._write(checkpoint.REPLICATION_OFFSET, watermarks)
            self.watermarks = watermarks

    def write_log_starts(self, moves: Mapping[PartitionLog, int] | None = None) -> None:
        """Writes the current log starts, or those that the logs in `moves` are about to adopt."""
        with self.writing:
            starts = {key: offset for key, offset in self.log_starts.items() if key in self._unopened}
            adopted_later: dict[PartitionLog, int] = {}
            for key, log in list(self._logs.items()):
                offset = max(log.log_start_offset, self._adopted_later.get(log, 0), (moves or {}).get(log, 0))
                if offset > log.first_segment_offset:
                    starts[key] = offset
                if offset > log.log_start_offset:
                    adopted_later[log] = offset
            self._write_log_starts(starts)
            self._adopted_later = adopted_later

    def log_start_moves(self, log: PartitionLog, offset: int) -> None:
        """Makes a log start durable before the log adopts it."""
        if self._adopted_later.get(log, 0) < offset:
            self.write_log_starts({log: offset})

    def write_log_start(self, key: TopicPartition, offset: int) -> None:
        """Makes the log start of a partition durable that is neither open nor in `unopened`. The caller holds
        `writing`."""
        self._write_log_starts({**self.log_starts, key: offset})

    def _write_log_starts(self, starts: dict[TopicPartition, int]) -> None:
        if starts != self.log_starts:
            checkpoint.write_offsets(self._files, self._join(checkpoint.LOG_START_OFFSET), starts)
            self.log_starts = starts

    def write_cleaned(self, key: TopicPartition, offset: int | None, log: PartitionLog | None) -> None:
        """Records up to which offset a partition is clean, None if it is dirty from its start on. Does nothing unless
        `log` is the open log."""
        with self.writing:
            if self._logs.get(key) is not log:
                return
            cleaned = {at: clean for at, clean in self.cleaned.items() if at != key}
            if offset is not None:
                cleaned[key] = offset
            if cleaned != self.cleaned:
                checkpoint.write_offsets(self._files, self._join(checkpoint.CLEANER_OFFSET), cleaned)
                self.cleaned = cleaned

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Removes the lines of partitions that do not exist here from all files, durably: a new partition of the same
        name must not inherit the offsets of a deleted one. Writes nothing if there are none."""
        gone = set(keys)
        kept = (self.recovery_points, self.watermarks, self.log_starts, self.cleaned)
        if not any(key in offsets for key in gone for offsets in kept):
            return
        self.write_recovery_points()
        self.write_watermarks()
        self.write_log_starts()
        for key in gone:
            self.write_cleaned(key, None, None)

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replaces a file, unless it is unchanged: an idle directory costs nothing each minute."""
        if self._written.get(name) != offsets:
            checkpoint.write_offsets(self._files, self._join(name), offsets)
            self._written[name] = offsets
