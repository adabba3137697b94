"""The requests that a running broker received: listed, awaited, and as the view that tests use.

Requests come from the ring, and are decoded in another thread than the broker's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Unpack

from ...protocol.named import NamedTuple
from .calls import Awaited, Blocking, Caller, operation
from .expectations import Expected, Verdict, Words, verdict
from .seen_requests import SeenRequest, TopicNames

if TYPE_CHECKING:
    from ..network.server import Running
    from ..recording.ring import Ring
    from .operations import Operations

PAUSE_SECONDS = 0.01  # between two checks, so that a stream of requests does not cause one check each


class NotKept(Exception):
    """This broker keeps no requests."""


class Look(NamedTuple):
    """The requests from a number on, oldest first. `forgotten` counts those that were evicted; `changes` is the ring's
    counter of changes."""

    seen: list[SeenRequest]
    forgotten: int
    changes: int


def ring_of(running: Running) -> Ring:
    """Returns the broker's ring of requests. Raises NotKept."""
    if running.ring is None:
        raise NotKept("this broker was started without a control plane and keeps no requests; start it with --control")
    return running.ring


def names_of(running: Running) -> TopicNames:
    """Returns the present topics by their ids."""
    return TopicNames({topic.id: topic.name for topic in running.state.topics})


def look(running: Running, since: int = 1) -> Look:
    """Returns the present requests. Runs on the broker's loop and decodes nothing. Raises NotKept."""
    ring, names = ring_of(running), names_of(running)
    return Look([SeenRequest(one, names) for one in ring.list(since)], ring.forgotten(since), ring.changes)


async def judged(running: Running, expected: Expected, within_ms: int = 0) -> Verdict:
    """Returns the verdict of an expectation. If it failed, and further requests or responses could change that, waits
    for them up to `within_ms` of real time. Runs on the broker's loop. Raises NotKept."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_ms / 1000
    known: dict[int, SeenRequest] = {}
    while True:
        found = look(running, expected.which.since)
        seen = [_known(one, known) for one in found.seen]
        result = await asyncio.to_thread(verdict, expected, seen, found.forgotten)
        left = deadline - loop.time()
        if result.passed or not result.may_come or left <= 0:
            return result
        await ring_of(running).changed(found.changes, left)
        await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, left)))


def _known(seen: SeenRequest, known: dict[int, SeenRequest]) -> SeenRequest:
    """Returns the earlier object of the same request, which may be decoded already; the new one if the exchange has
    changed."""
    before = known.get(seen.number)
    if before is not None and before.exchange is seen.exchange:
        return before
    known[seen.number] = seen
    return seen


async def requested(operations: Operations, **words: Unpack[Words]) -> list[SeenRequest]:
    """Returns the requests that match all words, oldest first; words that count are refused. Raises ValueError,
    TypeError, NotKept."""
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
    """`judged` with the words as arguments. Raises ValueError, TypeError, NotKept."""
    return await judged(operations.running, Expected.of(**words), within_ms)


class _RequestCalls:
    mark = operation(_mark)
    """Returns the number that the next request will have; with `since=` it excludes all earlier requests."""
    clear = operation(_clear)
    """Removes all requests."""
    _listed = operation(requested)

    def __init__(self, caller: Caller) -> None:
        self.caller = caller


class RequestsView(_RequestCalls, Blocking):
    """The requests of a broker in another thread: `broker.requests(api="Produce")` lists them."""

    def __call__(self, **words: Unpack[Words]) -> list[SeenRequest]:
        """Returns the requests that match all words, oldest first; words that count are refused. Raises ValueError,
        TypeError."""
        return self._listed(**words)


class AsyncRequestsView(_RequestCalls, Awaited):
    """`RequestsView` for coroutines of another loop: `await broker.requests(api="Produce")`."""

    async def __call__(self, **words: Unpack[Words]) -> list[SeenRequest]:
        """Returns the requests that match all words, oldest first; words that count are refused. Raises ValueError,
        TypeError."""
        return await self._listed(**words)
