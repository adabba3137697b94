"""The states of producers as a broker tells them, by DescribeProducers: `ottla producers --bootstrap`.

Owns the asking: every partition's leader, once. Apart from the command, so that reading a directory imports no client.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from ...client.cluster import Cluster
from ...client.errors import ClientError, KafkaError, NoSuchTopic, UnsupportedVersion
from ...client.options import ClientOptions
from ...client.topology import NO_NODE, Topic
from ...protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

Told = DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState


class Cannot(Exception):
    """Why nothing can be told, for people."""


class OfPartition(NamedTuple):
    """What the leader of a partition knows of its producers."""

    topic: str
    partition: int
    producers: list[Told]


def ask(bootstrap: str, topic: str | None, partition: int | None) -> list[OfPartition]:
    """The partitions of a cluster, or those asked for, by topic and number. Raises Cannot."""
    try:
        return asyncio.run(_ask(bootstrap, topic, partition))
    except UnsupportedVersion:
        raise Cannot(f"the broker at {bootstrap} has no DescribeProducers: Kafka has it from 2.8 on") from None
    except NoSuchTopic:
        raise Cannot(f"no topic {topic} at {bootstrap}") from None
    except ClientError as error:
        raise Cannot(str(error)) from None


async def _ask(bootstrap: str, topic: str | None, partition: int | None) -> list[OfPartition]:
    cluster = Cluster(ClientOptions(bootstrap=bootstrap))
    await cluster.start()
    try:
        found: list[OfPartition] = []
        for leader, wanted in _by_leader(await cluster.all_topics(), topic, partition).items():
            asked = [
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
                for name, indexes in wanted.items()
            ]
            connection = await cluster.connection(leader)
            response = await connection.request(DescribeProducersRequest(topics=asked))
            found += _of_response(response)
        return sorted(found, key=lambda one: (one.topic, one.partition))
    finally:
        await cluster.close()


def _by_leader(topics: dict[str, Topic], topic: str | None, partition: int | None) -> dict[int, dict[str, list[int]]]:
    """Leader -> topic -> partitions, of what is asked for."""
    if topic is not None and topic not in topics:
        raise NoSuchTopic(topic)
    found: dict[int, dict[str, list[int]]] = {}
    for name, known in topics.items():
        if topic in (None, name):
            for index, one in known.partitions.items():
                if partition in (None, index):
                    found.setdefault(one.leader, {}).setdefault(name, []).append(index)
    if not found and partition is not None:
        raise Cannot(f"{topic} has no partition {partition}" if topic else f"no topic has a partition {partition}")
    if NO_NODE in found:
        name, indexes = next(iter(found[NO_NODE].items()))
        raise Cannot(f"{name}-{indexes[0]} has no leader")
    return found


def _of_response(response: DescribeProducersResponse) -> list[OfPartition]:
    found = []
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                error = KafkaError(partition.error_code, partition.error_message)
                raise Cannot(f"{topic.name}-{partition.partition_index}: {error}")
            producers = sorted(partition.active_producers, key=lambda told: told.producer_id)
            found.append(OfPartition(topic.name, partition.partition_index, producers))
    return found
