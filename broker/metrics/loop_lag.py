"""Lag of the event loop: how long other work delays a timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .histogram import Histogram

EVERY_SECONDS = 0.1
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Measures the delay of a timer every EVERY_SECONDS, from `begin` to `end`. Timers of uvloop have a resolution of 1
    ms, which is part of the result.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.seen = Histogram(BOUNDS)
        self._loop = loop
        self._timer = timer
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Starts measuring."""
        self._due_ns = self._timer() + round(EVERY_SECONDS * 1e9)
        self._handle = self._loop.call_later(EVERY_SECONDS, self._look)

    def _look(self) -> None:
        self.seen.add(max(0, self._timer() - self._due_ns))
        self.begin()

    def end(self) -> None:
        """Stops measuring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
