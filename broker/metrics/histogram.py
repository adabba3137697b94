"""Histograms that count values by upper bounds, as Prometheus shows them, and the one of the event loop's lag."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The bounds of requests' times, in seconds."""
NS = 1_000_000_000
SECONDS_NS = tuple(round(bound * NS) for bound in SECONDS)
EVERY_SECONDS = 0.1
_LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """A histogram. `bounds` are ascending, in the unit that is shown, of which a counted value is `1 / per_unit`.

    `buckets` has a count for each bound, and a last one for larger values.
    """

    __slots__ = ("bounds", "buckets", "limits", "per_unit", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS, per_unit: int = NS) -> None:
        self.bounds = bounds
        self.per_unit = per_unit
        self.limits = SECONDS_NS if bounds is SECONDS else tuple(round(bound * per_unit) for bound in bounds)
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0

    def add(self, value: int) -> None:
        self.buckets[bisect_left(self.limits, value)] += 1
        self.sum += value


class LoopLag:
    """Measures how long other work delays a timer of the event loop every EVERY_SECONDS, from `begin` to `end`. Timers
    of uvloop have a resolution of 1 ms, which is part of the result."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.seen = Histogram(_LAG_BOUNDS)
        self._loop = loop
        self._timer = timer
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._due_ns = self._timer() + round(EVERY_SECONDS * 1e9)
        self._handle = self._loop.call_later(EVERY_SECONDS, self._look)

    def _look(self) -> None:
        self.seen.add(max(0, self._timer() - self._due_ns))
        self.begin()

    def end(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
