"""ListPartitionReassignments v0: the reassignments under way (KIP-455)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of

OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
Ongoing = OngoingTopic.OngoingPartitionReassignment


LISTED_PER_ENTRY = 10  # partitions that are looked up in the time of one entry of a cooperative step


def _nothing(index: int) -> Ongoing:
    return Ongoing(partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[])


@handles(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Lists all reassignments, or those of the requested partitions; unknown partitions are left out, as in Kafka."""
    try:
        context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    except Refused as error:
        named = [
            OngoingTopic(name=topic.name, partitions=await context.mapped(_nothing, topic.partition_indexes))
            for topic in request.topics or ()
        ]
        return ListPartitionReassignmentsResponse(
            error_code=code_of(error), error_message=message_of(error), topics=named
        )
    topics = context.broker.topics
    requested = [(topic.name, list(range(len(topic.partitions)))) for topic in topics]
    if request.topics is not None:
        requested = [(topic.name, topic.partition_indexes) for topic in request.topics]
    found: list[OngoingTopic] = []
    for name, indexes in requested:
        if context.is_due(1 + len(indexes) // LISTED_PER_ENTRY):
            await context.next_step()
        there = [topics.partition(name, index) for index in indexes if topics.has_partition(name, index)]
        ongoing = [
            Ongoing(
                partition_index=partition.index,
                replicas=list(partition.assignment.replicas),
                adding_replicas=list(partition.assignment.adding),
                removing_replicas=list(partition.assignment.removing),
            )
            for partition in there
            if partition.assignment.is_reassigned
        ]
        if ongoing:
            found.append(OngoingTopic(name=name, partitions=ongoing))
    message = None if context.broker.profile.behaviour.controls_as_kraft else ""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=message, topics=found)
