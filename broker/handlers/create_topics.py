"""CreateTopics v0-v7 (KIP-4, KIP-464, KIP-525, KIP-516)."""

from __future__ import annotations

from collections import Counter

from ...protocol.errors import ErrorCode
from ...protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ..config import TopicConfig
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..topics import PARTITIONS_AT_ONCE_MAX

Asked = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
Config = Result.CreatableTopicConfigs

BROKER_DEFAULT = -1  # for the counts, since KIP-464


@handles(CreateTopicsRequest)
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Each topic on its own; names that are listed twice are refused."""
    counts = Counter(asked.name for asked in request.topics)
    results = []
    left = PARTITIONS_AT_ONCE_MAX
    for name in counts:
        asked = next(asked for asked in request.topics if asked.name == name)
        try:
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            result = _create(asked, request.validate_only, left, context)
            left -= result.num_partitions
            results.append(result)
        except Exception as error:
            code = code_of(error)
            results.append(Result(name=name, error_code=code, error_message=message_of(error)))
    return CreateTopicsResponse(topics=results)


def _create(asked: Asked, validate_only: bool, left: int, context: RequestContext) -> Result:
    broker = context.broker
    configs = {config.name: config.value for config in asked.configs}
    if len(configs) < len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "A config is listed twice.")
    kept = TopicConfig(broker.config, broker.topics.check_new(asked.name, configs))
    partitions = _partitions(asked, broker.node_id)
    if partitions == BROKER_DEFAULT:
        partitions = broker.config["num.partitions"]
    if partitions > left:
        raise Refused(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if validate_only:
        result = Result(name=asked.name, error_code=0, error_message=None)
    else:
        topic = broker.topics.create(asked.name, partitions, configs, context.now_ms())
        result = Result(name=asked.name, topic_id=topic.id, error_code=0, error_message=None)
    result.num_partitions = partitions
    result.replication_factor = 1
    if context.api_version >= 5:
        entries = [kept.describe(name) for name in kept.names()]
        result.configs = [
            Config(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ]
    return result


def _partitions(asked: Asked, node_id: int) -> int:
    """How many partitions are asked for; there is one node, so one replica of each."""
    if not asked.assignments:
        if asked.replication_factor not in (BROKER_DEFAULT, 1):
            problem = (
                "Replication factor must be larger than 0, or -1 to use the default value."
                if asked.replication_factor < 1
                else f"Unable to replicate the partition {asked.replication_factor} time(s): there is 1 broker."
            )
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        if asked.num_partitions < 1 and asked.num_partitions != BROKER_DEFAULT:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        return asked.num_partitions
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Partition count and replication factor must be -1 where replicas are assigned by hand.",
        )
    check_assignments({a.partition_index: a.broker_ids for a in asked.assignments}, 0, len(asked.assignments), node_id)
    return len(asked.assignments)


def check_assignments(assigned: dict[int, list[int]], first: int, count: int, node_id: int) -> None:
    """Refuses assignments that are not to this node, or not of the partitions `first` .. `first + count - 1`."""
    if sorted(assigned) != list(range(first, first + count)):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions should be a consecutive 0-based integer sequence."
        )
    for index, nodes in assigned.items():
        if nodes != [node_id]:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {index} must have the one replica [{node_id}], not {nodes}.",
            )
