"""OffsetForLeaderEpoch v0-v4: where the log of a leader epoch ends (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from ...protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ..context import RequestContext, handles
from ..errors import code_of

Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
Answer = Topic.EpochEndOffset
Asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition


@handles(OffsetForLeaderEpochRequest)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Each partition on its own."""
    return OffsetForLeaderEpochResponse(
        topics=[
            Topic(topic=topic.topic, partitions=[_answer(topic.topic, asked, context) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


def _answer(topic: str, asked: Asked, context: RequestContext) -> Answer:
    try:
        partition = context.partition(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except Exception as error:
        return Answer(error_code=code_of(error), partition=asked.partition)
    return Answer(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
