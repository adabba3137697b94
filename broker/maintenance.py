"""What the broker does now and then beside its requests, by its clock.

Owns the timers and nothing of what they do: recovery points are written each minute, as Kafka does, producers that
have written nothing for too long are forgotten (KIP-854, every ten minutes), and old segments are deleted (every
log.retention.check.interval.ms). Files of what was deleted, segments or partitions, go after a delay; a stop leaves
those that still wait to the next start. The log of the cluster's metadata is no topic: nothing of it goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..storage.errors import StorageError
from .logs import get_logger

if TYPE_CHECKING:
    from .clock import Clock, Timer
    from .config import Config
    from .log_dirs import LogDirs
    from .topics import Topics

CHECKPOINT_MS = 60_000  # log.flush.offset.checkpoint.interval.ms
EXPIRATION_CHECK_MS = 600_000  # of releases without the config


class Maintenance:
    """The timers of one broker. Made when its data are open; `close` ends them."""

    def __init__(self, clock: Clock, config: Config, logs: LogDirs, topics: Topics) -> None:
        self._clock = clock
        self._logs = logs
        self._topics = topics
        self._timers: dict[str, Timer] = {}
        self._repeat("checkpoint", CHECKPOINT_MS, self._checkpoint)
        check_ms: int = config.get("producer.id.expiration.check.interval.ms", EXPIRATION_CHECK_MS)
        self._repeat("producers", check_ms, self._expire_producers)
        self._repeat("retention", config["log.retention.check.interval.ms"], self._retain)
        self._waiting: dict[int, Timer] = {}  # for files that are to go
        self._next = itertools.count()
        logs.later = lambda remove: self._remove_later(remove, config["log.segment.delete.delay.ms"])

    def _repeat(self, name: str, interval_ms: int, work: Callable[[], None]) -> None:
        def fire() -> None:
            work()
            self._repeat(name, interval_ms, work)

        self._timers[name] = self._clock.call_at(self._clock.now_ms() + interval_ms, fire)

    def _checkpoint(self) -> None:
        """Writes the recovery points: less to read after a crash."""
        try:
            self._logs.checkpoint()
        except StorageError as error:  # the next may do; until then more is read after a crash
            get_logger().error("checkpoint not written", reason=str(error))

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            for partition in topic.online_partitions():
                partition.log.expire_producers(now_ms)

    def _retain(self) -> None:
        """Deletes what retention does not keep, partition by partition: one that fails does not keep the others."""
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            delay_ms: int = topic.config["file.delete.delay.ms"]
            for partition in topic.online_partitions():
                log = partition.log
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
                    self._remove_later(removed.remove, delay_ms)

    def _remove_later(self, remove: Callable[[], None], delay_ms: int) -> None:
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
        for timer in (*self._timers.values(), *self._waiting.values()):
            timer.cancel()
