"""ShareAcknowledge v1-v2: acknowledges records that a member of a share group has acquired (KIP-932).

Continues the share session of the member; epoch -1 ends it and releases its records. The response follows when the
acknowledgements are stored. v2 renews locks (KIP-1222). Requires READ on the group and on each topic.
"""

from __future__ import annotations

from ....protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ...context import RequestContext, handles
from ...errors import Refused
from ...share.sessions import FINAL_EPOCH, TopicPartition
from .requests import acknowledged, acknowledging, by_topic, endpoints_of, release, session_of, set_leader, text_of

Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
PartitionData = Topic.PartitionData


@handles(ShareAcknowledgeRequest)
async def share_acknowledge(request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
    """Acknowledges each partition on its own; the acknowledgements of one partition succeed together."""
    broker = context.broker
    try:
        key = session_of(request, context)
        broker.share_sessions.acknowledging(key, request.share_session_epoch)
    except Refused as refused:
        return ShareAcknowledgeResponse(error_code=refused.code, error_message=None, responses=[])
    pending = await acknowledging(request.topics, key, request.is_renew_ack, context)
    outcomes = await acknowledged(pending, broker)
    if request.share_session_epoch == FINAL_EPOCH:
        release(key, context)
    results: list[tuple[TopicPartition, PartitionData]] = []
    for of, outcome in outcomes.items():
        data = PartitionData(partition_index=of.partition, error_message=text_of(outcome))
        if outcome is not None:
            data.error_code = outcome.code
            set_leader(data, outcome, of, context)
        results.append((of, data))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=broker.share_configs.lock_ms(key.group_id),
        responses=[Topic(topic_id=topic_id, partitions=found) for topic_id, found in by_topic(results).items()],
        node_endpoints=endpoints_of((data for _, data in results), context),
    )
