"""Repeats a call to a broker until it succeeds, fails for good, or its time is over.

A loop that needs more than this stays where it is: one that keeps partial results by key (`admin.calls`), or one whose
next step depends on a verdict about the error code (`producer.transactions.manager`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .errors import ClientError

T = TypeVar("T")


async def retry(
    attempt: Callable[[], Awaitable[T]],
    backoff_s: Callable[[int], float],
    timeout_s: float | None = None,
    *,
    attempts: int | None = None,
    late: Callable[[], ClientError] | None = None,
    on_failure: Callable[[ClientError], object] | None = None,
) -> T:
    """Returns the result of the first `attempt()` that raises no error.

    * A ClientError with `retriable` set is followed by another attempt after `backoff_s(n)` seconds, where n counts the
      failed attempts from 1 (`Cluster.retry_backoff_s`). Any other error is raised at once.
    * The last ClientError is raised when the next attempt would begin `timeout_s` seconds or more after the call, and
      after `attempts` attempts. Without either the call has no end of its own.
    * With `late`, an attempt that is still under way after `timeout_s` is cancelled, and `late()` is raised. Without it
      an attempt is never cut off: it is bounded by its own request timeout.
    * `on_failure(error)` runs after each retriable error, also after the last: there a stale coordinator or stale
      metadata is dropped.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout_s is None else loop.time() + timeout_s
    for count in itertools.count(1):
        try:
            async with asyncio.timeout_at(None if late is None else deadline):
                return await attempt()
        except TimeoutError:
            if late is None:
                raise
            raise late() from None
        except ClientError as error:
            if not error.retriable:
                raise
            if on_failure is not None:
                on_failure(error)
            delay_s = backoff_s(count)
            if count == attempts or (deadline is not None and loop.time() + delay_s >= deadline):
                raise
        await asyncio.sleep(delay_s)
    raise AssertionError("unreachable")
