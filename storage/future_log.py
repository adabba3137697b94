"""A copy of a partition's log in another data directory, which is to take the log's place (KIP-113).

Owns the name of its folder, how it keeps up with the log, and what it takes over from it that no file holds. As in
Apache Kafka the folder is `topic-partition.<32 hex digits>-future` until the copy has all that the log has; then it is
given the partition's name, and the folder of the old log goes. FORMAT.md has the order of the steps.

A copy is nobody's data: nothing is answered from it, no checkpoint names it, and after an unclean shutdown it is
thrown away, since what was cut from the log by a recovery might be in it still.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import Self

from ..protocol.records.batch import MAGIC
from ..protocol.records.formats import read_header
from .config import LogConfig
from .errors import OffsetOutOfRange, StorageError
from .follower_log import FollowerLog
from .io.disk_errors import is_passing
from .io.files import Files
from .log.recovery import LogCheckpoints
from .log_dir.directory import DataDirectory
from .partition_log import PartitionLog, TopicIdPartition

_FUTURE = re.compile(r"-future$")
NAME_MAX = 255  # of a folder


def future_name(topic: str, partition: int) -> str:
    """A new name for the folder of a copy; it may be longer than a folder's name can be."""
    return f"{topic}-{partition}.{uuid.uuid4().hex}-future"


def discard(files: Files, path: str) -> None:
    """Removes the folder of a copy, if it is there. It has the name of a deleted one before: nobody takes what is left
    after a crash for a copy. StorageError."""
    doomed = _FUTURE.sub("-delete", path)
    try:
        if not files.exists(path):
            return
        files.replace(path, doomed)
        for name in files.list(doomed):
            files.remove(os.path.join(doomed, name))
        files.remove_directory(doomed)
    except OSError as error:
        raise StorageError(f"cannot remove {path}: {error}") from error


class FutureLog(FollowerLog):
    """See the module. `follow` belongs in one thread at a time, which may be any."""

    @classmethod
    def begin(
        cls, files: Files, data: DataDirectory, path: str, of: PartitionLog, *, now_ms: int, is_continued: bool
    ) -> Self:
        """Opens the copy of a log in a folder of a directory, with which it goes offline. StorageError.

        `is_continued` says that the folder was there, and that it and the log were closed well since it was made.
        """
        log = cls.open(
            files,
            path,
            TopicIdPartition(of.topic, of.partition, of.topic_id),
            config=of.config,
            now_ms=now_ms,
            checkpoints=LogCheckpoints(clean_shutdown=True, has_gaps=True),
        )
        # An error that passes is no affair of the directory's, not even where it loses what was written: it is a copy.
        log.on_failure = lambda _, error: None if is_passing(error) else data.fail(str(error))
        data.guests.add(log)
        if data.failure is not None:
            log.fail(data.failure)
        if not is_continued and log.size_bytes:
            raise StorageError(f"{path} is not new")
        return log

    def lag(self, source: PartitionLog) -> int:
        """By how many offsets it is behind."""
        return source.log_end_offset - self.log_end_offset

    def is_part_of(self, source: PartitionLog) -> bool:
        """Whether its end is the source's there, and it begins where that may do without what is before."""
        if not self.size_bytes:
            return True
        if not source.log_start_offset < self.log_end_offset <= source.log_end_offset:
            return False
        last = self.last_batch()
        header = read_header(memoryview(last), 0)
        try:
            there = source.read_appended(max(header.base_offset, source.log_start_offset), len(last))
        except OffsetOutOfRange:
            return False
        return bytes(there[: len(last)]) == last

    def wanted(self, source: PartitionLog, max_bytes: int) -> bytes | memoryview:
        """What of the source comes next, for `follow`. To be called where the source is used. StorageError."""
        offset = self.log_end_offset if self.size_bytes else max(self.log_end_offset, source.log_start_offset)
        return source.read_appended(offset, max_bytes)

    def follow(self, records: bytes | memoryview, start_offset: int, end_offset: int, now_ms: int) -> None:
        """Takes what `wanted` gave of a log that began and ended at these offsets then. An empty copy begins with it,
        and where the log has nothing more it ends where that does. CorruptRecords, StorageError."""
        if not self.size_bytes:
            first = start_offset
            if len(records):
                header = read_header(memoryview(records), 0)
                first = min(first, header.base_offset) if header.magic >= MAGIC else first
            if self.log_end_offset < first:
                self.begin_at(first, now_ms)
        if len(records):
            self.append_fetched(records, now_ms=now_ms)
        elif self.log_end_offset < end_offset:  # the newest were cleaned away, and their segment with them
            self._roll(end_offset, now_ms)
            self.log_end_offset = end_offset
        if self.log_start_offset < start_offset <= self.log_end_offset:
            self.delete_records_before(start_offset)

    def complete(self, source: PartitionLog) -> int:
        """Closes a copy that has all that its source has, durably, and with what is known of producers and epochs
        there; where it ends. StorageError."""
        if self.log_end_offset != source.log_end_offset:
            raise StorageError(f"{self.directory} is not complete")
        self._producers.known = dict(source.producers())
        self._epochs.keep(list(source._epochs.entries))
        self.close()
        return self.log_end_offset

    def succeed(self, source: PartitionLog) -> None:
        """Takes over from the log whose place it has what no file holds."""
        self._producers.known = source._producers.known
        self._guards = source._guards
        self.leader_epoch = source.leader_epoch


def open_in_place(
    data: DataDirectory, path: str, source: PartitionLog, config: LogConfig, end_offset: int, now_ms: int
) -> FutureLog:
    """Gives a complete copy the partition's name, durably, and opens it. StorageError.

    `end_offset` is what `complete` returned.
    """
    topic, partition = source.topic, source.partition
    data.put_in_place(path, topic, partition, end_offset=end_offset, log_start_offset=source.log_start_offset)
    log = data.open_partition(topic, partition, topic_id=source.topic_id, config=config, now_ms=now_ms, kind=FutureLog)
    if not isinstance(log, FutureLog):
        raise StorageError(f"{path} was not opened as a copy")
    log.succeed(source)
    return log
