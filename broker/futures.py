"""Ends waits on futures, and waits for results that may be there already."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

T = TypeVar("T")


def wake(future: asyncio.Future[None] | None) -> None:
    """Sets the result of the future unless it is None or done; its waiter may have been cancelled."""
    if future is not None and not future.done():
        future.set_result(None)


async def settled(result: T | asyncio.Future[T]) -> T:
    """Returns a result that is there already, or that of its future. Raises what the future raises."""
    return cast(T, await result if isinstance(result, asyncio.Future) else result)
