"""Long work on the event loop, done in turns: conversions of old formats, checks of large batches, looks at the disk.

Owns how steps become turns. The work itself (`protocol.records.steps`) says where a step ends; between two steps the
loop serves whoever is ready. A long call into C runs in a thread meanwhile. Few works run at once, in the order in
which they came, so that what they hold in memory does not grow with the number of clients.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from ..protocol.limits import INT32_MAX
from ..protocol.records.steps import Steps
from .futures import wake

AT_ONCE = 4  # each may hold a decompressed batch (64 MiB) and its copy in the other format

NEVER = INT32_MAX  # collections of younger objects before a full one

T = TypeVar("T")


class CooperativeScheduler:
    """The long works of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at_once: int = AT_ONCE) -> None:
        self._loop = loop
        self._free = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._steps: deque[asyncio.Future[None]] = deque()

    async def run(self, steps: Steps[T]) -> T:
        """The result of the work. Raises what it raises. May be awaited by a handler, and may be abandoned there."""
        await self._enter()
        try:
            # Lazy until here: work that waits for its turn holds its input and nothing else.
            try:
                work = next(steps)
                while True:
                    if work is None:
                        work = steps.send(await self.step())
                        continue
                    try:
                        result = await self._loop.run_in_executor(None, work)
                    except Exception as error:
                        work = steps.throw(error)
                    else:
                        work = steps.send(result)
            except StopIteration as done:
                return done.value
            finally:
                steps.close()
        finally:
            self._leave()

    async def step(self) -> None:
        """Yields to the event loop. However much long work there is, one step of it runs in each iteration."""
        begins = self._loop.create_future()
        self._steps.append(begins)
        if len(self._steps) == 1:
            self._loop.call_soon(self._next_step)
        await begins

    def _next_step(self) -> None:
        wake(self._steps.popleft())
        if self._steps:
            self._loop.call_soon(self._next_step)

    async def _enter(self) -> None:
        if self._free:
            self._free -= 1
            return
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except BaseException:  # the client is gone
            if waiting.done():
                self._leave()
            else:
                self._waiting.remove(waiting)
            raise

    def _leave(self) -> None:
        if self._waiting:
            wake(self._waiting.popleft())
        else:
            self._free += 1


class FewerCollections:
    """Until each of these has ended, the garbage collector makes no full passes.

    A full pass goes over all objects in one go. Requests with many entries make so many that passes come often, and
    hold the event loop for 100 ms each. Passes over young objects go on, so that cycles do not pile up meanwhile.
    """

    __slots__ = ("_has_ended",)
    _alive = 0
    _before = gc.get_threshold()

    def __init__(self) -> None:
        self._has_ended = False
        if FewerCollections._alive == 0:
            FewerCollections._before = gc.get_threshold()
            gc.set_threshold(*FewerCollections._before[:2], NEVER)
        FewerCollections._alive += 1

    def end(self) -> None:
        """Allows full passes again, once no other is left.

        It is called and not left to the garbage collector: a request that is part of a reference cycle would be freed
        by a full pass only, of which there are none.
        """
        if self._has_ended:
            return
        self._has_ended = True
        FewerCollections._alive -= 1
        if FewerCollections._alive == 0:
            gc.set_threshold(*FewerCollections._before)

    def __del__(self) -> None:
        self.end()


class Cooperative(Protocol):
    """Who has long work done."""

    async def run(self, steps: Steps[T]) -> T:
        """As of `CooperativeScheduler`."""
        ...


class TimedScheduler:
    """Turns of which somebody is told how long they hold the loop, in the unit of `timer`; waits and threads do not."""

    def __init__(self, scheduler: CooperativeScheduler, timer: Callable[[], int], took: Callable[[int], None]) -> None:
        self._scheduler = scheduler
        self._timer = timer
        self._took = took

    async def run(self, steps: Steps[T]) -> T:
        """As of `CooperativeScheduler`."""
        try:
            return await self._scheduler.run(self._timed(steps))
        finally:
            steps.close()

    def _timed(self, steps: Steps[T]) -> Steps[T]:
        do: Callable[[], Any] = partial(next, steps)
        while True:
            begun = self._timer()
            try:
                work = do()
            except StopIteration as done:
                return done.value
            finally:
                self._took(self._timer() - begun)
            try:
                do = partial(steps.send, (yield work))
            except Exception as error:
                do = partial(steps.throw, error)


def in_thread(call: Callable[[], T]) -> Steps[T]:
    """One call that waits for the disk, as work for `CooperativeScheduler.run`: made in a thread."""
    return (yield call)
