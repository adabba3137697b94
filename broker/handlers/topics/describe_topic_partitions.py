"""DescribeTopicPartitions v0: topics page by page (KIP-966).

A partition in a failed directory has its last ISR as eligible leader replicas: no replica ever lags. Topics without
permission are left out of a list of all topics, and come last if they were requested, as in Kafka.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.topics.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...metadata.topics import check_name
from ...replica.assignment import NO_LEADER
from ...replica.partition import Partition as Described

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Lists topics by name, from the cursor on, up to the limit of partitions."""
    broker = context.broker
    requested = sorted({topic.name for topic in request.topics} or {topic.name for topic in broker.topics})
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0 or (request.topics and first_name not in requested):
            code = ErrorCode.INVALID_REQUEST
            return DescribeTopicPartitionsResponse(
                topics=[Topic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[]) for name in requested]
            )
    left = max(1, min(request.response_partition_limit, context.config["max.request.partition.size.limit"]))
    response = DescribeTopicPartitionsResponse(topics=[])
    refused: list[Topic] = []
    for name in requested:
        await context.step()
        if name < first_name:
            continue
        if not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if request.topics:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(Topic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[]))
            continue
        if response.next_cursor is not None:
            if not request.topics:
                break
            continue  # to the refused topics, which count for no limit
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            continue
        start = first_index if name == first_name else 0
        described = _topic(name, start, left, context)
        response.topics.append(described)
        left -= len(described.partitions)
        topic = broker.topics.get(name)
        if topic is not None and start + len(described.partitions) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=start + len(described.partitions))
    response.topics += refused
    return response


def _topic(name: str, start: int, limit: int, context: RequestContext) -> Topic:
    try:
        check_name(name)
        topic = context.broker.topics.named(name)
    except Refused as refused:
        response = Topic(error_code=code_of(refused), name=name, topic_id=ZERO_UUID, partitions=[])
        response.topic_authorized_operations = context.authorized_operations(ResourceType.TOPIC, name)
        return response
    return Topic(
        error_code=0,
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(partition, context) for partition in topic.partitions[start : start + limit]],
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


def _partition(partition: Described, context: RequestContext) -> Partition:
    broker, is_there = context.broker, partition.offline is None
    leader, replicas, isr = partition.leader if is_there else NO_LEADER, list(partition.replicas), list(partition.isr)
    eligible, last_known = list(partition.assignment.eligible), list(partition.assignment.last_known)
    if not is_there and broker.features.eligible_leaders:  # in a failed directory, which no assignment has
        eligible, isr = sorted({*eligible, *isr}), []
        last_known = last_known or [partition.leader]
    return Partition(
        error_code=0,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        eligible_leader_replicas=eligible,
        last_known_elr=last_known,
        offline_replicas=[node for node in replicas if not is_there or not broker.nodes.runs(node)],
    )
