"""The broker's time. The only module that reads a clock; everything else is handed one.

`SystemClock` runs on an event loop; `ManualClock` is moved by its owner and fires what has become due. A third, which
does both, is `virtual_clock.VirtualClock`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Any, Protocol

LEAST_PURGED = 256  # timers


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

    def fire_overdue(self) -> None:
        """Fires now each timer whose time has passed but for which the event loop had no time yet.

        Called before a request is handled: a loop that was busy reads its sockets before it runs its timers, and a
        request would find, say, a group member whose session has expired.
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


class OneShot:
    """A timer that fires once. `callback` is None when it has been cancelled."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class OneShots:
    """Timers in the order in which they are due: by time, and those of one time as they were added.

    Cancelled timers are removed when they outnumber the others: each heartbeat of a group member leaves one.
    """

    __slots__ = ("_heap", "_order", "_purge_at")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, OneShot]] = []
        self._order = itertools.count()
        self._purge_at = LEAST_PURGED

    def add(self, when: float, timer: OneShot) -> None:
        """Adds a timer; all times have the unit of their owner."""
        if len(self._heap) >= self._purge_at:
            self._heap = [one for one in self._heap if one[2].callback is not None]
            heapq.heapify(self._heap)
            self._purge_at = max(LEAST_PURGED, 2 * len(self._heap))
        heapq.heappush(self._heap, (when, next(self._order), timer))

    @property
    def next_at(self) -> float | None:
        """When the first one is due; None without any."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> tuple[float, int, OneShot]:
        """Takes out the first one: its time, its number in the order of addition, and the timer."""
        return heapq.heappop(self._heap)

    def clear(self) -> None:
        """Removes all."""
        self._heap.clear()


class SystemClock:
    """The machine's clock, with timers on an event loop.

    Timers run on monotonic time, so a step of the wall clock does not fire them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        wall: Callable[[], int] = wall_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loop = loop
        self._wall = wall
        self._monotonic = monotonic
        self._timers = OneShots()
        self._armed_at = math.inf
        """In monotonic seconds: when `_armed` fires. No timer is due before."""
        self._armed: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """The machine's wall time."""
        return self._wall()

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """A timer of the loop, see the class."""
        timer = OneShot(callback, args)
        at = self._monotonic() + max(0, when_ms - self._wall()) / 1000
        self._timers.add(at, timer)
        if at < self._armed_at:
            self._arm(at)
        return timer

    def _arm(self, at: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_at = at
        self._armed = self._loop.call_later(max(0.0, at - self._monotonic()), self._wake)

    def _wake(self) -> None:
        self._armed, self._armed_at = None, math.inf
        self._fire()

    def fire_overdue(self) -> None:
        """Fires the timers whose time has passed."""
        if self._armed_at <= self._monotonic():
            self._fire()

    def _fire(self) -> None:
        now = self._monotonic()
        due: list[OneShot] = []
        while (at := self._timers.next_at) is not None and at <= now:
            due.append(self._timers.pop()[2])
        if at is not None:  # also what a loop that rounds to milliseconds called a little early
            self._arm(at)
        elif self._armed is not None:
            self._armed.cancel()
            self._armed, self._armed_at = None, math.inf
        for timer in due:
            call_timer(self._loop, timer)

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Calls back at each interval, whatever `due` says."""
        return _Repeating(self, interval_ms, callback)


def call_timer(loop: asyncio.AbstractEventLoop, timer: OneShot) -> None:
    """Calls a timer back unless it was cancelled. An error is reported to the loop, so that the others fire too."""
    if timer.callback is None:
        return
    try:
        timer.callback(*timer.args)
    except Exception as error:
        loop.call_exception_handler({"message": "a timer failed", "exception": error})


class ManualClock:
    """A clock that stands still until `advance` moves it; timers fire in order, each at its own time."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._timers = OneShots()

    def now_ms(self) -> int:
        """The time it was last moved to."""
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Fires within an `advance` that reaches `when_ms`."""
        timer = OneShot(callback, args)
        self._timers.add(when_ms, timer)
        return timer

    def fire_overdue(self) -> None:
        """Nothing: timers fire within `advance`."""

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Calls back at each interval, whatever `due` says."""
        return _Repeating(self, interval_ms, callback)

    def advance(self, ms: int) -> None:
        """Moves time on by `ms` (>= 0), firing what becomes due, also what that sets up."""
        target = self._now_ms + ms
        while (when_ms := self._timers.next_at) is not None and when_ms <= target:
            timer = self._timers.pop()[2]
            self._now_ms = max(self._now_ms, int(when_ms))
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now_ms = target
