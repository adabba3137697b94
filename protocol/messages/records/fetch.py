"""Fetch: request and response of API key 1. KIP-74, KIP-98, KIP-227, KIP-320, KIP-392, KIP-516, KIP-903, KIP-951."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Int8, Int16, Int32, Int64, Records, Text, Uuid
from ...schema import field, group, message
from .leaders import LeaderIdAndEpoch, NodeEndpoint


@message(api_key=1, versions="0-18", flexible="12+")
class FetchRequest:
    """v3 bounds the size of the response, v4 adds the isolation level, v7 sessions, v9 leader epochs, v13 topic ids."""

    @group
    class ReplicaState:
        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    cluster_id: Text | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", default=ReplicaState, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field("3+", default=2147483647, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=list)
    rack_id: Text = field("11+", default="", ignorable=True)

    @group
    class FetchTopic:
        topic: Text = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchPartition]

        @group
        class FetchPartition:
            partition: Int32
            current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
            fetch_offset: Int64
            last_fetched_epoch: Int32 = field("12+", default=-1)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            partition_max_bytes: Int32
            replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)
            high_watermark: Int64 = field("18+", default=9223372036854775807, tag=1, ignorable=True)

    @group
    class ForgottenTopic:
        topic: Text = field("7-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[Int32]


@message(api_key=1, versions="0-18", flexible="12+")
class FetchResponse:
    """v4 adds last stable offset and aborted transactions, v7 sessions, v12 diverging epochs, v13 topic ids, v16
    leaders."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", default=list, tag=0)

    @group
    class FetchableTopicResponse:
        topic: Text = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[PartitionData]

        @group
        class PartitionData:
            @group
            class EpochEndOffset:
                epoch: Int32 = -1
                end_offset: Int64 = -1

            @group
            class SnapshotId:
                end_offset: Int64 = -1
                epoch: Int32 = -1

            partition_index: Int32
            error_code: Int16
            high_watermark: Int64
            last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = field("12+", default=EpochEndOffset, tag=0)
            current_leader: LeaderIdAndEpoch = field("12+", default=LeaderIdAndEpoch, tag=1)
            snapshot_id: SnapshotId = field("12+", default=SnapshotId, tag=2)
            aborted_transactions: list[AbortedTransaction] | None = field("4+", default=list, ignorable=True)
            preferred_read_replica: Int32 = field("11+", default=-1)
            records: Records | None

            @group
            class AbortedTransaction:
                producer_id: Int64
                first_offset: Int64
