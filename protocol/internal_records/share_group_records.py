"""Values of `__consumer_offsets`: share groups (KIP-932), by the type of their keys."""

from __future__ import annotations

from ..primitives import Int8, Int32, Int64, Text, Uuid
from ..schema import field, group, message


@group
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@group
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: Text
    partitions: list[Int32]


@group
class TopicInfo:
    topic_id: Uuid
    topic_name: Text


@message(api_key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """What a member has sent about itself."""

    rack_id: Text | None
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]


@message(api_key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of the group, and the hash of its topics."""

    epoch: Int32
    metadata_hash: Int64


@message(api_key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment; its time since 4.3 (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(api_key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The partitions of the target assignment."""

    topic_partitions: list[TopicPartitions]


@message(api_key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The epochs of a member and its partitions."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message(api_key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The share partitions whose state is being initialized, is initialized, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
