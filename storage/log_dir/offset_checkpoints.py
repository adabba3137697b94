"""The offsets that a data directory records of its partitions, in Apache Kafka's four checkpoint files.

Recovery points, log starts, high watermarks and cleaner offsets. Partitions that are not open keep their lines. The
files are written from several threads, one at a time. Raises StorageError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter

from ..errors import StorageError
from ..format import checkpoint
from ..io.disk_errors import lasting_error
from ..io.files import Files
from ..partition_log import PartitionLog

TopicPartition = tuple[str, int]

_CURRENT: dict[str, Callable[[PartitionLog], int]] = {
    checkpoint.RECOVERY_POINT: attrgetter("recovery_point"),
    checkpoint.REPLICATION_OFFSET: attrgetter("high_watermark"),
}


class OffsetCheckpoints:
    """The checkpoints of one directory. `unopened` and `logs` are its partitions, which its owner changes."""

    def __init__(
        self, files: Files, path: str, unopened: Collection[TopicPartition], logs: Mapping[TopicPartition, PartitionLog]
    ) -> None:
        self._files = files
        self._path = path
        self._unopened = unopened
        self._logs = logs
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._adopted_later: dict[PartitionLog, int] = {}  # log starts that are durable and not adopted yet
        self.writing = threading.Lock()
        """Held while a file is replaced, and by callers that change the set of partitions."""
        self.offsets: dict[str, dict[TopicPartition, int]] = {name: {} for name in checkpoint.OF_DIRECTORY}
        """The offsets in each file."""
        self.warnings: list[str] = []
        """Files that could not be read, one line each."""

    @property
    def cleaned(self) -> dict[TopicPartition, int]:
        """The cleaner offsets."""
        return self.offsets[checkpoint.CLEANER_OFFSET]

    def read(self) -> None:
        """Reads the four files. A malformed one counts as empty and is listed in `warnings`."""
        self.offsets = {name: self._read(name) for name in checkpoint.OF_DIRECTORY}

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

    def write(self, *names: str) -> None:
        """Writes the current offsets of these files, without names of all but the cleaner's."""
        for name in names or (checkpoint.RECOVERY_POINT, checkpoint.LOG_START_OFFSET, checkpoint.REPLICATION_OFFSET):
            if name == checkpoint.LOG_START_OFFSET:
                self.write_log_starts()
            else:
                self._write_current(name)

    def _write_current(self, name: str) -> None:
        """Writes the recovery points or the high watermarks."""
        with self.writing:
            offsets = {key: offset for key, offset in self.offsets[name].items() if key in self._unopened}
            offsets.update((key, _CURRENT[name](log)) for key, log in list(self._logs.items()))
            if self._written.get(name) != offsets:  # an idle directory costs nothing each minute
                checkpoint.write_offsets(self._files, self._join(name), offsets)
                self._written[name] = offsets
            self.offsets[name] = offsets

    def write_log_starts(self, moves: Mapping[PartitionLog, int] | None = None) -> None:
        """Writes the current log starts, or those that the logs in `moves` are about to adopt. Each start was written
        before it moved, so without `moves` this only removes outdated lines."""
        with self.writing:
            known = self.offsets[checkpoint.LOG_START_OFFSET].items()
            starts = {key: offset for key, offset in known if key in self._unopened}
            adopted_later: dict[PartitionLog, int] = {}
            for key, log in list(self._logs.items()):
                offset = max(log.log_start_offset, self._adopted_later.get(log, 0), (moves or {}).get(log, 0))
                if offset > log.first_segment_offset:
                    starts[key] = offset
                if offset > log.log_start_offset:
                    adopted_later[log] = offset
            self._write_changed(checkpoint.LOG_START_OFFSET, starts)
            self._adopted_later = adopted_later

    def log_start_moves(self, log: PartitionLog, offset: int) -> None:
        """Makes a log start durable before the log adopts it."""
        if self._adopted_later.get(log, 0) < offset:
            self.write_log_starts({log: offset})

    def write_log_start(self, key: TopicPartition, offset: int) -> None:
        """Makes the log start of a partition durable that is neither open nor in `unopened`. The caller holds
        `writing`."""
        name = checkpoint.LOG_START_OFFSET
        self._write_changed(name, {**self.offsets[name], key: offset})

    def write_cleaned(self, key: TopicPartition, offset: int | None, log: PartitionLog | None) -> None:
        """Records up to which offset a partition is clean, None if it is dirty from its start on. Does nothing unless
        `log` is the open log."""
        with self.writing:
            if self._logs.get(key) is not log:
                return
            cleaned = {at: clean for at, clean in self.cleaned.items() if at != key}
            if offset is not None:
                cleaned[key] = offset
            self._write_changed(checkpoint.CLEANER_OFFSET, cleaned)

    def _write_changed(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if offsets != self.offsets[name]:
            checkpoint.write_offsets(self._files, self._join(name), offsets)
            self.offsets[name] = offsets

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Removes the lines of partitions that do not exist here from all files, durably: a new partition of the same
        name must not inherit the offsets of a deleted one. Writes nothing if there are none."""
        gone = set(keys)
        if not any(key in offsets for key in gone for offsets in self.offsets.values()):
            return
        self.write()
        for key in gone:
            self.write_cleaned(key, None, None)
