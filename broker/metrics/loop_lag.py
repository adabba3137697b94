"""How late the event loop is: what everything that takes long on it costs everybody else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .counters import Histogram

EVERY_SECONDS = 0.1
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class LoopLag:
    """Looks at the loop every EVERY_SECONDS from `begin` to `end`: how late it comes. uvloop's timers go by whole
    milliseconds, so one of them may be its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.seen = Histogram(BOUNDS)
        self._loop = loop
        self._timer = timer
        self._due_ns = 0
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """From here on."""
        self._due_ns = self._timer() + round(EVERY_SECONDS * 1e9)
        self._handle = self._loop.call_later(EVERY_SECONDS, self._look)

    def _look(self) -> None:
        self.seen.add(max(0, self._timer() - self._due_ns))
        self.begin()

    def end(self) -> None:
        """No more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
