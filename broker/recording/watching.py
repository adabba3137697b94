"""The requests that a running broker saw: looking at them, waiting for more, and the view that tests have.

Owns the way to the ring. What is decoded is decoded in another thread than the broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from .expectations import Expected, Verdict, Words, verdict
from .seen import SeenRequest, TopicNames

if TYPE_CHECKING:
    from ..server import Running
    from .ring import Ring

PAUSE_SECONDS = 0.01  # between two looks, while many requests come


class NotKept(Exception):
    """This broker keeps no requests."""


class Look(NamedTuple):
    """Requests from a number on, oldest first; `forgotten` others had to go. `changes` is the ring's."""

    seen: list[SeenRequest]
    forgotten: int
    changes: int


def ring_of(running: Running) -> Ring:
    """What a broker keeps. Raises NotKept."""
    if running.ring is None:
        raise NotKept("this broker was started without a control plane, and keeps no requests")
    return running.ring


def names_of(running: Running) -> TopicNames:
    """The topics that there are now, by their ids."""
    return TopicNames({topic.id: topic.name for topic in running.state.topics})


def look(running: Running, since: int = 1) -> Look:
    """The requests as they are now. On the broker's loop; decodes nothing. Raises NotKept."""
    ring, names = ring_of(running), names_of(running)
    return Look([SeenRequest(one, names) for one in ring.list(since)], ring.forgotten(since), ring.changes)


async def judged(running: Running, expected: Expected, within_ms: int = 0) -> Verdict:
    """Holds what was seen against an expectation; where more requests, or answers, may make it so, waits for them up to
    `within_ms` of real time. On the broker's loop. Raises NotKept."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_ms / 1000
    known: dict[int, SeenRequest] = {}
    while True:
        found = look(running, expected.which.since)
        seen = [_known(one, known) for one in found.seen]
        told = await asyncio.to_thread(verdict, expected, seen, found.forgotten)
        left = deadline - loop.time()
        if told.passed or not told.may_come or left <= 0:
            return told
        await ring_of(running).changed(found.changes, left)
        await asyncio.sleep(min(PAUSE_SECONDS, max(0.0, left)))


def _known(seen: SeenRequest, known: dict[int, SeenRequest]) -> SeenRequest:
    """The same request as it was decoded before, if it has not changed since."""
    before = known.get(seen.number)
    if before is not None and before.exchange is seen.exchange:
        return before
    known[seen.number] = seen
    return seen


class RequestsView:
    """The requests of a broker in another thread: `broker.requests(api="Produce")` lists them."""

    def __init__(self, call: Callable[[Callable[[Running], Awaitable[Any]]], Any]) -> None:
        self._call = call

    def __call__(self, **words: Unpack[Words]) -> list[SeenRequest]:
        """Those that are as all words say that are no counts, oldest first. Raises ValueError, TypeError."""
        wanted = Expected.filter(**words)

        async def work(running: Running) -> Look:
            return look(running, wanted.which.since)

        return [one for one in self._call(work).seen if wanted.is_met_by(one)]

    def mark(self) -> int:
        """The number that the next request will have: `since=` it leaves out all that came before."""

        async def work(running: Running) -> int:
            return ring_of(running).next_number

        return self._call(work)

    def clear(self) -> None:
        """Forgets all that were seen."""

        async def work(running: Running) -> int:
            return ring_of(running).clear()

        self._call(work)

    def judge(self, within_ms: int, words: Words) -> Verdict:
        """Holds them against an expectation. Raises ValueError, TypeError."""
        expected = Expected.of(**words)

        async def work(running: Running) -> Verdict:
            return await judged(running, expected, within_ms)

        return self._call(work)
