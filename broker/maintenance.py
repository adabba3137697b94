"""What the broker does now and then beside its requests, by its clock.

Owns the timers and nothing of what they do: recovery points are written each minute, as Kafka does, and producers that
have written nothing for too long are forgotten (KIP-854, every ten minutes).
"""

from __future__ import annotations

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
            for partition in topic.partitions:
                partition.log.expire_producers(now_ms)

    def close(self) -> None:
        """Forgets all timers."""
        for timer in self._timers.values():
            timer.cancel()
