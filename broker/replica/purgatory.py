"""Long polls: a fetch that waits until its partitions hold enough bytes, or its time is up.

Owns the waiter object and how an append wakes it. A waiter is an object on each partition it watches, not a task: an
append costs one attribute check where nobody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..futures import wake

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog
    from ..clock import Clock


class Watched(Protocol):
    """A partition that an append or a change wakes waiters of."""

    waiters: dict[FetchWaiter, None]

    @property
    def log(self) -> PartitionLog: ...


class FetchWaiter:
    """Waits for `min_bytes` in all, over `watched` [(partition, fetch offset, bytes that count at most)]; with
    `committed` for what lies below the last stable offsets."""

    __slots__ = ("_committed", "_future", "_min_bytes", "_watched")

    def __init__(
        self,
        watched: Sequence[tuple[Watched, int, int]],
        min_bytes: int,
        loop: asyncio.AbstractEventLoop,
        *,
        committed: bool = False,
    ) -> None:
        self._committed = committed
        self._watched = watched
        self._min_bytes = min_bytes
        self._future: asyncio.Future[None] = loop.create_future()

    async def wait(self, clock: Clock, deadline_ms: int) -> None:
        """Returns when there is enough, when something about a partition changed, or at the deadline."""
        timer = clock.call_at(deadline_ms, self.wake)
        for partition, _, _ in self._watched:
            partition.waiters[self] = None
        try:
            await self._future
        finally:
            timer.cancel()
            for partition, _, _ in self._watched:
                partition.waiters.pop(self, None)

    def check(self) -> None:
        """Called after an append to a watched partition."""
        if self._future.done():  # woken already, maybe as one of the others went offline, whose log is no more
            return
        need = self._min_bytes
        for partition, offset, max_bytes in self._watched:
            need -= min(partition.log.available_bytes(offset, committed=self._committed), max_bytes)
            if need <= 0:
                self.wake()
                return

    def wake(self) -> None:
        """Ends the wait now: the fetch reads once more and answers whatever there is."""
        wake(self._future)


def wake_all(waiters: Iterable[FetchWaiter]) -> None:
    """Ends every wait, as when a partition goes away."""
    for waiter in list(waiters):
        waiter.wake()
