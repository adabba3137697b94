"""ListOffsets: request and response of API key 2. KIP-79, KIP-98, KIP-320, KIP-734, KIP-405."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsRequest:
    """Looks up offsets by timestamp. v1 returns one offset (KIP-79), v2 adds the isolation level, v7 the max timestamp
    (KIP-734), v8-v11 tiered storage."""

    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)

    @group
    class ListOffsetsTopic:
        name: Text
        partitions: list[ListOffsetsPartition]

        @group
        class ListOffsetsPartition:
            partition_index: Int32
            current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
            timestamp: Int64
            max_num_offsets: Int32 = field("0", default=1)


@message(api_key=2, versions="0-11", flexible="6+")
class ListOffsetsResponse:
    """v0 has a list of offsets, later versions one offset and its timestamp."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]

    @group
    class ListOffsetsTopicResponse:
        name: Text
        partitions: list[ListOffsetsPartitionResponse]

        @group
        class ListOffsetsPartitionResponse:
            partition_index: Int32
            error_code: Int16
            old_style_offsets: list[Int64] = field("0", default=list)
            timestamp: Int64 = field("1+", default=-1)
            offset: Int64 = field("1+", default=-1)
            leader_epoch: Int32 = field("4+", default=-1)
