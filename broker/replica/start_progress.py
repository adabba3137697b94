"""Progress of a long start: log lines with the number of open partitions and the bytes that recovery has checked.

Owns when a line is due. A start of less than two seconds logs nothing; after that there is at most one line a second,
by the broker's clock. The forced upgrade has its own lines and the same cadence.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock
from ..logs import get_logger

QUIET_MS = 2_000
EACH_MS = 1_000


class Cadence:
    """Decides when a line is due: first after `first_ms`, then `each_ms` after the last line."""

    def __init__(self, clock: Clock, first_ms: int, each_ms: int) -> None:
        self._clock = clock
        self._each_ms = each_ms
        self._due_ms = clock.now_ms() + first_ms

    def is_due(self) -> bool:
        return self._clock.now_ms() >= self._due_ms

    def logged(self) -> None:
        """Resets the interval after a line."""
        self._due_ms = self._clock.now_ms() + self._each_ms


class Opening:
    """The opening of `partitions` partitions in one start. With `is_logged` False, the forced upgrade logs its own
    lines.
    """

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
        """Returns a callback for the bytes that recovery checks in the next partition, called several times."""
        name = f"{topic}-{index}"

        def on_checked(bytes: int) -> None:
            self.checked_bytes += bytes
            self._log_if_due(recovering=name)

        return on_checked

    def done(self) -> None:
        """Counts a partition that was opened or cannot be opened."""
        self.opened += 1
        self._log_if_due()

    def finish(self) -> None:
        """Logs the total of a long start."""
        if self._is_slow:
            self._log("opened all partitions", milliseconds=self._clock.now_ms() - self._began_ms)

    def _log_if_due(self, **more: str) -> None:
        if self._is_logged and self._cadence.is_due():
            self._log("opening partitions", **more)

    def _log(self, event: str, **more: str | int) -> None:
        self._is_slow = True
        self._cadence.logged()
        get_logger().info(event, opened=self.opened, of=self._partitions, checked_bytes=self.checked_bytes, **more)
