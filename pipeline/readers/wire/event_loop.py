"""An event loop for who is not asynchronous.

Owns running the client's coroutines from plain functions: in the caller's own thread, where the loop turns only while
it is asked to, or in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_CLOSE_SECONDS = 10.0


class Loop(Protocol):
    """Runs coroutines for one caller."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives or raises, when it is done."""
        ...

    def turn(self) -> None:
        """Lets go on what is under way, without waiting for anything."""
        ...

    def close(self) -> None:
        """Ends what is under way. May be called again."""
        ...


class OwnLoop:
    """In the caller's thread: nothing competes with who decodes, and what comes meanwhile waits in the system's
    buffers until the next turn."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def turn(self) -> None:
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def close(self) -> None:
        self._runner.close()


class ThreadLoop:
    """In a thread of its own: for a caller who has a running loop already, and for one who rarely comes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="ottla wire", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def turn(self) -> None:
        pass

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)


def loop_here() -> Loop:
    """A loop in this thread if that has none that runs, else one in another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return OwnLoop()
    return ThreadLoop()
