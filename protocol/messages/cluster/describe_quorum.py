"""DescribeQuorum: request and response of API key 55. KIP-595, KIP-836 (v1: times), KIP-853 (v2: nodes)."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, UInt16, Uuid
from ...schema import field, group, message


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Requests the voters and observers of the metadata log, and their progress."""

    topics: list[TopicData]

    @group
    class TopicData:
        topic_name: Text
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition_index: Int32


@group
class ReplicaState:
    """A voter or observer: its log end offset, the time of its last fetch and the time when it was last caught up (-1:
    unknown)."""

    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=bytes(16))
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """Leader, voters and observers of each partition, and the listeners of voters."""

    error_code: Int16
    error_message: Text | None = field("2+", default="", ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field("2+", default=list)

    @group
    class TopicData:
        topic_name: Text
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition_index: Int32
            error_code: Int16
            error_message: Text | None = field("2+", default="", ignorable=True)
            leader_id: Int32
            leader_epoch: Int32
            high_watermark: Int64
            current_voters: list[ReplicaState]
            observers: list[ReplicaState]

    @group
    class Node:
        node_id: Int32
        listeners: list[Listener]

        @group
        class Listener:
            name: Text
            host: Text
            port: UInt16
