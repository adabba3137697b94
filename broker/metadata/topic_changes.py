"""Creates, extends and deletes topics in cooperative steps: thousands of partitions do not block the event loop.

Owns the changes in progress. A change completes even if its client disconnects, and before another change of the same
topic begins. A change is a generator that yields between steps; nothing here depends on topics or logs.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from ...protocol.records.steps import Steps
from ..cooperative import CooperativeScheduler, FewerCollections
from ..futures import wake

T = TypeVar("T")


class _Change:
    """A change in progress; `step` runs its next part."""

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
    """The changes in progress of one broker, by topic name. Before `attach` no change may yield."""

    def __init__(self) -> None:
        self._changes: dict[str, _Change] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduler: CooperativeScheduler | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop, scheduler: CooperativeScheduler) -> None:
        """Sets the event loop and the scheduler that run the steps."""
        self._loop, self._scheduler = loop, scheduler

    @property
    def under_way(self) -> list[asyncio.Task[None]]:
        """Tasks of the changes in progress, to be awaited at shutdown."""
        return list(self._tasks)

    async def make(self, name: str, steps: Steps[T]) -> T:
        """Runs a change of the topic after the one in progress; returns its result or raises its error."""
        while (before := self._changes.get(name)) is not None:
            assert before.done is not None
            await asyncio.shield(before.done)  # a cancelled waiter would cancel the future of the others
        change = _Change(steps)
        change.step()
        if not change.is_done:
            assert self._loop is not None
            self._changes[name] = change
            change.done = self._loop.create_future()
            task = self._loop.create_task(self._run(name, change))
            self._tasks.add(task)  # the loop itself keeps no reference
            task.add_done_callback(self._tasks.discard)
            await asyncio.shield(change.done)
        return change.result()

    async def _run(self, name: str, change: _Change) -> None:
        assert self._scheduler is not None and change.done is not None
        collections = FewerCollections()  # avoids a full garbage collection in a step
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
        """Runs the rest of a topic's change, or of all changes, before it returns."""
        for change in list(self._changes.values()) if name is None else [self._changes.get(name)]:
            while change is not None and not change.is_done:
                change.step()
