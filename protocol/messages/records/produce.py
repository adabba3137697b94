"""Produce: request and response of API key 0. KIP-32, KIP-98, KIP-192, KIP-467, KIP-516, KIP-951."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Int16, Int32, Int64, Records, Text, Uuid
from ...schema import field, group, message
from .leaders import LeaderIdAndEpoch, NodeEndpoint


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    """Records to append. v3 requires record batches of format v2, v9 is flexible, v13 has topic ids."""

    transactional_id: Text | None = field("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]

    @group
    class TopicProduceData:
        name: Text = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_data: list[PartitionProduceData]

        @group
        class PartitionProduceData:
            index: Int32
            records: Records | None


@message(api_key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    """v1 adds the throttle time, v2 the append time, v5 the log start offset (KIP-192), v8 record errors (KIP-467), v10
    leaders (KIP-951)."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default=list, tag=0)

    @group
    class TopicProduceResponse:
        name: Text = field("0-12", default="", ignorable=True)
        topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: list[PartitionProduceResponse]

        @group
        class PartitionProduceResponse:
            index: Int32
            error_code: Int16
            base_offset: Int64
            log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
            log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
            record_errors: list[BatchIndexAndErrorMessage] = field("8+", default=list, ignorable=True)
            error_message: Text | None = field("8+", default=None, ignorable=True)
            current_leader: LeaderIdAndEpoch = field("10+", default=LeaderIdAndEpoch, tag=0)

            @group
            class BatchIndexAndErrorMessage:
                batch_index: Int32
                batch_index_error_message: Text | None = None
