"""ShareFetch: request and response of API key 78. KIP-932, KIP-1206, KIP-1222."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Int64, Records, Text, Uuid
from ...schema import field, group, message
from ..records.leaders import NodeEndpoint
from .parts import AcknowledgementBatch, LeaderIdAndEpoch


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchRequest:
    group_id: Text | None = None
    member_id: Text | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]

    @group
    class FetchTopic:
        topic_id: Uuid
        partitions: list[FetchPartition]

        @group
        class FetchPartition:
            partition_index: Int32
            partition_max_bytes: Int32 = field("0", default=0)
            acknowledgement_batches: list[AcknowledgementBatch]

    @group
    class ForgottenTopic:
        topic_id: Uuid
        partitions: list[Int32]


@message(api_key=78, versions="1-2", flexible="0+")
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(default=list)

    @group
    class ShareFetchableTopicResponse:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
            acknowledge_error_code: Int16 = 0
            acknowledge_error_message: Text | None = None
            current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch)
            records: Records = b""
            acquired_records: list[AcquiredRecords] = field(default=list)

            @group
            class AcquiredRecords:
                first_offset: Int64
                last_offset: Int64
                delivery_count: Int16
