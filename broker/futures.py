"""Ends waits on futures, and waits for results that may be there already."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


def wake(future: asyncio.Future[None] | None) -> None:
    """Sets the result of the future unless it is None or done; its waiter may have been cancelled."""
    if future is not None and not future.done():
        future.set_result(None)


async def settled(result: T | asyncio.Future[T]) -> T:
    """Returns a result that is there already, or that of its future. Raises what the future raises."""
    return cast(T, await result if isinstance(result, asyncio.Future) else result)


def on_settled(future: asyncio.Future[Any], done: Callable[[BaseException | None], object]) -> None:
    """Calls `done` on the event loop with the error of the future, also its cancellation, or with None."""
    future.add_done_callback(lambda ended: done(asyncio.CancelledError() if ended.cancelled() else ended.exception()))


class Responses(Generic[T]):
    """Responses to requests, each identified by a token, whether they are there at once or later."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._there: dict[int, T] = {}
        self._waiting: dict[int, asyncio.Future[T]] = {}

    def __len__(self) -> int:
        return len(self._there) + len(self._waiting)

    def token(self) -> int:
        """Returns the identity of a new request."""
        return next(self._tokens)

    def respond(self, token: int, response: T) -> None:
        """Responds to a request."""
        future = self._waiting.pop(token, None)
        if future is None:
            self._there[token] = response
        elif not future.done():  # the client of a cancelled future has disconnected
            future.set_result(response)

    def take(self, token: int) -> T | asyncio.Future[T]:
        """Returns the response if it is there, else a future of it."""
        if token in self._there:
            return self._there.pop(token)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        return future

    def drop(self, token: int) -> None:
        """Forgets a request; one that waits for its response is cancelled."""
        self._there.pop(token, None)
        future = self._waiting.pop(token, None)
        if future is not None:
            future.cancel()
