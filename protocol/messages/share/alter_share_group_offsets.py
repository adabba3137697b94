"""AlterShareGroupOffsets: request and response of API key 91. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, Uuid
from ...schema import group, message


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: Text
    topics: list[AlterShareGroupOffsetsRequestTopic]

    @group
    class AlterShareGroupOffsetsRequestTopic:
        topic_name: Text
        partitions: list[AlterShareGroupOffsetsRequestPartition]

        @group
        class AlterShareGroupOffsetsRequestPartition:
            partition_index: Int32
            start_offset: Int64


@message(api_key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic]

    @group
    class AlterShareGroupOffsetsResponseTopic:
        topic_name: Text
        topic_id: Uuid
        partitions: list[AlterShareGroupOffsetsResponsePartition]

        @group
        class AlterShareGroupOffsetsResponsePartition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
