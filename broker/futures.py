"""Ends waits on futures."""

from __future__ import annotations

import asyncio


def wake(future: asyncio.Future[None] | None) -> None:
    """Sets the result of the future unless there is none or it is done; the waiter may have been cancelled."""
    if future is not None and not future.done():
        future.set_result(None)
