"""A copy of a partition's log in another data directory, which will replace the log (KIP-113).

Names the copy's folder, keeps it up to date with the log, and takes over the state that is in no file. As in Apache
Kafka the folder is `topic-partition.<32 hex digits>-future` until the copy is complete; it then gets the partition's
name, and the folder of the old log is removed. FORMAT.md has the order of the steps.

A copy serves no requests and is in no checkpoint. After an unclean shutdown it is discarded, since it might still
contain records that a recovery cut from the log.
"""

from __future__ import annotations

import re
from typing import Self

from ..protocol.records.batch import MAGIC
from ..protocol.records.formats import read_header
from .config import LogConfig
from .errors import OffsetOutOfRange, StorageError, storage_errors
from .follower_log import FollowerLog
from .io import random_ids
from .io.disk_errors import is_transient
from .io.files import Files
from .io.folder_copies import remove_tree
from .log.recovery import LogCheckpoints
from .log_dir.directory import DataDirectory
from .partition_log import PartitionLog, TopicIdPartition

_FUTURE = re.compile(r"-future$")


def future_name(topic: str, partition: int) -> str:
    """Returns a new name for the folder of a copy; it may exceed FOLDER_NAME_MAX."""
    return f"{topic}-{partition}.{random_ids.uuid4().hex()}-future"


def discard(files: Files, path: str) -> None:
    """Removes the folder of a copy, if it exists. It is first renamed like a deleted one, so that the rest after a
    crash is not taken for a copy. Raises StorageError."""
    doomed = _FUTURE.sub("-delete", path)
    with storage_errors(f"cannot remove {path}"):
        if not files.exists(path):
            return
        files.replace(path, doomed)
        remove_tree(files, doomed)


class FutureLog(FollowerLog):
    """The log of a copy. `follow` may run in any thread, one at a time."""

    @classmethod
    def begin(
        cls, files: Files, data: DataDirectory, path: str, of: PartitionLog, *, now_ms: int, is_continued: bool
    ) -> Self:
        """Opens the copy of a log in a folder of a directory; it goes offline together with the directory. Raises
        StorageError.

        `is_continued`: the folder existed, and it and the log were closed cleanly since it was made.
        """
        log = cls.open(
            files,
            path,
            TopicIdPartition(of.topic, of.partition, of.topic_id),
            config=of.config,
            now_ms=now_ms,
            checkpoints=LogCheckpoints(clean_shutdown=True, has_gaps=True),
        )
        # A transient error does not fail the directory, even if it loses written data: the copy can be made again.
        log.on_failure = lambda _, error: None if is_transient(error) else data.fail(str(error))
        data.guests.add(log)
        if data.failure is not None:
            log.fail(data.failure)
        if not is_continued and log.size_bytes:
            raise StorageError(f"{path} is not new")
        return log

    def lag(self, source: PartitionLog) -> int:
        """Returns the number of offsets that the copy lacks at its end."""
        return source.log_end_offset - self.log_end_offset

    def is_part_of(self, source: PartitionLog) -> bool:
        """Returns whether the copy can be continued from the source: its last batch is the same there. Earlier batches
        are not compared, and may be missing in the copy."""
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
        """Returns the next batches of the source, for `follow`. To be called in the thread that uses the source. Raises
        StorageError."""
        offset = self.log_end_offset if self.size_bytes else max(self.log_end_offset, source.log_start_offset)
        return source.read_appended(offset, max_bytes)

    def follow(self, records: bytes | memoryview, start_offset: int, end_offset: int, now_ms: int) -> None:
        """Appends the result of `wanted`, of a log that had this start and end offset at that time. An empty copy
        begins with it, and if the log has no more batches the copy ends at the same offset. Raises CorruptRecords,
        StorageError."""
        if not self.size_bytes:
            first = start_offset
            if len(records):
                header = read_header(memoryview(records), 0)
                first = min(first, header.base_offset) if header.magic >= MAGIC else first
            if self.log_end_offset < first:
                self.begin_at(first, now_ms)
        if len(records):
            self.append_fetched(records, now_ms=now_ms)
        elif self.log_end_offset < end_offset:  # the newest records were cleaned away, with their segment
            self._roll(end_offset, now_ms)
            self.log_end_offset = end_offset
        if self.log_start_offset < start_offset <= self.log_end_offset:
            self.delete_records_before(start_offset)

    def complete(self, source: PartitionLog) -> int:
        """Closes a complete copy durably, with the producer state and epochs of its source, and returns its log end
        offset. Raises StorageError."""
        if self.log_end_offset != source.log_end_offset:
            raise StorageError(f"{self.directory} is not complete")
        self._producers.known = dict(source.producers())
        self._epochs.keep(list(source._epochs.entries))
        self.close()
        return self.log_end_offset

    def succeed(self, source: PartitionLog) -> None:
        """Takes over the state of the replaced log that is in no file."""
        self._producers.known = source._producers.known
        self._guards = source._guards
        self.leader_epoch = source.leader_epoch


def open_in_place(
    data: DataDirectory, path: str, source: PartitionLog, config: LogConfig, end_offset: int, now_ms: int
) -> FutureLog:
    """Gives a complete copy the partition's name, durably, and opens it. Raises StorageError.

    `end_offset` is the result of `complete`.
    """
    topic, partition = source.topic, source.partition
    data.put_in_place(path, topic, partition, end_offset=end_offset, log_start_offset=source.log_start_offset)
    log = data.open_partition(topic, partition, topic_id=source.topic_id, config=config, now_ms=now_ms, kind=FutureLog)
    if not isinstance(log, FutureLog):
        raise StorageError(f"{path} was not opened as a copy")
    log.succeed(source)
    return log
