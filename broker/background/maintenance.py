"""What the broker does now and then beside its requests, by its clock.

Owns the timers, and from when on there is something to do; nothing of what they do: recovery points, log starts and
high watermarks are written (each at an interval of its own), logs of which something is not durable for longer than
flush.ms are synced (looked for every log.flush.scheduler.interval.ms, which is never unless set, as in Kafka),
producers that have written nothing for too long are forgotten (KIP-854), and old segments are deleted. What is synced
in this is synced in a thread. Files of what was deleted, segments or partitions, go after a delay; a stop leaves those
that still wait to the next start. The log of the cluster's metadata is no topic: nothing of it goes. Where there are
several nodes, leaders go back to the preferred replicas.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...storage.errors import StorageError
from ...storage.log.retention import due_ms, start_of_kept
from ...storage.log_dir.directory import DataDirectory
from ..logs import get_logger

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog
    from ..clock import Clock, Timer
    from ..config.values import Config
    from ..metadata.topics import Topic, Topics
    from ..metadata.topology import Topology
    from ..replica.flush import Durability
    from ..replica.log_dirs import LogDir, LogDirs

EXPIRATION_CHECK_MS = 600_000  # of releases without the config
NEVER_MS = 1 << 40  # from here on (35 years) an interval means never; a loop's timers do not take all numbers


class Maintenance:
    """The timers of one broker. Made when its data are open; `close` ends them."""

    def __init__(
        self,
        clock: Clock,
        waits: Clock,
        config: Config,
        logs: LogDirs,
        topics: Topics,
        topology: Topology,
        durability: Durability,
    ) -> None:
        """The checkpoints are written by `waits`, the machine's time: they bear on how long the next start takes."""
        self._clock = clock
        self._logs = logs
        self._topics = topics
        self._durability = durability
        self._timers: list[Timer] = []
        self._writing: set[tuple[DataDirectory, str]] = set()
        for name, write in (
            ("log.flush.offset.checkpoint.interval.ms", DataDirectory.write_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", DataDirectory.write_log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", DataDirectory.write_watermarks),
        ):
            self._repeat(waits, config[name], partial(self._checkpoint, name, write))
        self._repeat(clock, config["log.flush.scheduler.interval.ms"], self._flush, self._flush_due_ms)
        check_ms: int = config.get("producer.id.expiration.check.interval.ms", EXPIRATION_CHECK_MS)
        self._repeat(clock, check_ms, self._expire_producers, self._producers_due_ms)
        self._repeat(clock, config["log.retention.check.interval.ms"], self._retain, self._retention_due_ms)
        if topology.nodes.is_cluster and config["auto.leader.rebalance.enable"]:
            # A KRaft controller does not ask how many of a node's leaders are elsewhere.
            is_kraft = config.profile.behaviour.controls_as_kraft
            percentage: int | None = None if is_kraft else config.get("leader.imbalance.per.broker.percentage")
            interval_ms = config["leader.imbalance.check.interval.seconds"] * 1000
            due = partial(self._balance_due_ms, topology, percentage)
            self._repeat(clock, interval_ms, partial(self._balance, topology, percentage), due)
        self._waiting: dict[int, Timer] = {}  # for files that are to go
        self._next = itertools.count()
        self.is_cleaning: Callable[[PartitionLog], bool] = lambda log: False
        """Which log the cleaner is at: its segments are not deleted meanwhile."""
        logs.later = lambda remove: self.remove_later(remove, config["log.segment.delete.delay.ms"])

    def _repeat(
        self, clock: Clock, interval_ms: int, work: Callable[[], None], due: Callable[[], int | None] | None = None
    ) -> None:
        if 0 < interval_ms < NEVER_MS:
            self._timers.append(clock.call_every(interval_ms, work, due))

    def _checkpoint(self, name: str, write: Callable[[DataDirectory], None]) -> None:
        """Writes one checkpoint of each directory, unless the last time is not over: less to read after a crash."""

        def done(writing: tuple[DataDirectory, str], error: BaseException | None) -> None:
            self._writing.discard(writing)
            if error is not None:  # the next may do; until then more is read after a crash
                get_logger().error("checkpoint not written", directory=writing[0].path, reason=str(error))

        for log_dir in self._logs.online:
            writing = log_dir.data, name
            if writing not in self._writing:
                self._writing.add(writing)
                self._durability.in_background(partial(write, log_dir.data), partial(done, writing))

    def _flush(self) -> None:
        """Syncs the logs of which something is not durable for too long."""
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            for partition in topic.online_partitions():
                log = partition.log
                since_ms = log.unflushed_since_ms
                if since_ms is not None and now_ms - since_ms >= log.config.flush_ms:
                    partition.syncs.soon()

    def _flush_due_ms(self) -> int | None:
        """From when on `_flush` has something to do, as things are; None if never. So the others below."""
        since = ((log.unflushed_since_ms, log.config.flush_ms) for log in self._online())
        return min((since_ms + flush_ms for since_ms, flush_ms in since if since_ms is not None), default=None)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            for partition in topic.online_partitions():
                partition.log.expire_producers(now_ms)

    def _producers_due_ms(self) -> int | None:
        earliest_ms: int | None = None
        for log in self._online():
            with contextlib.suppress(StorageError):  # nor can they be forgotten
                when_ms = log.producers_expire_ms()
                if when_ms is not None and (earliest_ms is None or when_ms < earliest_ms):
                    earliest_ms = when_ms
        return earliest_ms

    def _retain(self) -> None:
        """Deletes what retention does not keep, directory by directory. The log starts come first: in a thread, and all
        of a directory in one write, as each is a sync."""
        now_ms = self._clock.now_ms()
        for log_dir in self._logs.online:
            moves: dict[PartitionLog, int] = {}
            for _, log in self._retained(log_dir):
                with contextlib.suppress(StorageError):  # what is wrong is told by the deletion
                    start = start_of_kept(log, now_ms)
                    if start > log.log_start_offset:
                        moves[log] = start
            if moves:
                note = partial(log_dir.data.note_log_starts, moves)
                self._durability.in_background(note, lambda _, log_dir=log_dir: self._delete(log_dir, now_ms))
            else:
                self._delete(log_dir, now_ms)

    def _retention_due_ms(self) -> int | None:
        earliest_ms: int | None = None
        for log_dir in self._logs.online:
            for _, log in self._retained(log_dir):
                try:
                    when_ms = due_ms(log)
                except StorageError:  # each check says so
                    return 0
                if when_ms is not None and (earliest_ms is None or when_ms < earliest_ms):
                    earliest_ms = when_ms
        return earliest_ms

    def _online(self) -> Iterator[PartitionLog]:
        return (partition.log for topic in self._topics for partition in topic.online_partitions())

    def _retained(self, log_dir: LogDir) -> Iterator[tuple[Topic, PartitionLog]]:
        """The logs of a directory from which something may be deleted now."""
        for topic in self._topics:
            for partition in topic.online_partitions():
                log = partition.log
                if partition.lies_in(log_dir) and not self.is_cleaning(log) and log.failure is None:  # told of once
                    yield topic, log

    def _delete(self, log_dir: LogDir, now_ms: int) -> None:
        """Partition by partition: one that fails does not keep the others."""
        for topic, log in self._retained(log_dir):
            delay_ms: int = topic.config["file.delete.delay.ms"]
            try:
                removed = log.retain(now_ms)
            except StorageError as error:
                get_logger().error("retention failed", topic=log.topic, partition=log.partition, reason=str(error))
                continue
            if removed is not None:
                get_logger().info(
                    "segments deleted",
                    topic=log.topic,
                    partition=log.partition,
                    segments=len(removed.segments),
                    bytes=removed.size_bytes,
                    log_start_offset=log.log_start_offset,
                )
                self.remove_later(removed.remove, delay_ms)

    @staticmethod
    def _balance(topology: Topology, percentage: int | None) -> None:
        try:
            topology.balance(percentage)
        except StorageError as error:
            get_logger().error("leaders could not be moved to the preferred replicas", reason=str(error))

    @staticmethod
    def _balance_due_ms(topology: Topology, percentage: int | None) -> int | None:
        return 0 if topology.imbalanced(percentage) else None

    def remove_later(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Removes files that are no part of a log any more, after a while."""
        number = next(self._next)

        def fire() -> None:
            del self._waiting[number]
            try:
                remove()
            except StorageError as error:  # the next start removes them
                get_logger().error("deleted files could not be removed", reason=str(error))

        self._waiting[number] = self._clock.call_at(self._clock.now_ms() + delay_ms, fire)

    def close(self) -> None:
        """Forgets all timers."""
        for timer in (*self._timers, *self._waiting.values()):
            timer.cancel()
