"""OffsetCommit: request and response of API key 8. KIP-211, KIP-320, KIP-345, KIP-848."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Int16, Int32, Int64, Text, Uuid
from ...schema import field, group, message


@message(api_key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    """v2-v4 have a retention time, v6 adds leader epochs, v7 static members, v9 member epochs (KIP-848), v10 topic
    ids."""

    group_id: Text
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: Text = field("1+", default="", ignorable=True)
    group_instance_id: Text | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]

    @group
    class OffsetCommitRequestTopic:
        name: Text = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitRequestPartition]

        @group
        class OffsetCommitRequestPartition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
            commit_timestamp: Int64 = field("1", default=-1)
            committed_metadata: Text | None


@message(api_key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    """One error per partition."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]

    @group
    class OffsetCommitResponseTopic:
        name: Text = field("0-9", default="", ignorable=True)
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitResponsePartition]

        @group
        class OffsetCommitResponsePartition:
            partition_index: Int32
            error_code: Int16
