"""CreateTopics v0-v7 (KIP-4, KIP-464, KIP-525, KIP-516).

Requires CREATE for each topic. Its configs are in the response if the principal has DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ....protocol.messages.topics.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ...config.values import TopicConfig
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.topics import BROKER_DEFAULT, PARTITIONS_AT_ONCE_MAX, TOO_MANY_PARTITIONS
from ...replica.assignment import NO_LEADER
from .assignments import check_new

RequestedTopic = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
Config = Result.CreatableTopicConfigs

CONFIGS_FROM = 5  # the first version with configs in the response
TOPIC_ENTRIES = 50  # entries of a cooperative step for each topic
STRICT_FROM = 6  # the first version that a controller mutation quota refuses (KIP-599)


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Handles each topic on its own; a name that is listed twice is refused. As in Kafka, topics without permission
    come last.
    """
    counts = Counter(requested.name for requested in request.topics)
    results: list[Result] = []
    denied: list[Result] = []
    if _partitions(request, context) > PARTITIONS_AT_ONCE_MAX:
        code, problem = ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS

        def refused(requested: RequestedTopic) -> Result:
            return Result(name=requested.name, error_code=code, error_message=problem)

        return CreateTopicsResponse(topics=await context.mapped(refused, request.topics))
    for name, requested in {requested.name: requested for requested in request.topics}.items():
        await context.step(TOPIC_ENTRIES)
        try:
            if counts[name] > 1:
                results += _listed_twice(name, counts[name], context)
                continue
            if name == METADATA_TOPIC and context.broker.profile.behaviour.topics_as_kraft:
                raise Refused(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
            if name != METADATA_TOPIC and not context.may_create(name):
                denied.append(_denied(name, context))
                continue
            result = await _create(requested, request.validate_only, context)
            if context.api_version >= CONFIGS_FROM:
                _hide_configs(result, context)
            results.append(result)
        except Exception as error:
            code = code_of(error)
            results.append(Result(name=name, error_code=code, error_message=message_of(error)))
    return CreateTopicsResponse(topics=results + denied)


def _partitions(request: CreateTopicsRequest, context: RequestContext) -> int:
    """The number of partitions in all topics of a request; Kafka's controller counts them before it checks the
    topics.
    """
    default = context.broker.config["num.partitions"]
    return sum(
        len(requested.assignments)
        or (default if requested.num_partitions == BROKER_DEFAULT else max(0, requested.num_partitions))
        for requested in request.topics
    )


def _listed_twice(name: str, times: int, context: RequestContext) -> list[Result]:
    as_kraft = context.broker.profile.behaviour.topics_as_kraft
    problem = "Duplicate topic name." if as_kraft else "Found multiple entries for this topic."
    refused = Result(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    return [refused] * (1 if as_kraft else times)


def _denied(name: str, context: RequestContext) -> Result:
    behaviour = context.broker.profile.behaviour
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if behaviour.creates_by_topic:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    text = None if behaviour.refusal_texts == "none" else "Authorization failed."
    return Result(name=name, error_code=code, error_message=text)


def _hide_configs(result: Result, context: RequestContext) -> None:
    """Removes the topic's configs from the response unless the principal may see them."""
    if not context.allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
        result.configs = []


async def _create(requested: RequestedTopic, validate_only: bool, context: RequestContext) -> Result:
    broker = context.broker
    configs = {config.name: config.value for config in requested.configs}
    as_kraft = broker.profile.behaviour.topics_as_kraft
    if not as_kraft:  # a KRaft controller checks the name later, and the configs last
        _check_first(requested, context)
        _check_one_way(requested, context)
        _check_counts(requested, context)
        broker.topics.check_free(requested.name)
        _assigned(requested, context)
    kept = TopicConfig(broker.config, broker.topics.check_new(requested.name, configs))
    replicas = _assigned(requested, context)
    partitions = len(replicas or ()) or requested.num_partitions
    factor = len(replicas[0]) if replicas else requested.replication_factor
    if replicas is None:
        topics = broker.topics
        if factor < 1 and factor != BROKER_DEFAULT:
            topics.check_factor(factor)
        partitions = _count(partitions, context)  # before the check whether there are enough nodes for the replicas
        factor = topics.replication_factor(requested.name) if factor == BROKER_DEFAULT else topics.check_factor(factor)
    context.mutates(partitions, strict_from=STRICT_FROM, validate_only=validate_only)
    if replicas is None:
        broker.topics.check_racks()
        replicas = broker.topics.place(partitions, factor)
    if validate_only:
        result = Result(name=requested.name, error_code=0, error_message=None)
    else:
        creating = broker.topics.creating(requested.name, partitions, configs, context.now_ms(), replicas)
        topic = await broker.topics.changes.make(requested.name, creating)
        if not as_kraft and any(partition.leader == NO_LEADER for partition in topic.partitions):
            # The topic exists; Kafka waits in vain for its leaders.
            return Result(name=requested.name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)
        result = Result(name=requested.name, topic_id=topic.id, error_code=0, error_message=None)
    result.num_partitions = partitions
    result.replication_factor = factor
    if context.api_version >= CONFIGS_FROM:
        entries = [kept.describe(name) for name in kept.names()]
        as_given = kept.overrides if as_kraft else {}  # as requested, even where DescribeConfigs shows another form
        result.configs = [
            Config(
                name=entry.name,
                value=as_given.get(entry.name, entry.value),
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ]
    return result


def _check_first(requested: RequestedTopic, context: RequestContext) -> None:
    if context.broker.topics.get(requested.name) is not None:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{requested.name}' already exists.")
    without = [config.name for config in requested.configs if config.value is None]
    if without:
        listed = ",".join(without)
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for topic configs : {listed}")


def _check_counts(requested: RequestedTopic, context: RequestContext) -> None:
    if not requested.assignments:
        _count(requested.num_partitions, context)
        if requested.replication_factor != BROKER_DEFAULT:
            context.broker.topics.check_factor(requested.replication_factor)


def _count(requested: int, context: RequestContext) -> int:
    if requested == BROKER_DEFAULT:
        return context.broker.config["num.partitions"]
    if requested < 1:
        problem = "Number of partitions must be larger than 0."
        if context.broker.profile.behaviour.topics_as_kraft:
            problem = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, problem)
    return requested


def _assigned(requested: RequestedTopic, context: RequestContext) -> list[list[int]] | None:
    """The replicas of each partition if they are assigned manually, else None. Raises Refused."""
    if not requested.assignments:
        return None
    _check_one_way(requested, context)
    return check_new([(one.partition_index, one.broker_ids) for one in requested.assignments], context)


def _check_one_way(requested: RequestedTopic, context: RequestContext) -> None:
    """Raises Refused if both counts and manual assignments are given."""
    if not requested.assignments:
        return
    problem = None
    if requested.replication_factor != -1:
        problem = "replication factor"
    elif requested.num_partitions != -1:
        problem = "numPartitions"
    if problem and context.broker.profile.behaviour.topics_as_kraft:
        problem = f"A manual partition assignment was specified, but {problem} was not set to -1."
    elif problem:
        problem = "Both numPartitions or replicationFactor and replicasAssignments were set. "
        problem += "Both cannot be used at the same time."
    if problem:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
