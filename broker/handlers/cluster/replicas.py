"""The leaders and the replicas of partitions: ElectLeaders v0-v2 elects the preferred replica, or any running one, as
leader (KIP-183, KIP-460), AlterPartitionReassignments v0-v1 changes the replicas (KIP-455, KIP-860),
ListPartitionReassignments v0 lists the reassignments under way.

All nodes share one log, so a reassignment completes after a moment, or after the time that a throttle gives, if its new
replicas run; else when they run again. Changes require ALTER on the cluster, the list DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ....protocol.messages.cluster.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ....protocol.messages.cluster.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.nodes import Nodes
from ...replica.assignment import Assignment
from ...replica.partition import Partition

ElectionTopic = ElectLeadersResponse.ReplicaElectionResult
Election = ElectionTopic.PartitionResult
RequestedPartition = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition
TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
Result = TopicResult.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
Ongoing = OngoingTopic.OngoingPartitionReassignment

PREFERRED, UNCLEAN = 0, 1
PARTITION_ENTRIES = 2  # entries of a cooperative step for each partition
LISTED_PER_ENTRY = 10  # partitions that are looked up in the time of one entry of a cooperative step
Wanted = dict[tuple[str, int], tuple[Partition, Assignment]]


def _refused_now(wanted: Wanted, judge: Callable[[str, int], Any]) -> dict[tuple[str, int], Any]:
    """Judges changes again: requests that ran meanwhile may have deleted or changed partitions. Returns the results of
    those that are refused now, which are not wanted any more.
    """
    refused: dict[tuple[str, int], Any] = {}
    for key in list(wanted):
        judged = judge(*key)
        if judged.error_code:
            del wanted[key]
            refused[key] = judged
    return refused


# --- ElectLeaders ----------------------------------------------------------------------------------------------------


@handles(ElectLeadersRequest)
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Judges each partition on its own, and applies all changes together. A request for all partitions lists only those
    that changed.
    """
    topics = context.broker.topics
    is_for_all = request.topic_partitions is None
    requested = [(one.topic, one.partitions) for one in request.topic_partitions or ()]
    if is_for_all:
        requested = [(topic.name, [partition.index for partition in topic.partitions]) for topic in topics]
    try:
        context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        is_kraft = context.broker.profile.behaviour.controls_as_kraft
        if request.election_type not in (PREFERRED, UNCLEAN) and (requested or is_for_all or not is_kraft):
            if not is_kraft:  # a ZooKeeper broker fails with an exception
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    except Refused as error:
        return await _not_elected(error, [] if is_for_all else requested, context)
    wanted: Wanted = {}
    judge = partial(_elected, request=request, context=context, wanted=wanted)
    results = [
        ElectionTopic(topic=name, partition_result=await context.mapped(partial(judge, name), indexes))
        for name, indexes in requested
    ]
    if context.is_in_steps and (refused := _refused_now(wanted, judge)):
        for topic in results:
            topic.partition_result = [
                refused.get((topic.topic, one.partition_id), one) for one in topic.partition_result
            ]
    try:
        context.broker.topology.change(list(wanted.values()))
    except Exception as error:
        return await _not_elected(error, requested, context)
    if is_for_all:
        for result in results:
            result.partition_result = [
                one for one in result.partition_result if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    if not is_kraft:
        results = [result for result in results if result.partition_result]
    return ElectLeadersResponse(error_code=_error_of_all(ErrorCode.NONE, context), replica_election_results=results)


def _error_of_all(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """The error of the whole request; v0 has no field for it."""
    return code if context.api_version >= 1 else ErrorCode.NONE


async def _not_elected(
    error: Exception, requested: list[tuple[str, list[int]]], context: RequestContext
) -> ElectLeadersResponse:
    code, message = code_of(error), message_of(error)
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        message = None

    def refused(index: int) -> Election:
        return Election(partition_id=index, error_code=code, error_message=message)

    return ElectLeadersResponse(
        error_code=_error_of_all(code, context),
        replica_election_results=[
            ElectionTopic(topic=name, partition_result=await context.mapped(refused, indexes))
            for name, indexes in requested
        ],
    )


def _elected(name: str, index: int, request: ElectLeadersRequest, context: RequestContext, wanted: Wanted) -> Election:
    broker = context.broker
    try:
        topic = broker.topics.get(name)
        is_there = broker.topics.has_partition(name, index)
        if not is_there and not broker.profile.behaviour.controls_as_kraft:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if not is_there:
            what = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")
        partition = broker.topics.partition(name, index)
        made = broker.topology.elected(partition, unclean=request.election_type == UNCLEAN)
        wanted[name, index] = partition, made
    except Exception as error:
        return Election(partition_id=index, error_code=code_of(error), error_message=message_of(error))
    return Election(partition_id=index, error_code=ErrorCode.NONE, error_message=None)


# --- reassignments ---------------------------------------------------------------------------------------------------


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Judges each partition on its own, and applies all changes together."""
    is_kraft = context.broker.profile.behaviour.controls_as_kraft
    try:
        context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        wanted: Wanted = {}
        results: list[TopicResult] = []
        for topic in request.topics:
            if is_kraft or topic.partitions:

                def altered(requested: RequestedPartition, name: str = topic.name) -> Result:
                    return _altered(name, requested.partition_index, requested.replicas, request, context, wanted)

                each = topic.partitions if is_kraft else _each_once(topic.partitions)
                partitions = await context.mapped(altered, each, PARTITION_ENTRIES)
                results.append(TopicResult(name=topic.name, partitions=partitions))
        if context.is_in_steps:
            replicas = {
                (topic.name, one.partition_index): one.replicas for topic in request.topics for one in topic.partitions
            }

            def altered_now(name: str, index: int) -> Result:
                return _altered(name, index, replicas[name, index], request, context, wanted)

            refused = _refused_now(wanted, altered_now)
            for topic in results if refused else ():
                topic.partitions = [refused.get((topic.name, one.partition_index), one) for one in topic.partitions]
        context.broker.topology.change(list(wanted.values()))
    except Exception as error:
        return await _refused(error, request, context)
    # With an empty request a KRaft controller returns an empty message.
    message = None if is_kraft and request.topics else ""
    made = AlterPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=message, responses=results)
    if request.topics:
        made.allow_replication_factor_change = request.allow_replication_factor_change
    return made


def _each_once(requested: list[RequestedPartition]) -> list[RequestedPartition]:
    """The last entry for each partition."""
    return list({one.partition_index: one for one in requested}.values())


async def _refused(
    error: Exception, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Returns an error of the whole request, repeated for each partition."""
    code, message = code_of(error), message_of(error)

    def refused(requested: RequestedPartition) -> Result:
        return Result(partition_index=requested.partition_index, error_code=code, error_message=message)

    responses = [
        TopicResult(name=topic.name, partitions=await context.mapped(refused, topic.partitions))
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
        is_there = topics.has_partition(name, index)
        if not context.broker.profile.behaviour.controls_as_kraft:
            now = topics.partition(name, index).assignment if is_there else None
            _check_with_zookeeper(now, replicas, context.broker.nodes)
            if not is_there:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if not is_there:
            what = f"a topic named {name}" if topics.get(name) is None else f"partition {name}:{index}"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {what}.")
        partition = topics.partition(name, index)
        made = topology.reassigned(partition, replicas)
        if made == partition.assignment and not context.broker.profile.behaviour.controls_as_kraft:
            # Its controller sends the leader the completed reassignment, with an epoch of its own.
            made = made._replace(leader_epoch=made.leader_epoch + 1, partition_epoch=made.partition_epoch + 1)
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


def _check_with_zookeeper(now: Assignment | None, replicas: list[int] | None, nodes: Nodes) -> None:
    """Makes the checks that a ZooKeeper controller makes first, also for partitions that do not exist."""
    if replicas is None:
        if now is None or not now.is_reassigned:
            raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        return
    before: set[int] = set() if now is None else set(now.replicas) - set(now.adding)
    adding = [node for node in replicas if node not in before]
    problem = None
    if not replicas:
        problem = "Empty replica list specified in partition reassignment."
    elif len(set(replicas)) < len(replicas):
        problem = f"Duplicate replica ids in partition reassignment replica list: {_scala('ArrayBuffer', replicas)}"
    elif min(replicas) < 0:
        problem = f"Invalid broker id in replica list: {_scala('ArrayBuffer', replicas)}"
    elif not set(adding) <= set(nodes.running):
        problem = (
            "Replica assignment has brokers that are not alive. Replica list: "
            f"{_scala('ArrayBuffer', adding)}, live broker list: {_scala('Set', nodes.running)}"
        )
    if problem:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _scala(kind: str, numbers: list[int]) -> str:
    return f"{kind}({', '.join(map(str, numbers))})"


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
        await context.step(1 + len(indexes) // LISTED_PER_ENTRY)
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


def _nothing(index: int) -> Ongoing:
    return Ongoing(partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[])
