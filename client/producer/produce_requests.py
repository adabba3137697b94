"""Produce in all its versions: the version for a topic, the request for batches, and the partitions of its response.

v13 and later identify topics by id. Transactions of the first version need v11 or lower (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.primitives import ZERO_UUID
from ..net.connection import Connection
from ..net.metadata import Topic
from .accumulator import Batch

__all__ = ["partitions_in", "produce_request", "produce_version"]

PRODUCE_WITHOUT_IDS = 12


def produce_version(connection: Connection, topic: Topic | None, newest: int | None) -> int:
    """Returns the version of Produce for a topic, at most `newest`. Raises UnsupportedVersion."""
    if topic is None or topic.id == ZERO_UUID:
        newest = PRODUCE_WITHOUT_IDS if newest is None else min(newest, PRODUCE_WITHOUT_IDS)
    return connection.version_of(ProduceRequest, newest)


def produce_request(
    batches: Iterable[tuple[Batch, bytes]], ids: dict[str, bytes], *, acks: int, timeout_ms: int, owner: str | None
) -> ProduceRequest:
    """Builds a request from batches and their bytes; `owner` is the transactional id."""
    topic_class = ProduceRequest.TopicProduceData
    topics: dict[str, Any] = {}
    for batch, data in batches:
        name = batch.queue.topic
        found = topics.get(name)
        if found is None:
            found = topics[name] = topic_class(name=name, topic_id=ids[name], partition_data=[])
        found.partition_data.append(topic_class.PartitionProduceData(index=batch.queue.index, records=data))
    return ProduceRequest(transactional_id=owner, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def partitions_in(response: Any) -> dict[tuple[Any, int], Any]:
    """Returns the partitions of a response, by topic name or id and partition."""
    return {
        (topic.name or topic.topic_id, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }
