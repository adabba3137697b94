"""What is said while a start takes long: how many partitions are open, how many bytes recovery has checked.

Owns when a line is due. Nothing is said by a start that is over within two seconds; after that a line each second at
most, by the broker's clock. The forced upgrade has its own words and shares the cadence.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..logs import get_logger

QUIET_MS = 2_000
EACH_MS = 1_000


class Cadence:
    """A line is due `first_ms` after the beginning, and then `each_ms` after the last one."""

    def __init__(self, clock: Clock, first_ms: int, each_ms: int) -> None:
        self._clock = clock
        self._each_ms = each_ms
        self._due_ms = clock.now_ms() + first_ms

    def is_due(self) -> bool:
        """Whether it is time for a line."""
        return self._clock.now_ms() >= self._due_ms

    def said(self) -> None:
        """There was a line, due or not."""
        self._due_ms = self._clock.now_ms() + self._each_ms


class Opening:
    """The opening of `partitions` partitions. Made for one start. Not `is_logged`: somebody else says something."""

    def __init__(self, partitions: int, clock: Clock, *, is_logged: bool = True) -> None:
        self._partitions = partitions
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._cadence = Cadence(clock, QUIET_MS, EACH_MS)
        self._is_slow = False
        self._is_logged = is_logged
        self.opened = 0
        self.checked_bytes = 0

    def watch(self, topic: str, index: int) -> Callable[[int], None]:
        """Who is told of the bytes that recovery has checked in the next partition, some at a time."""
        name = f"{topic}-{index}"

        def on_checked(bytes: int) -> None:
            self.checked_bytes += bytes
            self._maybe_say(recovering=name)

        return on_checked

    def done(self) -> None:
        """One partition more is open, or cannot be opened."""
        self.opened += 1
        self._maybe_say()

    def finish(self) -> None:
        """Says the total, if it took long."""
        if self._is_slow:
            self._say("opened all partitions", milliseconds=self._clock.now_ms() - self._began_ms)

    def _maybe_say(self, **more: str) -> None:
        if self._is_logged and self._cadence.is_due():
            self._say("opening partitions", **more)

    def _say(self, event: str, **more: str | int) -> None:
        self._is_slow = True
        self._cadence.said()
        get_logger().info(event, opened=self.opened, of=self._partitions, checked_bytes=self.checked_bytes, **more)
