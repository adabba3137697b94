"""The requests that a running broker received: listed and awaited.

Requests come from the ring, and are decoded in another thread than the broker's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from .expectations import Expected, Verdict, verdict
from .seen_requests import SeenRequest, TopicNames
from .views import Unavailable

if TYPE_CHECKING:
    from ..network.server import Running
    from ..recording.ring import Ring

PAUSE_SECONDS = 0.01  # between two checks, so that a stream of requests does not cause one check each


class Look(NamedTuple):
    """The requests from a number on, oldest first. `forgotten` counts those that were evicted; `changes` is the ring's
    counter of changes."""

    seen: list[SeenRequest]
    forgotten: int
    changes: int


def ring_of(running: Running) -> Ring:
    """Returns the broker's ring of requests. Raises Unavailable."""
    if running.ring is None:
        raise Unavailable(
            "this broker was started without a control plane and keeps no requests; start it with --control"
        )
    return running.ring


def names_of(running: Running) -> TopicNames:
    """Returns the present topics by their ids."""
    return TopicNames({topic.id: topic.name for topic in running.state.topics})


def look(running: Running, since: int = 1) -> Look:
    """Returns the present requests. Runs on the broker's loop and decodes nothing. Raises Unavailable."""
    ring, names = ring_of(running), names_of(running)
    return Look([SeenRequest(one, names) for one in ring.list(since)], ring.forgotten(since), ring.changes)


async def judged(running: Running, expected: Expected, within_ms: int = 0) -> Verdict:
    """Returns the verdict of an expectation. If it failed, and further requests or responses could change that, waits
    for them up to `within_ms` of real time. Runs on the broker's loop. Raises Unavailable."""
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
