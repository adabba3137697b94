"""Topics in the join metadata of a consumer, and partitions in its assignment."""

from __future__ import annotations

from ....protocol.consumer_protocol import read_assignment, read_subscription
from ....protocol.errors import MalformedMessage
from .state import CONSUMER_PROTOCOL_TYPE, Group


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Returns the subscribed topic names, or None if `metadata` is not a consumer subscription.

    Reads the fields of v0, with which all versions begin: a client may write the later ones wrongly.
    """
    try:
        return frozenset(read_subscription(metadata, newest=0).topics)
    except MalformedMessage:
        return None


def partitions_of(assignment: bytes) -> list[tuple[str, int]] | None:
    """Returns the pairs (topic, partition) of an assignment, or None if it is not a consumer assignment."""
    try:
        found = read_assignment(assignment)
    except MalformedMessage:
        return None
    return [(topic.topic, index) for topic in found.assigned_partitions for index in topic.partitions]


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """Returns the topics that the members of a consumer group subscribe to; None if a subscription cannot be read."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        one = topics_of(member.metadata(group.protocol_name))
        if one is None:
            return None
        topics |= one
    return frozenset(topics)
