"""Creates the internal topics of streams applications (KIP-1071).

A heartbeat that misses topics begins to create them, and does not wait. A failure is kept for a while, for the statuses
of the next heartbeats; meanwhile the topic is not tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ...clock import Clock
from .values import InternalTopic

ERRORS_MAX = 1000
"""Failures that are kept: bounds the memory."""


class InternalTopics:
    """Topics that are being created, and those that could not be."""

    def __init__(self, create: Callable[[Sequence[InternalTopic]], Awaitable[dict[str, str]]], clock: Clock) -> None:
        """`create` creates topics that do not exist, and returns the texts of those that failed by name."""
        self._create = create
        self._clock = clock
        self._in_flight: set[str] = set()
        self._errors: dict[str, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Returns why topics could not be created, by name."""
        now_ms = self._clock.now_ms()
        found = {name: self._errors[name] for name in names if name in self._errors}
        return {name: text for name, (text, until_ms) in found.items() if now_ms < until_ms}

    def begin(self, topics: Sequence[InternalTopic], *, lasting_ms: int) -> None:
        """Begins to create topics; failures are kept for `lasting_ms`."""
        failed = self.errors(topic.name for topic in topics)
        new = [topic for topic in topics if topic.name not in failed and topic.name not in self._in_flight]
        if new:
            self._in_flight.update(topic.name for topic in new)
            task = asyncio.get_running_loop().create_task(self._run(new, lasting_ms))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, topics: Sequence[InternalTopic], lasting_ms: int) -> None:
        try:
            failed = await self._create(topics)
        finally:
            self._in_flight.difference_update(topic.name for topic in topics)
        until_ms = self._clock.now_ms() + lasting_ms
        for name, text in failed.items():
            self._errors.pop(name, None)
            if len(self._errors) >= ERRORS_MAX:
                del self._errors[next(iter(self._errors))]
            self._errors[name] = text, until_ms
