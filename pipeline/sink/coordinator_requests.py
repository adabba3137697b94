"""Requests to coordinators, asked again until there is an answer that decides.

Owns the tries and what became of them; what an answer means is the client's table (`transactions.judge`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...client.net.cluster import TRANSACTION, Cluster
from ...client.net.connection import Connection
from ...client.net.errors import ClientError, ConnectionLost, KafkaError
from ...client.producer.transactions.state_machine import Call, Standing, Verdict, judge
from ..backend import ReadError
from ..readers.wire.connection import START_PATIENCE_S, open_cluster, told
from ..readers.wire.event_loop import Loop, loop_here
from .errors import SinkError
from .options import SinkOptions

__all__ = ["Asker", "Met", "Refused", "ask_until"]

SOON_S = 0.02
"""How long it takes to complete the transaction before, about."""

T = TypeVar("T")
Ask = Callable[[Connection], Awaitable[tuple[int, Any]]]


class Refused(Exception):
    """An answer that no later try mends."""

    def __init__(self, verdict: Verdict, code: int) -> None:
        super().__init__(str(KafkaError(code)))
        self.verdict = verdict
        self.code = code


class Met:
    """What happened to a request before it was answered as it should be."""

    def __init__(self) -> None:
        self.was_lost = False
        self.was_pending = False


class Asker:
    """A cluster, and a loop to ask it in; opened when it is first used. `patience_s` is for the first broker."""

    def __init__(self, options: SinkOptions, patience_s: float = START_PATIENCE_S) -> None:
        self._options = options
        self._patience_s = patience_s
        self._loop: Loop | None = None
        self._cluster: Cluster | None = None

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """What the work gives. Raises SinkError: no broker can be reached; ClientError as the work does."""
        if self._loop is None:
            self._loop = loop_here()
        if self._cluster is None:
            try:
                self._cluster = self._loop.run(open_cluster(self._options.client, self._patience_s))
            except ReadError as error:
                raise SinkError(str(error)) from error.__cause__
        return self._loop.run(work(self._cluster))

    def told(self, error: ClientError) -> str:
        """The error with the brokers that it came from."""
        return str(error) if self._cluster is None else told(error, self._cluster)

    def close(self) -> None:
        """Ends the connections. May be called again."""
        loop, self._loop = self._loop, None
        cluster, self._cluster = self._cluster, None
        if loop is not None:
            try:
                if cluster is not None:
                    loop.run(cluster.close())
            finally:
                loop.close()


async def ask_until(
    cluster: Cluster,
    key: str,
    ask: Ask,
    standing: Standing,
    call: Call,
    patience_s: float,
    kind: int = TRANSACTION,
    met: Met | None = None,
) -> Any:
    """What `ask` found, asked of the coordinator of `key`, however often its answer is lost or says "not now".

    `met` is told of it: whether a connection was lost, whether the transaction before was being completed. Raises
    Refused for an answer that decides otherwise, and the last ClientError when patience is over.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    attempt = 0
    met = met or Met()
    while True:
        verdict = Verdict.AGAIN
        try:
            left_s = max(0.001, deadline - loop.time())
            connection = await cluster.coordinator(key, kind, timeout_s=left_s)
            code, found = await ask(connection)
            verdict = judge(standing, call, code)
            if verdict is Verdict.DONE:
                return found
            error: ClientError = KafkaError(code, call.value)
            if verdict not in (Verdict.AGAIN, Verdict.SOON, Verdict.MOVED):
                raise Refused(verdict, code)
        except ClientError as failure:
            if not failure.retriable:
                raise
            error = failure
        met.was_lost |= isinstance(error, ConnectionLost)
        met.was_pending |= verdict is Verdict.SOON
        if verdict is Verdict.MOVED or isinstance(error, ConnectionLost):
            cluster.expire_coordinator(key, kind)
        attempt += 1
        delay_s = cluster.retry_backoff_s(attempt)
        if verdict is Verdict.SOON:
            delay_s = min(delay_s, SOON_S * 2 ** min(attempt - 1, 10))
        if loop.time() + delay_s >= deadline:
            raise error
        await asyncio.sleep(delay_s)
