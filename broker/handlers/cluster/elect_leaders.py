"""ElectLeaders v0-v2: elects the preferred replica, or any running one, as leader (KIP-183, KIP-460)."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...replica.assignment import Assignment
from ...replica.partition import Partition

TopicResult = ElectLeadersResponse.ReplicaElectionResult
Result = TopicResult.PartitionResult

PREFERRED, UNCLEAN = 0, 1

Wanted = dict[tuple[str, int], tuple[Partition, Assignment]]


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
        return await _refused(error, [] if is_for_all else requested, context)
    wanted: Wanted = {}
    results: list[TopicResult] = []
    for name, indexes in requested:

        def elected(index: int, name: str = name) -> Result:
            return _elected(name, index, request, context, wanted)

        results.append(TopicResult(topic=name, partition_result=await context.mapped(elected, indexes)))
    if context.is_in_steps:
        _judge_again(results, request, context, wanted)
    try:
        context.broker.topology.change(list(wanted.values()))
    except Exception as error:
        return await _refused(error, requested, context)
    if is_for_all:
        for result in results:
            result.partition_result = [
                one for one in result.partition_result if one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ]
    if not is_kraft:
        results = [result for result in results if result.partition_result]
    return ElectLeadersResponse(error_code=_error_of_all(ErrorCode.NONE, context), replica_election_results=results)


def _judge_again(
    results: list[TopicResult], request: ElectLeadersRequest, context: RequestContext, wanted: Wanted
) -> None:
    """Judges the changes again: requests that ran meanwhile may have deleted or changed partitions."""
    refused: dict[tuple[str, int], Result] = {}
    for key in list(wanted):
        judged = _elected(*key, request, context, wanted)
        if judged.error_code:
            wanted.pop(key, None)
            refused[key] = judged
    if refused:
        for topic in results:
            topic.partition_result = [
                refused.get((topic.topic, one.partition_id), one) for one in topic.partition_result
            ]


def _error_of_all(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """The error of the whole request; v0 has no field for it."""
    return code if context.api_version >= 1 else ErrorCode.NONE


async def _refused(
    error: Exception, requested: list[tuple[str, list[int]]], context: RequestContext
) -> ElectLeadersResponse:
    code, message = code_of(error), message_of(error)
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        message = None

    def refused(index: int) -> Result:
        return Result(partition_id=index, error_code=code, error_message=message)

    return ElectLeadersResponse(
        error_code=_error_of_all(code, context),
        replica_election_results=[
            TopicResult(topic=name, partition_result=await context.mapped(refused, indexes))
            for name, indexes in requested
        ],
    )


def _elected(name: str, index: int, request: ElectLeadersRequest, context: RequestContext, wanted: Wanted) -> Result:
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
        return Result(partition_id=index, error_code=code_of(error), error_message=message_of(error))
    return Result(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
