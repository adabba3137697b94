"""OffsetDelete v0: forget offsets of topics that a group does not read now. KIP-496."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ..context import RequestContext, handles

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


@handles(OffsetDeleteRequest)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """A partition that was never committed is deleted already; one that does not exist is in error."""
    groups = context.groups
    asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    known = [partition for partition in asked if groups.partition_exists(*partition)]
    error, results = groups.delete_offsets(request.group_id, known) if known or not asked else (ErrorCode.NONE, {})
    if error is ErrorCode.NONE and results:
        error = await context.broker.group_records_durable(request.group_id)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])
    topics = [
        Topic(
            name=topic.name,
            partitions=[
                Topic.OffsetDeleteResponsePartition(
                    partition_index=one.partition_index,
                    error_code=results.get((topic.name, one.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
