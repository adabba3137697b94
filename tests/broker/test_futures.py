"""`wake`: sets the result of a pending future."""

from __future__ import annotations

import asyncio

from ottla.broker.futures import wake


async def test_wake_of_a_pending_future_sets_its_result() -> None:
    future = asyncio.get_running_loop().create_future()
    wake(future)
    assert future.done() and future.result() is None


async def test_wake_of_a_done_cancelled_or_missing_future_does_nothing() -> None:
    done, cancelled = (asyncio.get_running_loop().create_future() for _ in range(2))
    done.set_result("first")
    cancelled.cancel()
    for future in (done, cancelled, None):
        wake(future)
    assert done.result() == "first" and cancelled.cancelled()
