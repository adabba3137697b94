"""CreateTopics v0-v7 (KIP-4, KIP-464, KIP-525, KIP-516).

Asks for the right to create each topic; what configs it has is told to those who may DESCRIBE_CONFIGS.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.topics.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ...config.values import TopicConfig
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...metadata.log import TOPIC as METADATA_TOPIC
from ...metadata.topics import PARTITIONS_AT_ONCE_MAX
from ...replica.assignment import NO_LEADER
from .assignments import check_new

Asked = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
Config = Result.CreatableTopicConfigs

CONFIGS_FROM = 5  # the first version that tells them
TOPIC_ENTRIES = 50  # what a topic counts in a cooperative step
BROKER_DEFAULT = -1  # for the counts, since KIP-464
STRICT_FROM = 6  # the first version that a quota of mutations refuses (KIP-599)


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Each topic on its own; names that are listed twice are refused. As in Kafka, those that may not be created come
    last."""
    counts = Counter(asked.name for asked in request.topics)
    results: list[Result] = []
    denied: list[Result] = []
    if _partitions(request, context) > PARTITIONS_AT_ONCE_MAX:
        code, problem = ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."

        def refused(asked: Asked) -> Result:
            return Result(name=asked.name, error_code=code, error_message=problem)

        return CreateTopicsResponse(topics=await context.mapped(refused, request.topics))
    for name, asked in {asked.name: asked for asked in request.topics}.items():
        if context.is_due(TOPIC_ENTRIES):
            await context.next_step()
        try:
            if counts[name] > 1:
                results += _listed_twice(name, counts[name], context)
                continue
            if name != METADATA_TOPIC and not context.may_create(name):
                denied.append(_denied(name, context))
                continue
            result = await _create(asked, request.validate_only, context)
            if context.api_version >= CONFIGS_FROM:
                _hide_configs(result, context)
            results.append(result)
        except Exception as error:
            code = code_of(error)
            results.append(Result(name=name, error_code=code, error_message=message_of(error)))
    return CreateTopicsResponse(topics=results + denied)


def _partitions(request: CreateTopicsRequest, context: RequestContext) -> int:
    """How many partitions the topics of a request would have, as Kafka's controller counts before it looks at them."""
    default = context.broker.config["num.partitions"]
    return sum(
        len(asked.assignments) or (default if asked.num_partitions == BROKER_DEFAULT else max(0, asked.num_partitions))
        for asked in request.topics
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
    """Takes what the topic was made with out of the answer, unless whoever asks may know it."""
    if not context.allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, result.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions = result.replication_factor = -1
        result.configs = []


async def _create(asked: Asked, validate_only: bool, context: RequestContext) -> Result:
    broker = context.broker
    configs = {config.name: config.value for config in asked.configs}
    as_kraft = broker.profile.behaviour.topics_as_kraft
    if not as_kraft:  # where what is wrong with the name is found later, and with the configs last
        _check_first(asked, context)
        _check_one_way(asked, context)
        _check_counts(asked, context)
        broker.topics.check_free(asked.name)
        _assigned(asked, context)
    kept = TopicConfig(broker.config, broker.topics.check_new(asked.name, configs))
    replicas = _assigned(asked, context)
    partitions = len(replicas or ()) or asked.num_partitions
    factor = len(replicas[0]) if replicas else asked.replication_factor
    if replicas is None:
        topics = broker.topics
        if factor < 1 and factor != BROKER_DEFAULT:
            topics.check_factor(factor)
        partitions = _count(partitions, context)  # before it is seen whether there are nodes for so many replicas
        factor = topics.replication_factor(asked.name) if factor == BROKER_DEFAULT else topics.check_factor(factor)
    context.mutates(partitions, strict_from=STRICT_FROM, validate_only=validate_only)
    if replicas is None:
        replicas = broker.topics.place(partitions, factor)
    if validate_only:
        result = Result(name=asked.name, error_code=0, error_message=None)
    else:
        creating = broker.topics.creating(asked.name, partitions, configs, context.now_ms(), replicas)
        topic = await broker.topics.changes.make(asked.name, creating)
        if not as_kraft and any(partition.leader == NO_LEADER for partition in topic.partitions):
            # The topic is there, and Kafka waits for its leaders in vain.
            return Result(name=asked.name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)
        result = Result(name=asked.name, topic_id=topic.id, error_code=0, error_message=None)
    result.num_partitions = partitions
    result.replication_factor = factor
    if context.api_version >= CONFIGS_FROM:
        entries = [kept.describe(name) for name in kept.names()]
        as_given = kept.overrides if as_kraft else {}  # whatever DescribeConfigs makes of it
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


def _check_first(asked: Asked, context: RequestContext) -> None:
    if context.broker.topics.get(asked.name) is not None:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    without = [config.name for config in asked.configs if config.value is None]
    if without:
        listed = ",".join(without)
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for topic configs : {listed}")


def _check_counts(asked: Asked, context: RequestContext) -> None:
    if not asked.assignments:
        _count(asked.num_partitions, context)
        if asked.replication_factor != BROKER_DEFAULT:
            context.broker.topics.check_factor(asked.replication_factor)


def _count(asked: int, context: RequestContext) -> int:
    if asked == BROKER_DEFAULT:
        return context.broker.config["num.partitions"]
    if asked < 1:
        problem = "Number of partitions must be larger than 0."
        if context.broker.profile.behaviour.topics_as_kraft:
            problem = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, problem)
    return asked


def _assigned(asked: Asked, context: RequestContext) -> list[list[int]] | None:
    """The replicas of each partition where they are assigned by hand."""
    if not asked.assignments:
        return None
    _check_one_way(asked, context)
    return check_new([(one.partition_index, one.broker_ids) for one in asked.assignments], context)


def _check_one_way(asked: Asked, context: RequestContext) -> None:
    """Replicas are counted or assigned."""
    if not asked.assignments:
        return
    problem = None
    if asked.replication_factor != -1:
        problem = "replication factor"
    elif asked.num_partitions != -1:
        problem = "numPartitions"
    if problem and context.broker.profile.behaviour.topics_as_kraft:
        problem = f"A manual partition assignment was specified, but {problem} was not set to -1."
    elif problem:
        problem = "Both numPartitions or replicationFactor and replicasAssignments were set. "
        problem += "Both cannot be used at the same time."
    if problem:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)
