"""Values of `__consumer_offsets` for groups of the consumer protocol (KIP-848), by the type of their keys: the
`api_key` of the declarations. A value begins with its version, an int16.
"""

from __future__ import annotations

from ..primitives import Bytes, Int8, Int32, Int64, Text, Uuid
from ..schema import field, group, message


@message(api_key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a group, and since 4.1 the hash of the metadata of the subscribed topics (KIP-1101)."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


@message(api_key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The metadata of the topics of a group, written before 4.1."""

    topics: list[TopicMetadata]

    @group
    class TopicMetadata:
        topic_id: Uuid
        topic_name: Text
        num_partitions: Int32
        partition_metadata: list[PartitionMetadata]

        @group
        class PartitionMetadata:
            partition: Int32
            racks: list[Text]


@message(api_key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What a member has sent about itself. `classic_member_metadata` is set for a member that uses the classic
    protocol, null for others. To Kafka an absent tag is empty metadata, not null.
    """

    @group
    class ClassicMemberMetadata:
        session_timeout_ms: Int32 = 0
        supported_protocols: list[ClassicProtocol] = field(default=list)

        @group
        class ClassicProtocol:
            name: Text
            metadata: Bytes

    instance_id: Text | None
    rack_id: Text | None
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]
    subscribed_topic_regex: Text | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: Text | None
    classic_member_metadata: ClassicMemberMetadata | None = field(default=ClassicMemberMetadata, tag=0)


@message(api_key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment, and since 4.3 the time at which it was computed (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(api_key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition]

    @group
    class TopicPartition:
        topic_id: Uuid
        partitions: list[Int32]


@message(api_key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The epoch and the current assignment of a member. `assignment_epochs` has the epoch at which each partition was
    assigned, since 4.3 (KIP-1251).
    """

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]

    @group
    class TopicPartitions:
        topic_id: Uuid
        partitions: list[Int32]
        assignment_epochs: list[Int32] | None = field(default=list, tag=0)


@message(api_key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that match a regular expression of a group, the offset of the metadata they are from, and the time."""

    topics: list[Text]
    version: Int64
    timestamp: Int64
