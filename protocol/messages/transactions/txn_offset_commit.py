"""TxnOffsetCommit: request and response of API key 28. KIP-98, KIP-320, KIP-447, KIP-890, KIP-1319."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Int16, Int32, Int64, Text, Uuid
from ...schema import field, group, message


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    """v2 adds leader epochs, v3 the group member (KIP-447); v5 adds the group to the transaction implicitly (KIP-890);
    v6 has topic ids (KIP-1319)."""

    transactional_id: Text
    group_id: Text
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = field("3+", default=-1)
    member_id: Text = field("3+", default="")
    group_instance_id: Text | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]

    @group
    class TxnOffsetCommitRequestTopic:
        name: Text = field("0-5", default="", ignorable=True)
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitRequestPartition]

        @group
        class TxnOffsetCommitRequestPartition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
            committed_metadata: Text | None


@message(api_key=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """One error per partition."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]

    @group
    class TxnOffsetCommitResponseTopic:
        name: Text = field("0-5", default="", ignorable=True)
        topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitResponsePartition]

        @group
        class TxnOffsetCommitResponsePartition:
            partition_index: Int32
            error_code: Int16
