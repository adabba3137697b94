"""Opens the client's cluster for a reader or a sink, and words its errors.

Owns how long these try to reach the first broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ....client.net.cluster import Cluster
from ....client.net.errors import ClientError, RequestTimedOut
from ....client.net.options import ClientOptions
from ....client.net.retry import retry
from ...backend import ReadError

START_PATIENCE_S = 10.0
"""Limit for reaching the first broker: shorter than other timeouts, since the usual cause is a wrong address."""


async def open_cluster(options: ClientOptions, patience_s: float = START_PATIENCE_S) -> Cluster:
    """Returns a started cluster. Raises ReadError, which names the addresses."""
    try:
        cluster = Cluster(options)
    except ClientError as error:  # a store of TLS that cannot be read on this machine
        raise ReadError(f"cannot connect to the brokers at {addresses(options)}: {error}") from error
    seconds = min(patience_s, options.default_api_timeout_ms / 1000)
    failures: list[ClientError] = []

    def late() -> ClientError:
        return failures[-1] if failures else RequestTimedOut("no response in time")

    try:
        await retry(cluster.start, cluster.retry_backoff_s, seconds, late=late, on_failure=failures.append)
    except ClientError as error:
        raise ReadError(f"cannot connect to the brokers at {addresses(options)}: {error}") from error
    return cluster


@contextlib.asynccontextmanager
async def connected(options: ClientOptions) -> AsyncIterator[Cluster]:
    """Opens a cluster and closes it at the end. Raises ReadError."""
    cluster = await open_cluster(options)
    try:
        yield cluster
    finally:
        await cluster.close()


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
