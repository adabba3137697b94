"""OffsetDelete v0: forget offsets of topics that a group does not read now. KIP-496.

Asks for DELETE on the group and READ on each topic.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...context import RequestContext, handles

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
Asked = OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition
ASKED_PER_ENTRY = 10  # partitions that are looked up in the time of one entry of a cooperative step


@handles(OffsetDeleteRequest)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """A partition that was never committed is deleted already; one that does not exist is in error. As in Kafka, topics
    that may not be read come first."""
    context.check_allowed(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    groups = context.groups
    refused = {topic.name: context.topic_refusal(AclOperation.READ, topic.name) for topic in request.topics}
    known: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        if context.is_due(1 + len(topic.partitions) // ASKED_PER_ENTRY):
            await context.next_step()
        if refused[topic.name] is ErrorCode.NONE:
            asked = ((topic.name, one.partition_index) for one in topic.partitions)
            known |= dict.fromkeys(one for one in asked if groups.topics.has_partition(*one))
    error, results = groups.delete_offsets(request.group_id, list(known))
    if error is ErrorCode.NONE and results:
        error = await context.broker.group_records_durable(request.group_id)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])
    topics: list[Topic] = []
    for topic in sorted(request.topics, key=lambda topic: refused[topic.name] is ErrorCode.NONE):

        def answer(one: Asked, name: str = topic.name) -> Topic.OffsetDeleteResponsePartition:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = refused[name] or results.get((name, one.partition_index), unknown)
            return Topic.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)

        topics.append(Topic(name=topic.name, partitions=await context.mapped(answer, topic.partitions)))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
