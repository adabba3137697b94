"""The topics a consumer says it subscribes to, out of its join metadata (ConsumerProtocolSubscription).

Owns the one look into bytes that otherwise belong to the clients. Every version begins with version int16 and an
array of topic names; what follows is of no interest here.
"""

from __future__ import annotations

from .state import CONSUMER_PROTOCOL_TYPE, Group


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The topic names, or None if the bytes are not a consumer's subscription."""
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    if len(metadata) < 6 or int.from_bytes(metadata[:2], "big", signed=True) < 0 or count < 0:
        return None
    topics = []
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


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """What the members of a consumer group subscribe to together; None if that cannot be known."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        one = topics_of(member.metadata(group.protocol_name))
        if one is None:
            return None
        topics |= one
    return frozenset(topics)
