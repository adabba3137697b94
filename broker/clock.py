"""The broker's clock. This is the only module that reads the system's time; all others receive a clock.

`SystemClock` runs on an event loop. `ManualClock` moves when its owner advances it, and fires the timers that become
due. `virtual_clock.VirtualClock` does both.
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
    """A pending callback, for one call or for repeated calls."""

    def cancel(self) -> None:
        """Cancels the callback; a timer that has fired already is left alone."""
        ...


class Clock(Protocol):
    """Wall time in milliseconds since 1970, and timers on it."""

    def now_ms(self) -> int:
        """The current time."""
        ...

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedules a call at `when_ms`, or as soon as possible if that is past."""
        ...

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Schedules a repeated check: a call each `interval_ms` (> 0), the first one after one interval.

        `due` returns the earliest time at which the callback would have something to do in the present state, or None
        if it has nothing to do until something else happens; a time that is too early does no harm. A clock that jumps
        far ahead may skip the calls before that time.
        """
        ...

    def fire_overdue(self) -> None:
        """Fires the timers whose time has passed but for which the event loop had no time yet.

        Called before a request is handled: a busy loop reads its sockets before it runs its timers, and a request would
        find, for example, a group member whose session has expired.
        """
        ...


def wall_ms() -> int:
    """The machine's wall time, for commands without an event loop."""
    return time.time_ns() // 1_000_000


class _Repeating:
    """A repeated check, scheduled again after each call by a timer of its clock."""

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
        finally:  # an error does not end the repetition
            if self._timer is not None:
                self._wait()

    def cancel(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class OneShot:
    """A timer that fires once. `callback` is None after it was cancelled."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class OneShots:
    """Timers in the order in which they are due; timers with equal times keep the order of addition.

    Cancelled timers are removed when they outnumber the others: each heartbeat of a group member leaves one.
    """

    __slots__ = ("_heap", "_order", "_purge_at")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, OneShot]] = []
        self._order = itertools.count()
        self._purge_at = LEAST_PURGED

    def add(self, when: float, timer: OneShot) -> None:
        """Adds a timer. All times of an instance have the same unit, which the owner chooses."""
        if len(self._heap) >= self._purge_at:
            self._heap = [one for one in self._heap if one[2].callback is not None]
            heapq.heapify(self._heap)
            self._purge_at = max(LEAST_PURGED, 2 * len(self._heap))
        heapq.heappush(self._heap, (when, next(self._order), timer))

    @property
    def next_at(self) -> float | None:
        """The time of the first timer, or None without timers."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> tuple[float, int, OneShot]:
        """Removes the first timer. Returns its time, its number in the order of addition, and the timer."""
        return heapq.heappop(self._heap)

    def clear(self) -> None:
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
        """In monotonic seconds: the time at which `_armed` fires. No timer is due before."""
        self._armed: asyncio.TimerHandle | None = None

    def now_ms(self) -> int:
        """The machine's wall time."""
        return self._wall()

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedules a call by a timer of the event loop."""
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
        if at is not None:  # timers are left, or a loop with millisecond resolution called a little early
            self._arm(at)
        elif self._armed is not None:
            self._armed.cancel()
            self._armed, self._armed_at = None, math.inf
        for timer in due:
            call_timer(self._loop, timer)

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Schedules a call at each interval. `due` is ignored: this clock never jumps."""
        return _Repeating(self, interval_ms, callback)


def call_timer(loop: asyncio.AbstractEventLoop, timer: OneShot) -> None:
    """Calls a timer's callback unless it was cancelled. An error goes to the loop's exception handler, so that the
    remaining timers still fire.
    """
    if timer.callback is None:
        return
    try:
        timer.callback(*timer.args)
    except Exception as error:
        loop.call_exception_handler({"message": "timer callback failed", "exception": error})


class ManualClock:
    """A clock that stands still until `advance` moves it. Timers fire in order, each at its own time."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._timers = OneShots()

    def now_ms(self) -> int:
        """The time that the last `advance` reached."""
        return self._now_ms

    def call_at(self, when_ms: int, callback: Callable[..., Any], *args: Any) -> Timer:
        """Schedules a call within the `advance` that reaches `when_ms`."""
        timer = OneShot(callback, args)
        self._timers.add(when_ms, timer)
        return timer

    def fire_overdue(self) -> None:
        """Does nothing: timers fire within `advance`."""

    def call_every(
        self, interval_ms: int, callback: Callable[[], Any], due: Callable[[], int | None] | None = None
    ) -> Timer:
        """Schedules a call at each interval. `due` is ignored."""
        return _Repeating(self, interval_ms, callback)

    def leap(self, ms: int) -> None:
        """Advances the time by `ms` (>= 0) as a machine that slept meanwhile does: what became due fires at the end, a
        repeated check once.
        """
        self._now_ms += ms
        self.advance(0)

    def advance(self, ms: int) -> None:
        """Advances the time by `ms` (>= 0) and fires the timers that become due, including those that callbacks add."""
        target = self._now_ms + ms
        while (when_ms := self._timers.next_at) is not None and when_ms <= target:
            timer = self._timers.pop()[2]
            self._now_ms = max(self._now_ms, int(when_ms))
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now_ms = target
