"""Produce over its versions: which one a topic is written with, the request for some batches, and its answer.

From v13 on topics are named by id, below by name; transactions of the first version end at v11 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.primitives import ZERO_UUID
from ..net.connection import Connection
from ..net.metadata import Topic
from .accumulator import Batch

__all__ = ["answers_in", "produce_request", "produce_version"]

PRODUCE_WITHOUT_IDS = 12


def produce_version(connection: Connection, topic: Topic | None, newest: int | None) -> int:
    """The version to write a topic with, not above `newest`. Raises UnsupportedVersion."""
    if topic is None or topic.id == ZERO_UUID:
        newest = PRODUCE_WITHOUT_IDS if newest is None else min(newest, PRODUCE_WITHOUT_IDS)
    return connection.version_of(ProduceRequest, newest)


def produce_request(
    batches: Iterable[tuple[Batch, bytes]], ids: dict[str, bytes], *, acks: int, timeout_ms: int, owner: str | None
) -> ProduceRequest:
    """The request with these batches and their bytes, `owner` being the transactional id."""
    asked = ProduceRequest.TopicProduceData
    topics: dict[str, Any] = {}
    for batch, data in batches:
        name = batch.queue.topic
        found = topics.get(name)
        if found is None:
            found = topics[name] = asked(name=name, topic_id=ids[name], partition_data=[])
        found.partition_data.append(asked.PartitionProduceData(index=batch.queue.index, records=data))
    return ProduceRequest(transactional_id=owner, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def answers_in(response: Any) -> dict[tuple[Any, int], Any]:
    """The answer for each partition, by the topic's name or id and by number."""
    return {
        (topic.name or topic.topic_id, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }
