"""Topics that are created, grown or deleted in cooperative steps, so that thousands of partitions hold nobody up.

Owns which changes are under way. A change that has begun goes on when its client has gone, and ends before another one
of the same topic begins. Knows neither topics nor logs: a change is a generator that yields between steps.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from ...protocol.records.steps import Steps
from ..cooperative import CooperativeScheduler, FewerCollections
from ..futures import wake

T = TypeVar("T")


class _Change:
    """One change; `step` does the next part of it."""

    def __init__(self, steps: Steps[Any]) -> None:
        self._steps = steps
        self._result: Any = None
        self._error: Exception | None = None
        self.is_done = False
        self.done: asyncio.Future[None] | None = None

    def step(self) -> None:
        try:
            next(self._steps)
        except StopIteration as stop:
            self._result, self.is_done = stop.value, True
        except Exception as error:
            self._error, self.is_done = error, True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class TopicChanges:
    """The changes of one broker's topics, by name. Without `attach` nothing can be made in steps."""

    def __init__(self) -> None:
        self._changes: dict[str, _Change] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduler: CooperativeScheduler | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop, scheduler: CooperativeScheduler) -> None:
        """Steps are made on this loop."""
        self._loop, self._scheduler = loop, scheduler

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        """What is to be awaited until all changes have been made."""
        return list(self._tasks)

    async def make(self, name: str, steps: Steps[T]) -> T:
        """Makes a change of the topic, after the one that is under way; its result. Raises what it raises."""
        while (before := self._changes.get(name)) is not None:
            assert before.done is not None
            await before.done
        change = _Change(steps)
        change.step()
        if not change.is_done:
            assert self._loop is not None
            self._changes[name] = change
            change.done = self._loop.create_future()
            task = self._loop.create_task(self._go_on(name, change))
            self._tasks.add(task)  # the loop itself keeps no reference
            task.add_done_callback(self._tasks.discard)
            await change.done
        return change.result()

    async def _go_on(self, name: str, change: _Change) -> None:
        assert self._scheduler is not None and change.done is not None
        collections = FewerCollections()  # thousands of new partitions would bring a full pass amid a step
        try:
            while not change.is_done:
                await self._scheduler.step()
                if not change.is_done:
                    change.step()
        finally:
            collections.end()
        self._changes.pop(name, None)
        wake(change.done)

    def finish(self, name: str | None = None) -> None:
        """Makes the rest of a topic's change, or of all of them, before it returns."""
        for change in list(self._changes.values()) if name is None else [self._changes.get(name)]:
            while change is not None and not change.is_done:
                change.step()
