"""Producer state from a broker, by DescribeProducers: `ottla producers --bootstrap-server`.

Owns the requests and their errors. A module of its own, so that reading a data directory does not import the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ...client.admin.admin import Admin, ProducerState, TopicDescription, checked
from ...client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ...client.net.metadata import NO_NODE
from ...protocol.errors import ErrorCode

T = TypeVar("T")
States = dict[tuple[str, int], tuple[ProducerState, ...]]


class Cannot(Exception):
    """The producer state cannot be fetched; the text is one line."""


def fetched(bootstrap: str, security: Mapping[str, Any], fetch: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Returns what `fetch` fetches with a client with these security options. Raises Cannot."""

    async def connected() -> T:
        async with Admin(bootstrap, **security) as admin:
            return await fetch(admin)

    try:
        return asyncio.run(connected())
    except UnsupportedVersion:
        raise Cannot(f"the broker at {bootstrap} has no DescribeProducers API: expected Kafka 2.8 or later") from None
    except ClientError as error:
        raise Cannot(str(error)) from None


async def fetch_producers(admin: Admin, bootstrap: str, topic: str | None, partition: int | None) -> States:
    """Fetches the producer state of the matching partitions, sorted by topic and number. Raises Cannot, ClientError."""
    results = await admin.describe_producers(await partitions_of(admin, bootstrap, topic, partition))
    for (name, index), outcome in results.items():
        if isinstance(outcome, KafkaError):
            raise Cannot(f"{name}-{index}: {outcome}")
    return dict(sorted(checked(results).items()))


async def partitions_of(
    admin: Admin, bootstrap: str, topic: str | None, partition: int | None
) -> list[tuple[str, int]]:
    """Fetches the matching partitions, which all have a leader. Raises Cannot or ClientError."""
    names = await admin.list_topics(include_internal=True) if topic is None else [topic]
    described = await admin.describe_topics(names)
    if topic is not None:
        found = described[topic]
        if isinstance(found, KafkaError) and found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Cannot(f"no topic {topic} at {bootstrap}")
    return _partitions(checked(described).values(), topic, partition)


def _partitions(topics: Iterable[TopicDescription], topic: str | None, partition: int | None) -> list[tuple[str, int]]:
    """Returns the matching partitions. Raises Cannot if there is none, or one without a leader."""
    found = [(known.name, one) for known in topics for one in known.partitions if partition in (None, one.index)]
    if not found and partition is not None:
        raise Cannot(f"{topic} has no partition {partition}" if topic else f"no topic has a partition {partition}")
    for name, one in found:
        if one.leader == NO_NODE:
            raise Cannot(f"{name}-{one.index} has no leader")
    return [(name, one.index) for name, one in found]
