"""Blocking calls of the client, each in a thread of its own, and futures that nothing awaits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def mark_retrieved(future: asyncio.Future[Any]) -> None:
    """Marks the exception of a future as retrieved, so that asyncio does not log one that is never awaited; a callback
    of the future."""
    if not future.cancelled():
        future.exception()


async def in_thread(work: Callable[[], T], name: str) -> T:
    """Runs `work` in a new thread. Returns its result, or raises its exception; a caller that is cancelled leaves the
    thread to its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(deliver: Callable[[], None]) -> None:
        if not future.done():
            deliver()

    def run() -> None:
        try:
            result = work()
            deliver: Callable[[], None] = lambda: future.set_result(result)  # noqa: E731
        except Exception as error:
            raised = error
            deliver = lambda: future.set_exception(raised)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done, deliver)

    # Not a thread of the loop's executor: asyncio waits for these at the end, also for a server that is silent.
    threading.Thread(target=run, name=name, daemon=True).start()
    return await future
