"""Repeats a request to a broker until it succeeds, fails with a fatal error, or times out.

Loops with more requirements are elsewhere: with partial results by key in `admin.calls`, with a decision by error code
in `producer.transactions.manager`.
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
    * With `late`, an attempt still running after `timeout_s` is cancelled, and `late()` is raised. Without it an
      attempt is not cancelled: it has its own request timeout.
    * `on_failure(error)` runs after each retriable error, also after the last: for dropping a stale coordinator or
      stale metadata.
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
