"""Topics in the join metadata of a consumer (ConsumerProtocolSubscription), and partitions in its assignment
(ConsumerProtocolAssignment).

Reads the topics only; a group that changes its protocol reads whole subscriptions (`consumer/embedded.py`). All
versions begin with a version (int16) and an array of topic names, or of topic names with partitions; later fields are
ignored.
"""

from __future__ import annotations

from .state import CONSUMER_PROTOCOL_TYPE, Group


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """Returns the subscribed topic names, or None if `metadata` is not a consumer subscription."""
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    if len(metadata) < 6 or int.from_bytes(metadata[:2], "big", signed=True) < 0 or count < 0:
        return None
    topics: list[str] = []
    position = 6
    if count * 2 > len(metadata) - position:
        return None
    for _ in range(count):
        size = int.from_bytes(metadata[position : position + 2], "big", signed=True)
        end = position + 2 + size
        if size < 0 or position + 2 > len(metadata) or end > len(metadata):
            return None
        try:
            topics.append(metadata[position + 2 : end].decode())
        except UnicodeDecodeError:
            return None
        position = end
    return frozenset(topics)


def partitions_of(assignment: bytes) -> list[tuple[str, int]] | None:
    """Returns the pairs (topic, partition) of an assignment, or None if it is not a consumer assignment. Empty bytes
    give [].
    """
    if not assignment:
        return []
    count = int.from_bytes(assignment[2:6], "big", signed=True)
    if len(assignment) < 6 or int.from_bytes(assignment[:2], "big", signed=True) < 0 or count < 0:
        return None
    found: list[tuple[str, int]] = []
    position = 6
    if count * 6 > len(assignment) - position:
        return None
    for _ in range(count):
        size = int.from_bytes(assignment[position : position + 2], "big", signed=True)
        end = position + 2 + size
        number = int.from_bytes(assignment[end : end + 4], "big", signed=True)
        if size < 0 or number < 0 or end + 4 + 4 * number > len(assignment):
            return None
        try:
            topic = assignment[position + 2 : end].decode()
        except UnicodeDecodeError:
            return None
        position = end + 4 + 4 * number
        found += [(topic, int.from_bytes(assignment[at : at + 4], "big")) for at in range(end + 4, position, 4)]
    return found


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
