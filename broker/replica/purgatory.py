"""Delayed fetches: a Fetch waits until its partitions have enough bytes, or until its time is over.

Owns the waiter and how an append wakes it. A waiter is an object in each of its partitions, not a task: without waiters
an append costs one check of an attribute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
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
    """Waits until `partitions` [(partition, fetch offset, limit in bytes)] have `min_bytes` in all; with `committed`,
    only records below the last stable offset count.
    """

    __slots__ = ("_committed", "_future", "_min_bytes", "_partitions")

    def __init__(
        self,
        partitions: Sequence[tuple[FetchedPartition, int, int]],
        min_bytes: int,
        loop: asyncio.AbstractEventLoop,
        *,
        committed: bool = False,
    ) -> None:
        self._committed = committed
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._future: asyncio.Future[None] = loop.create_future()

    async def wait(self, clock: Clock, deadline_ms: int) -> None:
        """Returns when there are enough bytes, after a change of a partition, or at the deadline."""
        timer = clock.call_at(deadline_ms, self.wake)
        for partition, _, _ in self._partitions:
            partition.waiters[self] = None
        try:
            await self._future
        finally:
            timer.cancel()
            for partition, _, _ in self._partitions:
                partition.waiters.pop(self, None)

    def check(self) -> None:
        """Wakes the fetch if there are enough bytes; called after an append."""
        if self._future.done():  # another partition may have gone offline and has no log any more
            return
        need = self._min_bytes
        for partition, offset, max_bytes in self._partitions:
            need -= min(partition.log.available_bytes(offset, committed=self._committed), max_bytes)
            if need <= 0:
                self.wake()
                return

    def wake(self) -> None:
        """Ends the wait now: the fetch reads again and returns what there is."""
        wake(self._future)


def wake_all(waiters: Iterable[FetchWaiter]) -> None:
    """Ends all waits, as when a partition is deleted."""
    for waiter in list(waiters):
        waiter.wake()
