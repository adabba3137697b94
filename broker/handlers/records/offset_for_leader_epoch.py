"""OffsetForLeaderEpoch v0-v4: the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

Requires CLUSTER_ACTION, or DESCRIBE on each topic where the release does.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from ...context import RequestContext, handles
from ...errors import code_of

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
EpochEndOffset = Topic.EpochEndOffset
RequestedPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition


@handles(OffsetForLeaderEpochRequest)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Handles each partition on its own. As in Kafka, topics without permission come last."""
    refused = {}
    if not context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        refused = {topic.topic: _refusal(topic.topic, context) for topic in request.topics}
    ordered = sorted(request.topics, key=lambda topic: refused.get(topic.topic, ErrorCode.NONE) is not ErrorCode.NONE)
    topics: list[Topic] = []
    for topic in ordered:
        code = refused.get(topic.topic, ErrorCode.NONE)
        results = await context.mapped(
            lambda requested, topic=topic, code=code: _end_offset(topic.topic, requested, code, context),
            topic.partitions,
        )
        topics.append(Topic(topic=topic.topic, partitions=results))
    return OffsetForLeaderEpochResponse(topics=topics)


def _refusal(topic: str, context: RequestContext) -> ErrorCode:
    if not context.broker.profile.behaviour.describe_suffices:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return context.topic_refusal(AclOperation.DESCRIBE, topic)


def _end_offset(
    topic: str, requested: RequestedPartition, refused: ErrorCode, context: RequestContext
) -> EpochEndOffset:
    if refused is not ErrorCode.NONE:
        return EpochEndOffset(error_code=refused, partition=requested.partition)
    try:
        partition = context.partition(topic, requested.partition, requested.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(requested.leader_epoch)
    except Exception as error:
        return EpochEndOffset(error_code=code_of(error), partition=requested.partition)
    return EpochEndOffset(error_code=0, partition=requested.partition, leader_epoch=epoch, end_offset=end_offset)
