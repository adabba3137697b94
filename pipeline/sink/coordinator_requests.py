"""Requests to coordinators, retried until a response decides.

Owns the retries and their record; the client's table (`transactions.judge`) has the meaning of the error codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...client.net.cluster import TRANSACTION, Cluster
from ...client.net.connection import Connection
from ...client.net.errors import ClientError, ConnectionLost, KafkaError
from ...client.producer.transactions.state_machine import Call, TransactionStatus, Verdict, judge
from ..backend import ReadError
from ..readers.wire.connection import START_PATIENCE_S, open_cluster, with_brokers
from ..readers.wire.event_loop import Loop, loop_here
from .errors import SinkError
from .options import SinkOptions

__all__ = ["ClusterCalls", "Obstacles", "Refused", "call_until_decided"]

SOON_S = 0.02
"""The usual time to complete the previous transaction."""

T = TypeVar("T")
Request = Callable[[Connection], Awaitable[tuple[int, Any]]]


class Refused(Exception):
    """An error that no retry can change."""

    def __init__(self, verdict: Verdict, code: int) -> None:
        super().__init__(str(KafkaError(code)))
        self.verdict = verdict
        self.code = code


class Obstacles:
    """Obstacles that a request met before it succeeded: a lost connection, a transaction that was still completing."""

    def __init__(self) -> None:
        self.was_lost = False
        self.was_pending = False


class ClusterCalls:
    """A cluster and the event loop for its calls, opened on first use. `patience_s` is the limit for the first
    broker."""

    def __init__(self, options: SinkOptions, patience_s: float = START_PATIENCE_S) -> None:
        self._options = options
        self._patience_s = patience_s
        self._loop: Loop | None = None
        self._cluster: Cluster | None = None

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` and returns its result. Raises SinkError if no broker can be reached, and the ClientError of
        `work`."""
        if self._loop is None:
            self._loop = loop_here()
        if self._cluster is None:
            try:
                self._cluster = self._loop.run(open_cluster(self._options.client, self._patience_s))
            except ReadError as error:
                raise SinkError(str(error)) from error.__cause__
        return self._loop.run(work(self._cluster))

    def with_brokers(self, error: ClientError) -> str:
        """Returns the error's text with the brokers' addresses."""
        return str(error) if self._cluster is None else with_brokers(error, self._cluster)

    def close(self) -> None:
        """Closes the connections. May be called again."""
        loop, self._loop = self._loop, None
        cluster, self._cluster = self._cluster, None
        if loop is not None:
            try:
                if cluster is not None:
                    loop.run(cluster.close())
            finally:
                loop.close()


async def call_until_decided(
    cluster: Cluster,
    key: str,
    send: Request,
    status: TransactionStatus,
    call: Call,
    patience_s: float,
    kind: int = TRANSACTION,
    obstacles: Obstacles | None = None,
) -> Any:
    """Sends a request to the coordinator of `key` until a response decides, and returns its result.

    Retries after a lost response and after retriable errors; `obstacles` records them. Raises
    Refused for a final error, and the last ClientError after `patience_s`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    attempt = 0
    obstacles = obstacles or Obstacles()
    while True:
        verdict = Verdict.AGAIN
        try:
            left_s = max(0.001, deadline - loop.time())
            connection = await cluster.coordinator(key, kind, timeout_s=left_s)
            code, found = await send(connection)
            verdict = judge(status, call, code)
            if verdict is Verdict.DONE:
                return found
            error: ClientError = KafkaError(code, call.value)
            if verdict not in (Verdict.AGAIN, Verdict.SOON, Verdict.MOVED):
                raise Refused(verdict, code)
        except ClientError as failure:
            if not failure.retriable:
                raise
            error = failure
        obstacles.was_lost |= isinstance(error, ConnectionLost)
        obstacles.was_pending |= verdict is Verdict.SOON
        if verdict is Verdict.MOVED or isinstance(error, ConnectionLost):
            cluster.expire_coordinator(key, kind)
        attempt += 1
        delay_s = cluster.retry_backoff_s(attempt)
        if verdict is Verdict.SOON:
            delay_s = min(delay_s, SOON_S * 2 ** min(attempt - 1, 10))
        if loop.time() + delay_s >= deadline:
            raise error
        await asyncio.sleep(delay_s)
