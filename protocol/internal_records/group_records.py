"""Records of `__consumer_offsets`: classic groups and their offsets, and the keys of the other groups. A key begins
with its type, an int16.
"""

from __future__ import annotations

from ..primitives import ZERO_UUID, Bytes, Int32, Int64, Text, Uuid
from ..schema import field, group, message


@message(api_key=1, versions="0")
class OffsetCommitKey:
    """Key 1: one committed offset. (Key 0 is the same layout, written by the oldest brokers.)"""

    group: Text
    topic: Text
    partition: Int32


@message(api_key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """The value of a committed offset. v1 has an expiry timestamp, v3 the leader epoch, v4 the topic id."""

    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: Text
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)


@message(api_key=2, versions="0")
class GroupMetadataKey:
    """Key 2: one classic group."""

    group: Text


@message(versions="0")
class GroupKey:
    """The key of the types about a group of another protocol."""

    group_id: Text


@message(versions="0")
class MemberKey:
    """The key of the types about a member of such a group."""

    group_id: Text
    member_id: Text


@message(versions="0")
class RegularExpressionKey:
    """The key of the type about a regular expression of a consumer group."""

    group_id: Text
    regular_expression: Text


@group
class MemberMetadata:
    member_id: Text
    group_instance_id: Text | None = field("3+", default=None, ignorable=True)
    client_id: Text
    client_host: Text
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(api_key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """The group as of its last generation; v3 has static members."""

    protocol_type: Text
    generation: Int32
    protocol: Text | None
    leader: Text | None
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]
