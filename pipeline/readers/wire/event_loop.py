"""Runs client coroutines from synchronous code.

Owns the event loops: one in the caller's thread, which runs only while it is called, and one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_CLOSE_SECONDS = 10.0


class OwnLoop:
    """Runs in the caller's thread, so that it does not compete with decoding; bytes that arrive meanwhile stay in the
    socket buffers."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end and returns its result or raises its error."""
        return self._loop.run_until_complete(work)

    def run_ready(self) -> None:
        """Runs the callbacks that are ready, without waiting."""
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()

    def close(self) -> None:
        """Cancels pending work. May be called again."""
        self._runner.close()


class ThreadLoop:
    """The same in a thread of its own, for a caller with a running event loop and for one that calls rarely."""

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

    def run_ready(self) -> None:
        pass

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)


Loop = OwnLoop | ThreadLoop


def loop_here() -> Loop:
    """Returns a loop in this thread, or in another one if this thread has a running event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return OwnLoop()
    return ThreadLoop()
