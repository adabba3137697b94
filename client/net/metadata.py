"""Metadata as values: nodes, topics, partitions; and the merge of a response into the known metadata.

The cache and the requests are in `cluster.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.messages.topics.metadata import MetadataResponse
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from .errors import error_code

NO_NODE = -1
TopicPartition = tuple[str, int]
T = TypeVar("T")


class Node(NamedTuple):
    """A broker in the metadata."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """A partition. `leader` is a node id, -1 without a leader; `leader_epoch` is -1 before Kafka 2.1."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - Kafka's word, which a tuple has as a method
    leader: int
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE


class Topic(NamedTuple):
    """A topic as in the last response.

    `message_format` (0, 1, 2) and `max_message_bytes` are None if the broker does not return them: only Ottla does.
    """

    name: str
    id: bytes
    partitions: Mapping[int, Partition]
    error: ErrorCode = ErrorCode.NONE
    message_format: int | None = None
    max_message_bytes: int | None = None
    is_internal: bool = False


def by_topic(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """Groups by topic the other elements of pairs: numbers of partitions, or the parts of a request on them."""
    found: dict[str, list[T]] = {}
    for topic, one in pairs:
        found.setdefault(topic, []).append(one)
    return found


def partitions_in(topics: Iterable[Any], name: str = "name") -> Iterator[tuple[TopicPartition, Any]]:
    """Yields (topic, partition) and the result of each partition in the topics of a response, whose field `name` has
    the name of the topic."""
    return (((getattr(topic, name), one.partition_index), one) for topic in topics for one in topic.partitions)


def topic_of(response: MetadataResponse.MetadataResponseTopic) -> Topic:
    """Returns the topic of a response."""
    partitions = {
        p.partition_index: Partition(p.partition_index, p.leader_id, p.leader_epoch, error_code(p.error_code))
        for p in sorted(response.partitions, key=lambda p: p.partition_index)
    }
    return Topic(
        response.name or "",
        response.topic_id,
        partitions,
        error_code(response.error_code),
        None if response.message_format_version < 0 else response.message_format_version,
        None if response.max_message_bytes < 0 else response.max_message_bytes,
        response.is_internal,
    )


def newer(known: Topic | None, received: Topic) -> Topic:
    """Merges a received topic into the known one: partitions with a higher known leader epoch are kept (KIP-320).

    Only for the same topic id: without ids, the topic may have been deleted and created again, with epochs from 0.
    """
    if known is None or known.id != received.id or received.id == ZERO_UUID:
        return received
    partitions = {
        index: before
        if (before := known.partitions.get(index)) is not None and before.leader_epoch > partition.leader_epoch >= 0
        else partition
        for index, partition in received.partitions.items()
    }
    return received._replace(partitions=partitions)
