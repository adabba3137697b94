"""CreatePartitions v0-v3 (KIP-195). Requires ALTER on each topic."""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.topics import PARTITIONS_AT_ONCE_MAX, Topic
from .assignments import check_more

RequestedTopic = CreatePartitionsRequest.CreatePartitionsTopic
Result = CreatePartitionsResponse.CreatePartitionsTopicResult
TOPIC_ENTRIES = 20  # entries of a cooperative step for each topic
STRICT_FROM = 3  # the first version that a controller mutation quota refuses


@handles(CreatePartitionsRequest)
async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Handles each topic on its own; a name that is listed twice is refused. As in Kafka, topics without permission
    come first.
    """
    as_kraft = context.broker.profile.behaviour.topics_as_kraft
    counts = Counter(requested.name for requested in request.topics)
    results: list[Result] = []
    denied: list[Result] = []
    if context.broker.profile.behaviour.limits_added_partitions and await _is_excessive(request, counts, context):
        code = ErrorCode.POLICY_VIOLATION
        problem = "Excessively large number of additional partitions per request."

        def refused(requested: RequestedTopic) -> Result:
            return Result(name=requested.name, error_code=code, error_message=problem)

        return CreatePartitionsResponse(results=await context.mapped(refused, request.topics))
    left = PARTITIONS_AT_ONCE_MAX
    for name, requested in {requested.name: requested for requested in request.topics}.items():
        await context.step(TOPIC_ENTRIES)
        try:
            if counts[name] > 1:
                problem = "Duplicate topic name." if as_kraft else "Duplicate topic in request."
                raise Refused(ErrorCode.INVALID_REQUEST, problem)
            if not context.allowed(AclOperation.ALTER, ResourceType.TOPIC, name):
                denied.append(_refused(name, context))
                continue
            topic = context.broker.topics.get(name)
            if topic is None:
                problem = "" if as_kraft else f"The topic '{name}' does not exist."
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
            replicas = _checked(topic, requested, left, context)
            added = requested.count - len(topic.partitions)
            left -= added
            context.mutates(added, strict_from=STRICT_FROM, validate_only=request.validate_only)
            if not request.validate_only:
                adding = context.broker.topics.adding_partitions(topic, requested.count, context.now_ms(), replicas)
                await context.broker.topics.changes.make(name, adding)
        except Exception as error:
            # A KRaft controller has no message for an unknown topic.
            message = message_of(error) if not isinstance(error, Refused) or error.message else None
            results.append(Result(name=name, error_code=code_of(error), error_message=message))
        else:
            results.append(Result(name=name, error_code=0))
    return CreatePartitionsResponse(results=denied + results)


async def _is_excessive(request: CreatePartitionsRequest, counts: Counter[str], context: RequestContext) -> bool:
    """Whether the topics that may be altered would get too many partitions together."""
    total = 0
    for requested in request.topics:
        await context.step()
        topic = context.broker.topics.get(requested.name)
        if topic is None or counts[requested.name] > 1:
            continue
        added = requested.count - len(topic.partitions)
        if added > 0 and context.allowed(AclOperation.ALTER, ResourceType.TOPIC, requested.name):
            total += added
    return total > PARTITIONS_AT_ONCE_MAX


def _refused(name: str, context: RequestContext) -> Result:
    """A ZooKeeper controller has a message for this refusal, a KRaft controller has none."""
    has_words = context.broker.profile.behaviour.refusal_texts != "alter"
    message = "The topic authorization is failed." if has_words else None
    return Result(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=message)


def _checked(topic: Topic, requested: RequestedTopic, left: int, context: RequestContext) -> list[list[int]] | None:
    """The replicas of the new partitions if they are assigned manually, else None. Raises Refused."""
    now = len(topic.partitions)
    as_kraft = context.broker.profile.behaviour.topics_as_kraft
    if requested.count <= now:
        if requested.count == now:
            problem = f"Topic already has {now} partition(s)." if as_kraft else f"Topic already has {now} partitions."
        elif as_kraft:
            problem = (
                f"The topic {topic.name} currently has {now} partition(s); {requested.count} would not be an increase."
            )
        else:
            problem = f"Topic currently has {now} partitions, which is higher than the requested {requested.count}."
        raise Refused(ErrorCode.INVALID_PARTITIONS, problem)
    if requested.count - now > left:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"A request creates at most {PARTITIONS_AT_ONCE_MAX} partitions.")
    if requested.assignments is None:
        context.broker.topics.check_racks()
        return None
    if len(requested.assignments) != requested.count - now:
        added, given = requested.count - now, len(requested.assignments)
        problem = f"Increasing the number of partitions by {added} but {given} assignments provided."
        if as_kraft:
            problem = (
                f"Attempted to add {added} additional partition(s), but only {given} assignment(s) were specified."
            )
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    replicas = [given.broker_ids for given in requested.assignments]
    factor = len(topic.partitions[0].replicas) if topic.partitions else None
    check_more(now, replicas, factor, context)
    return replicas
