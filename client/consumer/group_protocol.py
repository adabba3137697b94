"""Subscriptions and assignments of the embedded consumer protocol, as pairs (topic, partition).

Subscriptions are written as by the Java client: sorted topics, no user data, no rack. Brokers do not parse them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ...protocol import consumer_protocol
from ...protocol.consumer_protocol import NO_GENERATION, ConsumerProtocolSubscription, TopicPartitions
from ...protocol.errors import MalformedMessage
from ...protocol.named import NamedTuple
from ..net.errors import ClientError

__all__ = ["Subscription", "assignment_bytes", "read_assignment", "read_subscription", "subscription_bytes"]

TopicPartition = tuple[str, int]


class Subscription(NamedTuple):
    """The subscription of a member; `owned` and `generation` are those of its last assignment."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def subscription_bytes(topics: Iterable[str], owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Builds the subscription of a member."""
    grouped = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in _by_topic(owned)]
    return consumer_protocol.subscription_bytes(
        ConsumerProtocolSubscription(topics=sorted(topics), owned_partitions=grouped, generation_id=generation)
    )


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """Builds the assignment of a member."""
    return consumer_protocol.assignment_bytes(_by_topic(partitions))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    by_topic = itertools.groupby(sorted(partitions), key=lambda one: one[0])
    return [(topic, [index for _, index in pairs]) for topic, pairs in by_topic]


def read_subscription(data: bytes) -> Subscription:
    """Parses a subscription. Raises ClientError for malformed bytes."""
    try:
        found = consumer_protocol.read_subscription(data)
    except MalformedMessage as error:
        raise ClientError(str(error)) from error
    return Subscription(tuple(found.topics), tuple(_pairs(found.owned_partitions)), found.generation_id)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Parses an assignment; empty bytes have no partitions. Raises ClientError for malformed bytes."""
    try:
        return _pairs(consumer_protocol.read_assignment(data).assigned_partitions)
    except MalformedMessage as error:
        raise ClientError(str(error)) from error


def _pairs(topics: Sequence[TopicPartitions]) -> list[TopicPartition]:
    return [(one.topic, index) for one in topics for index in one.partitions]
