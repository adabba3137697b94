"""ShareAcknowledge: request and response of API key 79. KIP-932, KIP-1222."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text, Uuid
from ...schema import field, group, message
from ..records.leaders import NodeEndpoint
from .parts import AcknowledgementBatch, LeaderIdAndEpoch


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeRequest:
    group_id: Text | None = None
    member_id: Text | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[AcknowledgeTopic]

    @group
    class AcknowledgeTopic:
        topic_id: Uuid
        partitions: list[AcknowledgePartition]

        @group
        class AcknowledgePartition:
            partition_index: Int32
            acknowledgement_batches: list[AcknowledgementBatch]


@message(api_key=79, versions="1-2", flexible="0+")
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(default=list)

    @group
    class ShareAcknowledgeTopicResponse:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
            current_leader: LeaderIdAndEpoch = field(default=LeaderIdAndEpoch)
