"""Requests of transactions to coordinators, retried until a response decides. `state_machine.judge` has the meaning of
the error codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ...net.cluster import Cluster
from ...net.connection import Connection
from ...net.errors import ClientError, ConnectionLost, KafkaError
from .state_machine import Verdict

SOON_S = 0.02  # typical time to complete the previous transaction
COPIES_LIVE_S = 2.0  # time in which a request of a closed connection may still be appended
_RETRIED = (Verdict.AGAIN, Verdict.SOON, Verdict.MOVED)
Request = Callable[[Connection], Awaitable[tuple[int, Any]]]
"""Sends a request; returns the error code and the result."""


class Refused(Exception):
    """An error code that no retry can change."""

    def __init__(self, verdict: Verdict, code: int) -> None:
        super().__init__(str(KafkaError(code)))
        self.verdict = verdict
        self.code = code


async def until_decided(
    cluster: Cluster,
    key: tuple[str, int],
    send: Request,
    judge: Callable[[int], Verdict],
    *,
    what: str,
    deadline_s: float = float("inf"),
    is_wanted: Callable[[], bool] = lambda: True,
    on_retry: Callable[[ClientError], object] = lambda error: None,
) -> Any:
    """Sends a request to the coordinator of a key (and its type) until a response decides; returns its result.

    Returns None once it is no longer wanted. `on_retry` is called with each error that is followed by another attempt,
    and with the last one. Raises Refused, a fatal ClientError, and the last retriable one when the next attempt would
    begin after `deadline_s`, in the time of the event loop; `what` names the request in it.
    """
    loop = asyncio.get_running_loop()
    attempt = 0
    while is_wanted():
        verdict = Verdict.AGAIN
        try:
            left_s = None if deadline_s == float("inf") else max(0.001, deadline_s - loop.time())
            code, found = await send(await cluster.coordinator(*key, timeout_s=left_s))
            verdict = judge(code)
            if verdict is Verdict.DONE:
                return found
            if verdict not in _RETRIED:
                raise Refused(verdict, code)
            error: ClientError = KafkaError(code, what)
        except ClientError as failure:
            if not failure.retriable:
                raise
            error = failure
        if verdict is Verdict.MOVED or isinstance(error, ConnectionLost):
            cluster.expire_coordinator(*key)
        on_retry(error)
        attempt += 1
        delay_s = cluster.retry_backoff_s(attempt)
        if verdict is Verdict.SOON:
            delay_s = min(delay_s, SOON_S * 2 ** min(attempt - 1, 10))
        if loop.time() + delay_s >= deadline_s:
            raise error
        await asyncio.sleep(delay_s)
    return None
