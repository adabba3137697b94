"""AlterPartitionReassignments v0-v1: the nodes that have a partition's replicas (KIP-455, KIP-860).

All nodes read one log, so a reassignment is done at once where the new ones run; else it stays under way until they do.
"""

from __future__ import annotations

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..nodes import Assignment
from ..partitions import Partition

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Result = TopicResult.ReassignablePartitionResponse

Wanted = dict[tuple[str, int], tuple[Partition, Assignment]]


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Each partition on its own, all that change at once."""
    try:
        context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        if not request.topics and context.broker.profile.behaviour.controls_as_kraft:
            return AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message="", responses=[])
        wanted: Wanted = {}
        results = [
            TopicResult(
                name=topic.name,
                partitions=[
                    _altered(topic.name, asked.partition_index, asked.replicas, request, context, wanted)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        context.broker.topology.change(list(wanted.values()))
    except Exception as error:
        return _refused(error, request)
    made = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, responses=results)
    made.allow_replication_factor_change = request.allow_replication_factor_change
    return made


def _refused(error: Exception, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """The error of the whole, which each partition has too."""
    code, message = code_of(error), message_of(error)
    responses = [
        TopicResult(
            name=topic.name,
            partitions=[
                Result(partition_index=asked.partition_index, error_code=code, error_message=message)
                for asked in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)


def _altered(
    name: str,
    index: int,
    replicas: list[int] | None,
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,
    wanted: Wanted,
) -> Result:
    topics, topology = context.broker.topics, context.broker.topology
    try:
        if not topics.has_partition(name, index):
            if not context.broker.profile.behaviour.controls_as_kraft:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
            what = f"a topic named {name}" if topics.get(name) is None else f"partition {name}:{index}"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {what}.")
        partition = topics.partition(name, index)
        made = topology.reassigned(partition, replicas)
        factor = len(partition.assignment.target)
        if replicas is not None and not request.allow_replication_factor_change and len(replicas) != factor:
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(replicas)}",
            )
        wanted[name, index] = partition, made
    except Exception as error:
        code, message = code_of(error), message_of(error)
        if code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and context.broker.profile.behaviour.controls_as_kraft:
            message = None
        return Result(partition_index=index, error_code=code, error_message=message)
    return Result(partition_index=index, error_code=ErrorCode.NONE, error_message=None)
