"""The states of producers as a broker tells them, by DescribeProducers: `ottla producers --bootstrap`.

Owns what is asked for, and why it cannot be told. Apart from the command: reading a directory imports no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from ...client.admin.admin import Admin, ProducerState, TopicDescription, checked
from ...client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ...client.net.metadata import NO_NODE
from ...protocol.errors import ErrorCode


class Cannot(Exception):
    """Why nothing can be told, for people."""


class OfPartition(NamedTuple):
    """What the leader of a partition knows of its producers."""

    topic: str
    partition: int
    producers: tuple[ProducerState, ...]


def ask(bootstrap: str, topic: str | None, partition: int | None) -> list[OfPartition]:
    """The partitions of a cluster, or those asked for, by topic and number. Raises Cannot."""
    try:
        return asyncio.run(_ask(bootstrap, topic, partition))
    except UnsupportedVersion:
        raise Cannot(f"the broker at {bootstrap} has no DescribeProducers: Kafka has it from 2.8 on") from None
    except ClientError as error:
        raise Cannot(str(error)) from None


async def _ask(bootstrap: str, topic: str | None, partition: int | None) -> list[OfPartition]:
    async with Admin(bootstrap) as admin:
        told = await admin.describe_producers(await partitions_of(admin, bootstrap, topic, partition))
    for (name, index), outcome in told.items():
        if isinstance(outcome, KafkaError):
            raise Cannot(f"{name}-{index}: {outcome}")
    return [OfPartition(name, index, producers) for (name, index), producers in sorted(checked(told).items())]


async def partitions_of(
    admin: Admin, bootstrap: str, topic: str | None, partition: int | None
) -> list[tuple[str, int]]:
    """The partitions of a cluster that are asked for; all of them have a leader. Raises Cannot, ClientError."""
    names = await admin.list_topics(include_internal=True) if topic is None else [topic]
    described = await admin.describe_topics(names)
    if topic is not None:
        found = described[topic]
        if isinstance(found, KafkaError) and found.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Cannot(f"no topic {topic} at {bootstrap}")
    return _partitions(checked(described).values(), topic, partition)


def _partitions(topics: Iterable[TopicDescription], topic: str | None, partition: int | None) -> list[tuple[str, int]]:
    """What is asked for; all of it has to have a leader now."""
    found = [(known.name, one) for known in topics for one in known.partitions if partition in (None, one.index)]
    if not found and partition is not None:
        raise Cannot(f"{topic} has no partition {partition}" if topic else f"no topic has a partition {partition}")
    for name, one in found:
        if one.leader == NO_NODE:
            raise Cannot(f"{name}-{one.index} has no leader")
    return [(name, one.index) for name, one in found]
