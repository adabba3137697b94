"""Metadata v0-v13: brokers, topics and partitions; creates unknown topics where allowed (KIP-4, KIP-516).

On request (an extension of Ottla's) each topic has the two fields of KIP-192: the message format of its log, and
`max.message.bytes`. Requires DESCRIBE on each topic, and CREATE for unknown ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT32_MIN
from ....protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ....protocol.primitives import ZERO_UUID
from ...config.message_format import target_magic
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...metadata.topics import Topic, check_name, is_internal
from ...replica.assignment import NO_LEADER
from ...security.authorizer import REFUSAL_TEXTS
from ..leaders import endpoint

if TYPE_CHECKING:
    from collections.abc import Container

    from ...broker_state import BrokerState
    from ...connection_info import ConnectionInfo
    from ...replica.partition import Partition

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition

BY_ID_FROM = 12  # v10 and v11 have the field without a meaning
NOT_REQUESTED = INT32_MIN
NO_OPERATION = 0
CREATED_MAX = 1000
"""Partitions that one request creates. Further topics have the error of an unknown topic, which clients retry."""
CREATED_ENTRIES = 50  # entries of a cooperative step for each created topic
REPEATED_TOPICS_MAX = 100  # of a request of all topics whose response may be repeated
PARTITIONS_PER_ENTRY = 4
"""Partitions of a topic that count as one entry of a cooperative step."""


def _facts(request: MetadataRequest, broker: BrokerState, info: ConnectionInfo) -> Any:
    """The facts of a response, see `handles`; None if a topic would be created or has an error."""
    topics, nodes = broker.topics, broker.nodes
    if request.include_message_format:
        return None
    if request.topics:
        described = [
            topics.get(topic.name) if topic.topic_id == ZERO_UUID else topics.by_id(topic.topic_id)
            for topic in request.topics
        ]
    else:
        described = [] if len(topics) > REPEATED_TOPICS_MAX else list(topics)
    if not described or None in described:
        return None
    return (
        [
            (topic, [(one.leader, one.assignment, one.leader_epoch, one.offline) for one in topic.partitions])
            for topic in described
            if topic is not None
        ],
        [(node_id, broker.endpoint(info, node_id), nodes.racks[node_id]) for node_id in nodes.running],
        nodes.controller,
        broker.features.eligible_leaders,
    )


@handles(MetadataRequest, _facts)
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describes topics. Null requests all topics, as does an empty list in v0. Topics without permission are left out
    of all topics, and come last if they were requested, as in Kafka.
    """
    broker = context.broker
    if request.include_message_format and context.connection_info.library.software_name is not None:
        context.connection_info.library.requests_formats = True
    wants_id = any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ())
    if wants_id and context.api_version < BY_ID_FROM:
        return await _refused(request, context)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        topics: list[TopicResponse] = []
        for topic in broker.topics:
            await context.step(1 + len(topic.partitions) // PARTITIONS_PER_ENTRY)
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
                topics.append(_topic_response(topic, request, context))
    else:
        # Each topic once, in the order of the request. If any topic has an id, names are ignored.
        by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics)
        requested = dict.fromkeys(
            (None if by_id else topic.name, topic.topic_id)
            for topic in request.topics
            if not by_id or topic.topic_id != ZERO_UUID
        )
        topics = []
        left = CREATED_MAX
        for name, topic_id in requested:
            await context.step()
            is_new = name is not None and broker.topics.get(name) is None
            response = await _requested_topic(name, topic_id, request, context, left)
            left -= len(response.partitions) if is_new else 0
            await context.step(len(response.partitions) // PARTITIONS_PER_ENTRY)
            topics.append(response)
        if broker.authorizer is not None:
            topics.sort(key=lambda response: response.error_code in REFUSAL_TEXTS)
    node = MetadataResponse.MetadataResponseBroker
    return MetadataResponse(
        brokers=[endpoint(node, node_id, context) for node_id in broker.nodes.running],
        cluster_id=broker.cluster_id,
        controller_id=broker.nodes.controller,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


async def _refused(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Refuses topic ids in the versions that have them without a meaning."""
    refused = ErrorCode.INVALID_REQUEST

    def response(topic: MetadataRequest.MetadataRequestTopic) -> TopicResponse:
        return TopicResponse(error_code=refused, name=topic.name or "", topic_id=topic.topic_id, partitions=[])

    return MetadataResponse(brokers=[], topics=await context.mapped(response, request.topics or ()))


def cluster_operations(context: RequestContext) -> int:
    """The bit field of the operations that the principal may do on the cluster; none without DESCRIBE."""
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return NO_OPERATION
    return context.authorized_operations(ResourceType.CLUSTER)


async def _requested_topic(
    name: str | None, topic_id: bytes, request: MetadataRequest, context: RequestContext, left: int
) -> TopicResponse:
    """The response for one topic, which may be created with up to `left` partitions."""
    broker = context.broker
    by_id = name is None
    is_described = False
    try:
        if by_id:
            topic = broker.topics.by_id(topic_id)
            if topic is None:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
            context.check_topic(AclOperation.DESCRIBE, topic.name)
        else:
            context.check_topic(AclOperation.DESCRIBE, name)
            is_described = True
            topic = broker.topics.get(name)
            if topic is None:
                topic = await _created(name, request.allow_auto_topic_creation, context, left)
    except Exception as error:
        # v11 and older have no null name.
        shown = name if name is not None or context.api_version >= 12 else ""
        response = TopicResponse(error_code=code_of(error), name=shown, topic_id=topic_id, partitions=[])
        response.is_internal = is_described and is_internal(name or "", context.broker.config)
        if name is not None and is_described and request.include_topic_authorized_operations:
            response.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, name)
        return response
    return _topic_response(topic, request, context)


async def _created(name: str, allowed: bool, context: RequestContext, left: int) -> Topic:
    broker = context.broker
    is_made = allowed and context.config["auto.create.topics.enable"]
    if is_made and not context.may_create(name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    check_name(name)
    if not is_made or left <= 0:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    await context.step(CREATED_ENTRIES)
    topic = await broker.auto_create(name, context.now_ms())
    context.mutates(len(topic.partitions), strict_from=None)
    created = broker.profile.behaviour.created_topic
    if created != "ready":
        raise Refused(ErrorCode[created])
    return topic


def _topic_response(topic: Topic, request: MetadataRequest, context: RequestContext) -> TopicResponse:
    broker = context.broker
    running = frozenset(broker.nodes.running)
    of_version = _partition_response_v0 if context.api_version == 0 else _partition_response
    has_eligible = broker.features.eligible_leaders
    response = TopicResponse(
        error_code=0,
        name=topic.name,
        topic_id=topic.id or ZERO_UUID,
        is_internal=topic.is_internal,
        partitions=[of_version(partition, running, has_eligible) for partition in topic.partitions],
        topic_authorized_operations=NOT_REQUESTED,
    )
    if request.include_topic_authorized_operations:
        response.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, topic.name)
    if request.include_message_format:
        response.message_format_version = target_magic(topic.config, broker.config)
        response.max_message_bytes = topic.config["max.message.bytes"]
    return response


def _partition_response(partition: Partition, running: Container[int], has_eligible: bool) -> PartitionResponse:
    """A partition's response. A partition without a leader, as after a disk failure, has an empty ISR in releases with
    eligible leader replicas (KIP-966).
    """
    is_there = partition.offline is None
    leader = partition.leader if is_there else NO_LEADER
    replicas = partition.replicas
    return PartitionResponse(
        error_code=0 if leader != NO_LEADER else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=[] if has_eligible and leader == NO_LEADER else list(partition.isr),
        offline_replicas=list(replicas) if not is_there else [node for node in replicas if node not in running],
    )


def _partition_response_v0(partition: Partition, running: Container[int], has_eligible: bool) -> PartitionResponse:
    """A partition's response in v0, which has no field for offline replicas: they are left out, with an error."""
    response = _partition_response(partition, running, has_eligible)
    response.replica_nodes = [node for node in response.replica_nodes if node in running]
    response.isr_nodes = [node for node in response.isr_nodes if node in running]
    if not response.error_code and len(response.replica_nodes) < len(partition.replicas):
        response.error_code = ErrorCode.REPLICA_NOT_AVAILABLE
    return response
