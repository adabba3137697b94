"""DescribeShareGroupOffsets: request and response of API key 90. KIP-932, KIP-1226."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, Uuid
from ...schema import field, group, message


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: list[DescribeShareGroupOffsetsRequestGroup]

    @group
    class DescribeShareGroupOffsetsRequestGroup:
        group_id: Text
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None

        @group
        class DescribeShareGroupOffsetsRequestTopic:
            topic_name: Text
            partitions: list[Int32]


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]

    @group
    class DescribeShareGroupOffsetsResponseGroup:
        group_id: Text
        topics: list[DescribeShareGroupOffsetsResponseTopic]
        error_code: Int16 = 0
        error_message: Text | None = None

        @group
        class DescribeShareGroupOffsetsResponseTopic:
            topic_name: Text
            topic_id: Uuid
            partitions: list[DescribeShareGroupOffsetsResponsePartition]

            @group
            class DescribeShareGroupOffsetsResponsePartition:
                partition_index: Int32
                start_offset: Int64
                leader_epoch: Int32
                lag: Int64 = field("1+", default=-1, ignorable=True)
                error_code: Int16 = 0
                error_message: Text | None = None
