"""Delayed fetches: a Fetch waits until its partitions have enough bytes, or until its time is over.

Owns the waiter and how an append wakes it. A waiter is an object in each of its partitions, not a task: without waiters
an append costs one check of an attribute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..futures import wake

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog
    from ..clock import Clock


class FetchedPartition(Protocol):
    """A partition whose appends and changes wake waiters."""

    waiters: dict[FetchWaiter, None]

    @property
    def log(self) -> PartitionLog: ...


class FetchWaiter:
    """Waits until `is_ready` returns True. It is registered in `places`: the waiters of the partitions and share
    partitions whose appends and changes make it check.
    """

    __slots__ = ("_future", "_is_ready", "_places")

    def __init__(
        self,
        places: Sequence[dict[FetchWaiter, None]],
        is_ready: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._places = places
        self._is_ready = is_ready
        self._future: asyncio.Future[None] = loop.create_future()

    async def wait(self, clock: Clock, deadline_ms: int) -> None:
        """Returns when it is ready, after a change of a partition, or at the deadline."""
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
        """Wakes the fetch if it is ready; called after an append."""
        # Not once it is woken: one of its partitions may have gone offline and has no log any more.
        if not self._future.done() and self._is_ready():
            self.wake()

    def wake(self) -> None:
        """Ends the wait now: the fetch reads again and returns what there is."""
        wake(self._future)


def bytes_waiter(
    partitions: Sequence[tuple[FetchedPartition, int, int]],
    min_bytes: int,
    loop: asyncio.AbstractEventLoop,
    *,
    committed: bool = False,
) -> FetchWaiter:
    """Returns a waiter until `partitions` [(partition, fetch offset, limit in bytes)] have `min_bytes` in all; with
    `committed`, only records below the last stable offset count.
    """

    def have_bytes() -> bool:
        need = min_bytes
        for partition, offset, max_bytes in partitions:
            need -= min(partition.log.available_bytes(offset, committed=committed), max_bytes)
            if need <= 0:
                return True
        return False

    return FetchWaiter([partition.waiters for partition, _, _ in partitions], have_bytes, loop)


def wake_all(waiters: Iterable[FetchWaiter]) -> None:
    """Ends all waits, as when a partition is deleted."""
    for waiter in list(waiters):
        waiter.wake()
