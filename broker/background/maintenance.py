"""Periodic work of the broker, by its clock.

Owns the timers and the times at which there is work to do. The work: checkpoints of recovery points, log start offsets
and high watermarks (each at its own interval); syncs of logs that have unsynced records for longer than flush.ms
(checked every log.flush.scheduler.interval.ms, which is never by default, as in Kafka); expiry of idle producers
(KIP-854); retention; removal of expired delegation tokens (KIP-48). Syncs run in a thread. Files of deleted segments
and partitions are removed after a delay; after a stop, the next start removes them. The log of the cluster's metadata
is not a topic and keeps all records. With several nodes, leaders move back to the preferred replicas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...storage.errors import StorageError
from ...storage.format import checkpoint
from ...storage.log.retention import due_ms, start_of_kept
from ..logs import get_logger

if TYPE_CHECKING:
    from ...storage.log_dir.directory import DataDirectory
    from ...storage.partition_log import PartitionLog
    from ..clock import Clock, Timer
    from ..config.values import Config
    from ..metadata.topics import Topic, Topics
    from ..metadata.topology import Topology
    from ..replica.flush import Durability
    from ..replica.log_dirs import LogDirs
    from ..security.tokens import DelegationTokens

EXPIRATION_CHECK_MS = 600_000  # in releases without the config
NEVER_MS = 1 << 40  # an interval from here on (35 years) means never: the event loop cannot take all numbers


class Maintenance:
    """The timers of one broker. Made when its data is open; `close` ends them."""

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
        """Checkpoints are written by `waits`, the machine's time: they shorten the next start in real time."""
        self._clock = clock
        self._logs = logs
        self._topics = topics
        self._durability = durability
        self._timers: list[Timer] = []
        self._writing: set[tuple[DataDirectory, str]] = set()
        for name, written in (
            ("log.flush.offset.checkpoint.interval.ms", checkpoint.RECOVERY_POINT),
            ("log.flush.start.offset.checkpoint.interval.ms", checkpoint.LOG_START_OFFSET),
            ("replica.high.watermark.checkpoint.interval.ms", checkpoint.REPLICATION_OFFSET),
        ):
            self._repeat(waits, config[name], partial(self._checkpoint, written))
        self._repeat(clock, config["log.flush.scheduler.interval.ms"], self._flush, self._flush_due_ms)
        check_ms: int = config.get("producer.id.expiration.check.interval.ms", EXPIRATION_CHECK_MS)
        self._repeat(clock, check_ms, self._expire_producers, self._producers_due_ms)
        self._repeat(clock, config["log.retention.check.interval.ms"], self._retain, self._retention_due_ms)
        if topology.nodes.is_cluster and config["auto.leader.rebalance.enable"]:
            # A KRaft controller ignores the percentage of leaders that are not on preferred replicas.
            is_kraft = config.profile.behaviour.controls_as_kraft
            percentage: int | None = None if is_kraft else config.get("leader.imbalance.per.broker.percentage")
            interval_ms = config["leader.imbalance.check.interval.seconds"] * 1000
            work = partial(self._balance, topology, percentage)
            self._repeat(clock, interval_ms, work, lambda: 0 if topology.imbalanced(percentage) else None)
        self._waiting: set[Timer] = set()  # for work that is done once
        self.is_cleaning: Callable[[PartitionLog], bool] = lambda log: False
        """Returns whether the cleaner works on a log; its segments are not deleted meanwhile."""
        logs.later = lambda remove: self.remove_later(remove, config["log.segment.delete.delay.ms"])

    def _repeat(
        self, clock: Clock, interval_ms: int, work: Callable[[], None], due: Callable[[], int | None] | None = None
    ) -> None:
        if 0 < interval_ms < NEVER_MS:
            self._timers.append(clock.call_every(interval_ms, work, due))

    def _checkpoint(self, name: str) -> None:
        """Writes a checkpoint of each directory whose previous write has ended, so that less is read after a crash."""

        def done(writing: tuple[DataDirectory, str], error: BaseException | None) -> None:
            self._writing.discard(writing)
            if error is not None:  # the next one may succeed; until then more is read after a crash
                get_logger().error("checkpoint not written", directory=writing[0].path, reason=str(error))

        for log_dir in self._logs.online:
            writing = log_dir, name
            if writing not in self._writing:
                self._writing.add(writing)
                self._durability.in_background(partial(log_dir.write_checkpoints, name), partial(done, writing))

    def _flush(self) -> None:
        """Syncs the logs with records that are unsynced for too long."""
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            for partition in topic.online_partitions():
                log = partition.log
                since_ms = log.unflushed_since_ms
                if since_ms is not None and now_ms - since_ms >= log.config.flush_ms:
                    partition.syncs.soon()

    def _flush_due_ms(self) -> int | None:
        """The earliest time at which `_flush` has work in the present state; None for never. The same holds for the
        `_due_ms` below.
        """
        since = ((log.unflushed_since_ms, log.config.flush_ms) for log in self._online())
        return min((since_ms + flush_ms for since_ms, flush_ms in since if since_ms is not None), default=None)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for log in self._online():
            log.expire_producers(now_ms)

    def _producers_due_ms(self) -> int | None:
        found: list[int | None] = []
        for log in self._online():
            with contextlib.suppress(StorageError):  # nor can its producers expire
                found.append(log.producers_expire_ms())
        return min((when_ms for when_ms in found if when_ms is not None), default=None)

    def _retain(self) -> None:
        """Applies retention, directory by directory. New log start offsets are written first: in a thread, and in one
        write for each directory, since each write is a sync.
        """
        now_ms = self._clock.now_ms()
        for log_dir in self._logs.online:
            moves: dict[PartitionLog, int] = {}
            for _, log in self._retained(log_dir):
                with contextlib.suppress(StorageError):  # logged when segments are deleted
                    start = start_of_kept(log, now_ms)
                    if start > log.log_start_offset:
                        moves[log] = start
            if moves:
                note = partial(log_dir.note_log_starts, moves)
                self._durability.in_background(note, lambda _, log_dir=log_dir: self._delete(log_dir, now_ms))
            else:
                self._delete(log_dir, now_ms)

    def _retention_due_ms(self) -> int | None:
        try:
            found = [due_ms(log) for log_dir in self._logs.online for _, log in self._retained(log_dir)]
        except StorageError:  # each check logs it
            return 0
        return min((when_ms for when_ms in found if when_ms is not None), default=None)

    def _online(self) -> Iterator[PartitionLog]:
        return (partition.log for topic in self._topics for partition in topic.online_partitions())

    def _retained(self, log_dir: DataDirectory) -> Iterator[tuple[Topic, PartitionLog]]:
        """The logs of a directory from which something may be deleted now."""
        for topic in self._topics:
            for partition in topic.online_partitions():
                log = partition.log
                if partition.lies_in(log_dir) and not self.is_cleaning(log) and log.failure is None:  # logged once
                    yield topic, log

    def _delete(self, log_dir: DataDirectory, now_ms: int) -> None:
        """Deletes segments, partition by partition: an error of one does not affect the others."""
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
            get_logger().error("move of leaders to preferred replicas failed", reason=str(error))

    def expire_tokens(self, tokens: DelegationTokens, interval_ms: int) -> None:
        self._repeat(self._clock, interval_ms, partial(self._remove_expired, tokens), tokens.next_expiry_ms)

    def _remove_expired(self, tokens: DelegationTokens) -> None:
        now_ms = self._clock.now_ms()
        try:
            removed = tokens.remove_expired(now_ms)
        except StorageError as error:  # the next check tries again
            get_logger().error("removal of expired delegation tokens failed", reason=str(error))
            return
        if removed:  # there may be more
            get_logger().info("delegation tokens expired", tokens=removed)
            self._once(now_ms, partial(self._remove_expired, tokens))

    def remove_later(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Removes files that belong to no log any more, after a delay."""

        def fire() -> None:
            try:
                remove()
            except StorageError as error:  # the next start removes them
                get_logger().error("removal of deleted files failed", reason=str(error))

        self._once(self._clock.now_ms() + delay_ms, fire)

    def _once(self, when_ms: int, work: Callable[[], None]) -> None:
        def fire() -> None:
            self._waiting.discard(timer)
            work()

        timer = self._clock.call_at(when_ms, fire)
        self._waiting.add(timer)

    def close(self) -> None:
        for timer in (*self._timers, *self._waiting):
            timer.cancel()
