"""DeleteRecords: request and response of API key 21. KIP-107."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import group, message


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Raises log start offsets; -1 stands for the high watermark."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32

    @group
    class DeleteRecordsTopic:
        name: Text
        partitions: list[DeleteRecordsPartition]

        @group
        class DeleteRecordsPartition:
            partition_index: Int32
            offset: Int64


@message(api_key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The log start offsets ("low watermarks") after the deletion."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]

    @group
    class DeleteRecordsTopicResult:
        name: Text
        partitions: list[DeleteRecordsPartitionResult]

        @group
        class DeleteRecordsPartitionResult:
            partition_index: Int32
            low_watermark: Int64
            error_code: Int16
