"""Long work on the event loop, in cooperative steps: conversion of old formats, checks of large batches, reads of the
disk.

Owns the scheduling of steps. The work itself (`protocol.records.steps`) yields at the end of a step; between two steps
the loop serves other events. A long call into C runs in a thread. A few jobs run at once, in the order of their
submission, so that the memory they hold does not grow with the number of clients.
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

AT_ONCE = 4  # each job may hold a decompressed batch (64 MiB) and its copy in the other format

NEVER = INT32_MAX  # collections of younger objects before a full one

T = TypeVar("T")


class CooperativeScheduler:
    """Runs the long jobs of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at_once: int = AT_ONCE) -> None:
        self._loop = loop
        self._free = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._steps: deque[asyncio.Future[None]] = deque()

    async def run(self, steps: Steps[T]) -> T:
        """Runs a job and returns its result. Raises what the job raises. May be awaited by a handler, which may be
        cancelled.
        """
        await self._enter()
        try:
            # A generator has not started yet: a waiting job holds its input and nothing else.
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
        """Yields to the event loop. One step runs in each iteration of the loop, regardless of the number of jobs."""
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
        except BaseException:  # the client closed its connection
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
    """Switches full passes of the garbage collector off until every instance has ended.

    A full pass visits all objects without a pause. Requests with many entries create so many objects that full passes
    become frequent, and each one blocks the event loop for 100 ms. Passes over young objects still run, so that
    reference cycles do not accumulate.
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
        """Allows full passes again, unless another instance is active.

        Called explicitly: an instance in a reference cycle would be freed by a full pass only, and there are none.
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
    """Runs long jobs: a `CooperativeScheduler`, or one that also measures them."""

    async def run(self, steps: Steps[T]) -> T:
        """Runs a job and returns its result, as `CooperativeScheduler.run`."""
        ...


class TimedScheduler:
    """A scheduler that reports how long jobs block the event loop, in the unit of `timer`. Waits and work in threads do
    not count.
    """

    def __init__(self, scheduler: CooperativeScheduler, timer: Callable[[], int], took: Callable[[int], None]) -> None:
        self._scheduler = scheduler
        self._timer = timer
        self._took = took

    async def run(self, steps: Steps[T]) -> T:
        """Runs a job and returns its result, as `CooperativeScheduler.run`."""
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
    """Wraps a blocking call as a job for `CooperativeScheduler.run`, which runs it in a thread."""
    return (yield call)
