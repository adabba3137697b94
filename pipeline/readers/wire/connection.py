"""The client's view of a cluster, opened for a reader or a sink, and its errors as sentences.

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
"""For the first broker to be reached: less than for any other answer, since mostly the address is wrong."""


async def open_cluster(options: ClientOptions, patience_s: float = START_PATIENCE_S) -> Cluster:
    """A started cluster. Raises ReadError, which names the addresses."""
    cluster = Cluster(options)
    seconds = min(patience_s, options.default_api_timeout_ms / 1000)
    failures: list[ClientError] = []

    def late() -> ClientError:
        return failures[-1] if failures else RequestTimedOut("no answer in time")

    try:
        await retry(cluster.start, cluster.retry_backoff_s, seconds, late=late, on_failure=failures.append)
    except ClientError as error:
        raise ReadError(f"the brokers at {addresses(options)} cannot be asked: {error}") from error
    return cluster


@contextlib.asynccontextmanager
async def connected(options: ClientOptions) -> AsyncIterator[Cluster]:
    """A cluster that is closed at the end. Raises ReadError."""
    cluster = await open_cluster(options)
    try:
        yield cluster
    finally:
        await cluster.close()


def addresses(options: ClientOptions) -> str:
    """The bootstrap addresses, for sentences."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in options.addresses())


def told(error: ClientError, cluster: Cluster) -> str:
    """An error with the brokers that it came from, where it does not name one itself."""
    text = str(error)
    nodes = [f"{node.host}:{node.port}" for node in cluster.nodes.values()]
    if any(node in text for node in nodes):
        return text
    return f"{text} (brokers at {','.join(nodes[:5]) or addresses(cluster.options)})"
