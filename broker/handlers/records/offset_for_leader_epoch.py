"""OffsetForLeaderEpoch v0-v4: where the log of a leader epoch ends (KIP-101, KIP-279, KIP-320).

Asks for CLUSTER_ACTION, or where the release does, for DESCRIBE on each topic.
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
Answer = Topic.EpochEndOffset
Asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition


@handles(OffsetForLeaderEpochRequest)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Each partition on its own; as in Kafka, topics that may not be described come last."""
    refused = {}
    if not context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        refused = {topic.topic: _refusal(topic.topic, context) for topic in request.topics}
    ordered = sorted(request.topics, key=lambda topic: refused.get(topic.topic, ErrorCode.NONE) is not ErrorCode.NONE)
    topics: list[Topic] = []
    for topic in ordered:
        code = refused.get(topic.topic, ErrorCode.NONE)
        answers = await context.mapped(
            lambda asked, topic=topic, code=code: _answer(topic.topic, asked, code, context), topic.partitions
        )
        topics.append(Topic(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _refusal(topic: str, context: RequestContext) -> ErrorCode:
    if not context.broker.profile.behaviour.describe_suffices:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return context.topic_refusal(AclOperation.DESCRIBE, topic)


def _answer(topic: str, asked: Asked, refused: ErrorCode, context: RequestContext) -> Answer:
    if refused is not ErrorCode.NONE:
        return Answer(error_code=refused, partition=asked.partition)
    try:
        partition = context.partition(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except Exception as error:
        return Answer(error_code=code_of(error), partition=asked.partition)
    return Answer(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
