"""The clock, the topology and the requests of a broker in another thread, each to be called and to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec, TypeVar, Unpack

from ..admin_api.clock import ClockControl
from ..admin_api.expectations import Expected, Verdict, Words
from ..admin_api.operations import Operations
from ..admin_api.requests import judged, look, ring_of
from ..admin_api.seen_requests import SeenRequest
from ..admin_api.views import NotFound
from ..metadata.topology import Topology
from .calls import Awaited, Blocking, operation

P = ParamSpec("P")
R = TypeVar("R")


# The clock


def _moving(method: Callable[Concatenate[ClockControl, P], Awaitable[R]]) -> operation[P, R]:
    """Returns a method of the clock as an operation that excludes other operations on the whole state."""

    async def work(operations: Operations, *args: P.args, **kwargs: P.kwargs) -> R:
        return await operations.moving(lambda clock: method(clock, *args, **kwargs))

    return operation(work, described=method)


class _ClockCalls:
    state = _moving(ClockControl.state)
    freeze = _moving(ClockControl.freeze)
    run = _moving(ClockControl.run)
    set = _moving(ClockControl.set)
    advance = _moving(ClockControl.advance)


class ClockView(_ClockCalls, Blocking):
    """`ClockControl` for another thread: each method returns when it is done."""

    @property
    def now_ms(self) -> int:
        """The broker's time, in ms since 1970."""
        return self.state().now_ms

    @property
    def is_frozen(self) -> bool:
        """Whether the clock is frozen."""
        return self.state().is_frozen

    @property
    def offset_ms(self) -> int:
        """How far the clock is ahead of the machine's."""
        return self.state().offset_ms


class AsyncClockView(_ClockCalls, Awaited):
    """`ClockControl` for coroutines of another loop."""


# The topology


def _at_topology(method: Callable[Concatenate[Topology, P], R]) -> operation[P, R]:
    async def work(operations: Operations, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(operations.topology, *args, **kwargs)

    return operation(work, described=method)


async def _leader(operations: Operations, topic: str, partition: int = 0) -> int:
    """Returns the node that leads a partition; -1 if none does. Raises NotFound."""
    for one in operations.topology.describe().partitions:
        if (one.topic, one.partition) == (topic, partition):
            return one.leader
    raise NotFound(f"UNKNOWN_TOPIC_OR_PARTITION: there is no {topic}-{partition}")


class _TopologyCalls:
    describe = _at_topology(Topology.describe)
    leader = operation(_leader)
    move_leader = _at_topology(Topology.move_leader)
    take_offline = _at_topology(Topology.take_offline)
    bring_online = _at_topology(Topology.bring_online)
    stop_node = _at_topology(Topology.stop_node)
    start_node = _at_topology(Topology.start_node)
    spread_leaders = _at_topology(Topology.spread_leaders)


class TopologyFacade(_TopologyCalls, Blocking):
    """The nodes and leaders of a broker, for another thread: each change is complete when its method returns. Raises
    TopologyError, a ValueError, for an impossible change."""


class AsyncTopologyFacade(_TopologyCalls, Awaited):
    """`TopologyFacade` for coroutines of another loop."""


# Requests


async def _requested(operations: Operations, **words: Unpack[Words]) -> list[SeenRequest]:
    """Returns the requests that match all words, oldest first; words that count are refused. Raises ValueError,
    TypeError, Unavailable."""
    wanted = Expected.filter(**words)
    found = look(operations.running, wanted.which.since)
    return await asyncio.to_thread(lambda: [one for one in found.seen if wanted.is_met_by(one)])


async def _mark(operations: Operations) -> int:
    """Returns the number that the next request will have; with `since=` it excludes all earlier requests."""
    return ring_of(operations.running).next_number


async def _clear(operations: Operations) -> None:
    """Removes all requests."""
    ring_of(operations.running).clear()


async def judged_words(operations: Operations, *, within_ms: int = 0, **words: Unpack[Words]) -> Verdict:
    """`judged` with the words as arguments. Raises ValueError, TypeError, Unavailable."""
    return await judged(operations.running, Expected.of(**words), within_ms)


class _RequestCalls:
    __call__ = operation(_requested)
    mark = operation(_mark)
    clear = operation(_clear)


class RequestsView(_RequestCalls, Blocking):
    """The requests of a broker in another thread: `broker.requests(api="Produce")` lists them."""


class AsyncRequestsView(_RequestCalls, Awaited):
    """`RequestsView` for coroutines of another loop: `await broker.requests(api="Produce")`."""
