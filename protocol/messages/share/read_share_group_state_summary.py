"""ReadShareGroupStateSummary: request and response of API key 87. KIP-932, KIP-1226."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, Uuid
from ...schema import field, group, message


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: Text
    topics: list[ReadStateSummaryData]

    @group
    class ReadStateSummaryData:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition: Int32
            leader_epoch: Int32


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult]

    @group
    class ReadStateSummaryResult:
        topic_id: Uuid
        partitions: list[PartitionResult]

        @group
        class PartitionResult:
            partition: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
