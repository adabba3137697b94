"""OffsetForLeaderEpoch: request and response of API key 23. KIP-101, KIP-279, KIP-320."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Requests the end offsets of leader epochs."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]

    @group
    class OffsetForLeaderTopic:
        topic: Text
        partitions: list[OffsetForLeaderPartition]

        @group
        class OffsetForLeaderPartition:
            partition: Int32
            current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
            leader_epoch: Int32


@message(api_key=23, versions="0-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """End offsets; v1 adds the epoch of each."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]

    @group
    class OffsetForLeaderTopicResult:
        topic: Text
        partitions: list[EpochEndOffset]

        @group
        class EpochEndOffset:
            error_code: Int16
            partition: Int32
            leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
            end_offset: Int64 = -1
