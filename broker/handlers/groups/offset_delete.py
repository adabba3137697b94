"""OffsetDelete v0: deletes committed offsets of topics that a group is not subscribed to. KIP-496.

Requires DELETE on the group and READ on each topic.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ...context import RequestContext, handles

Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
RequestedPartition = OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition
LOOKED_UP_PER_ENTRY = 10  # partitions that are looked up in the time of one entry of a cooperative step


@handles(OffsetDeleteRequest)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Deletes offsets. A partition without a committed offset succeeds; one that does not exist is an error. As in
    Kafka, topics without permission come first.
    """
    context.check_allowed(AclOperation.DELETE, ResourceType.GROUP, request.group_id)
    groups = context.groups
    refused = {topic.name: context.topic_refusal(AclOperation.READ, topic.name) for topic in request.topics}
    known: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        await context.step(1 + len(topic.partitions) // LOOKED_UP_PER_ENTRY)
        if refused[topic.name] is ErrorCode.NONE:
            requested = ((topic.name, one.partition_index) for one in topic.partitions)
            known |= dict.fromkeys(one for one in requested if groups.topics.has_partition(*one))
    error, results = groups.delete_offsets(request.group_id, list(known))
    if error is ErrorCode.NONE and results:
        error = await context.broker.group_records_durable(request.group_id)
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])
    topics: list[Topic] = []
    for topic in sorted(request.topics, key=lambda topic: refused[topic.name] is ErrorCode.NONE):

        def response(one: RequestedPartition, name: str = topic.name) -> Topic.OffsetDeleteResponsePartition:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            code = refused[name] or results.get((name, one.partition_index), unknown)
            return Topic.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code)

        topics.append(Topic(name=topic.name, partitions=await context.mapped(response, topic.partitions)))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
