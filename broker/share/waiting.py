"""Delayed share fetches: a ShareFetch waits until records can be acquired, or until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..replica.purgatory import FetchWaiter

if TYPE_CHECKING:
    from ..clock import Clock


class ShareFetchWaiter(FetchWaiter):
    """Waits until `is_ready` returns True. It is registered in `places`: the partitions whose appends, and the share
    partitions whose changes make it check.
    """

    __slots__ = ("_is_ready", "_places")

    def __init__(
        self,
        places: Sequence[dict[FetchWaiter, None]],
        is_ready: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__((), 0, loop)
        self._places = places
        self._is_ready = is_ready

    async def wait(self, clock: Clock, deadline_ms: int) -> None:
        """Returns when it is ready, after the end of a partition, or at the deadline."""
        timer = clock.call_at(deadline_ms, self.wake)
        for place in self._places:
            place[self] = None
        try:
            await self._future
        finally:
            timer.cancel()
            for place in self._places:
                place.pop(self, None)

    def check(self) -> None:
        """Wakes the fetch if it is ready."""
        if not self._future.done() and self._is_ready():
            self.wake()
