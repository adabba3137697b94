"""What metadata says: nodes, topics and partitions as values, and how an answer is taken over what was known.

Owns no cache and asks nobody: that is `cluster.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.topics.metadata import MetadataResponse
from ...protocol.primitives import ZERO_UUID
from .errors import error_code

NO_NODE = -1


class Node(NamedTuple):
    """A broker as the cluster tells it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class Partition(NamedTuple):
    """`leader` is a node id, -1 while there is none; `leader_epoch` -1 where brokers do not tell it."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - Kafka's word, which a tuple has as a method
    leader: int
    leader_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE


class Topic(NamedTuple):
    """A topic as the cluster told it last.

    `message_format` (0, 1, 2) and `max_message_bytes` are None where the broker does not tell them: only Ottla does.
    """

    name: str
    id: bytes
    partitions: Mapping[int, Partition]
    error: ErrorCode = ErrorCode.NONE
    message_format: int | None = None
    max_message_bytes: int | None = None
    is_internal: bool = False


def topic_of(told: MetadataResponse.MetadataResponseTopic) -> Topic:
    """A topic out of an answer."""
    partitions = {
        p.partition_index: Partition(p.partition_index, p.leader_id, p.leader_epoch, error_code(p.error_code))
        for p in sorted(told.partitions, key=lambda p: p.partition_index)
    }
    return Topic(
        told.name or "",
        told.topic_id,
        partitions,
        error_code(told.error_code),
        None if told.message_format_version < 0 else told.message_format_version,
        None if told.max_message_bytes < 0 else told.max_message_bytes,
        told.is_internal,
    )


def newer(known: Topic | None, told: Topic) -> Topic:
    """What holds after an answer: a partition of which a newer leader was known than the broker knows stays (KIP-320).

    Only of the same topic id; where ids are not told, a topic may have been made anew, with epochs from 0.
    """
    if known is None or known.id != told.id or told.id == ZERO_UUID:
        return told
    partitions = {
        index: before
        if (before := known.partitions.get(index)) is not None and before.leader_epoch > partition.leader_epoch >= 0
        else partition
        for index, partition in told.partitions.items()
    }
    return told._replace(partitions=partitions)
