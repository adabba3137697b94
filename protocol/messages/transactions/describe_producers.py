"""DescribeProducers: request and response of API key 61. KIP-664."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import group, message


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Requests the producer state of partitions."""

    topics: list[TopicRequest]

    @group
    class TopicRequest:
        name: Text
        partition_indexes: list[Int32]


@message(api_key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """The producers of each partition; -1 stands for unknown values."""

    throttle_time_ms: Int32
    topics: list[TopicResponse]

    @group
    class TopicResponse:
        name: Text
        partitions: list[PartitionResponse]

        @group
        class PartitionResponse:
            partition_index: Int32
            error_code: Int16
            error_message: Text | None = None
            active_producers: list[ProducerState]

            @group
            class ProducerState:
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = -1
                last_timestamp: Int64 = -1
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = -1
