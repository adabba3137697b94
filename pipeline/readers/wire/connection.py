"""Opens the client's cluster for a reader or a sink, calls it from synchronous code, and words its errors.

Owns how long these try to reach the first broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from ....client.net.cluster import Cluster
from ....client.net.errors import ClientError, RequestTimedOut
from ....client.net.options import ClientOptions
from ....client.net.retry import retry
from ...backend import ReadError
from .event_loop import Loop, loop_here

T = TypeVar("T")
START_PATIENCE_S = 10.0
"""Limit for reaching the first broker: shorter than other timeouts, since the usual cause is a wrong address."""


async def open_cluster(options: ClientOptions, patience_s: float = START_PATIENCE_S) -> Cluster:
    """Returns a started cluster. Raises ReadError, which names the addresses."""
    seconds = min(patience_s, options.default_api_timeout_ms / 1000)
    failures: list[ClientError] = []

    def late() -> ClientError:
        return failures[-1] if failures else RequestTimedOut("no response in time")

    try:
        cluster = Cluster(options)  # fails for a store of TLS that cannot be read on this machine
        await retry(cluster.start, cluster.retry_backoff_s, seconds, late=late, on_failure=failures.append)
    except ClientError as error:
        raise ReadError(f"cannot connect to the brokers at {addresses(options)}: {error}") from error
    return cluster


class ClusterCalls:
    """A cluster and the event loop for its calls, both opened on first use; a context manager. `patience_s` is the
    limit for the first broker. Calls in several threads need a `make_loop` of ThreadLoop."""

    def __init__(
        self,
        options: ClientOptions,
        patience_s: float = START_PATIENCE_S,
        make_loop: Callable[[], Loop] = loop_here,
    ) -> None:
        self._options = options
        self._patience_s = patience_s
        self._make_loop = make_loop
        self._loop: Loop | None = None
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` and returns its result. Raises ReadError if no broker can be reached, and the ClientError of
        `work`."""
        loop = self._loop = self._loop or self._make_loop()
        return loop.run(self._done(work))

    async def _done(self, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        # Within the loop, so that callers in several threads share one cluster.
        if self._cluster is None:
            cluster = await open_cluster(self._options, self._patience_s)
            if self._cluster is None:
                self._cluster = cluster
            else:
                await cluster.close()
        return await work(self._cluster)

    def read(self, failed: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs `work`, whose ClientError is raised as a ReadError that begins with `failed`."""
        try:
            return self.run(work)
        except ClientError as error:
            raise ReadError(f"{failed}: {self.with_brokers(error)}") from error

    def with_brokers(self, error: ClientError) -> str:
        """Returns the error's text with the brokers' addresses."""
        return str(error) if self._cluster is None else with_brokers(error, self._cluster)

    def close(self) -> None:
        """Closes the connections. May be called again; a later call connects again."""
        loop, self._loop = self._loop, None
        cluster, self._cluster = self._cluster, None
        if loop is not None:
            try:
                if cluster is not None:
                    loop.run(cluster.close())
            finally:
                loop.close()


def addresses(options: ClientOptions) -> str:
    """Returns the bootstrap addresses, for messages."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in options.addresses())


def with_brokers(error: ClientError, cluster: Cluster) -> str:
    """Returns the text of an error, with the brokers' addresses if it does not name one."""
    text = str(error)
    nodes = [f"{node.host}:{node.port}" for node in cluster.nodes.values()]
    if any(node in text for node in nodes):
        return text
    return f"{text} (brokers at {','.join(nodes[:5]) or addresses(cluster.options)})"
