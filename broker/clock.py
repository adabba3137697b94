"""The broker's time. The only module that reads a clock; everything else is handed one.

`SystemClock` runs on an event loop; `ManualClock` is moved by its owner and fires what has become due. A third, which
does both, is `virtual_clock.VirtualClock`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """A callback that will be made, once or again and again, unless cancelled."""

    def cancel(self) -> None:
        """Forgets the callback; harmless when it has been made."""
        ...


class Clock(Protocol):
    """Wall time in milliseconds since 1970, and callbacks at such times."""

    def now_ms(self) -> int:
        """The time now."""
        ...

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Calls back at `when_ms`, or as soon as may be if that is past."""
        ...

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """A check that comes again: calls back each `interval_ms` (> 0), for the first time after one.

        `due` says from what time on the callback would have something to do, as things are now: None if not before
        something else happens; too early a time does no harm. A clock that is moved far need not call back before that.
        """
        ...


def wall_ms() -> int:
    """The machine's wall time, for a command that has no event loop."""
    return time.time_ns() // 1_000_000


class _Repeating:
    """A check that comes each interval by the timers of its clock."""

    __slots__ = ("_callback", "_clock", "_interval_ms", "_timer")

    def __init__(self, clock: Clock, interval_ms: int, callback: Callable[[], Any]) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._callback = callback
        self._timer: Timer | None = None
        self._wait()

    def _wait(self) -> None:
        self._timer = self._clock.call_at(self._clock.now_ms() + self._interval_ms, self._fire)

    def _fire(self) -> None:
        try:
            self._callback()
        finally:  # an error does not end the checks
            if self._timer is not None:
                self._wait()

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class SystemClock:
    """The machine's clock, with timers on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """The machine's wall time."""
        return wall_ms()

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """A timer of the loop: it runs on monotonic time, so a step of the wall clock does not fire it."""
        return self._loop.call_later(max(0, when_ms - self.now_ms()) / 1000, callback, *args)

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Calls back at each interval, whatever `due` says."""
        return _Repeating(self, interval_ms, callback)


class _ManualTimer:
    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that stands still until `advance` moves it; timers fire in order, each at its own time."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        """The time it was last moved to."""
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Fires within an `advance` that reaches `when_ms`."""
        timer = _ManualTimer(callback, args)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Calls back at each interval, whatever `due` says."""
        return _Repeating(self, interval_ms, callback)

    def advance(self, ms: int) -> None:
        """Moves time on by `ms` (>= 0), firing what becomes due, also what that sets up."""
        target = self._now_ms + ms
        while self._timers and self._timers[0][0] <= target:
            when_ms, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, when_ms)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now_ms = target
