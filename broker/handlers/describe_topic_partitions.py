"""DescribeTopicPartitions v0: topics page by page (KIP-966). Without replicas there are no eligible leaders to list."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ...protocol.primitives import ZERO_UUID
from ..context import RequestContext, handles
from ..errors import Refused, code_of
from ..topics import check_name
from .metadata import NO_LEADER, TOPIC_OPERATIONS

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = Topic.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Topics in order of their names, from the cursor on, up to the limit of partitions."""
    broker = context.broker
    asked = sorted({topic.name for topic in request.topics} or {topic.name for topic in broker.topics})
    first_name, first_index = "", 0
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0:
            refused = ErrorCode.INVALID_REQUEST
            return DescribeTopicPartitionsResponse(
                topics=[Topic(error_code=refused, name=name, topic_id=ZERO_UUID, partitions=[]) for name in asked]
            )
    left = max(1, min(request.response_partition_limit, broker.config["max.request.partition.size.limit"]))
    answer = DescribeTopicPartitionsResponse(topics=[])
    for name in asked:
        if name < first_name:
            continue
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        start = first_index if name == first_name else 0
        described = _topic(name, start, left, context)
        answer.topics.append(described)
        left -= len(described.partitions)
        topic = broker.topics.get(name)
        if topic is not None and start + len(described.partitions) < len(topic.partitions):
            answer.next_cursor = Cursor(topic_name=name, partition_index=start + len(described.partitions))
            break
    return answer


def _topic(name: str, start: int, limit: int, context: RequestContext) -> Topic:
    try:
        check_name(name)
        topic = context.broker.topics.named(name)
    except Refused as refused:
        return Topic(error_code=code_of(refused), name=name, topic_id=ZERO_UUID, partitions=[])
    node = [context.broker.node_id]
    return Topic(
        error_code=0,
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            Partition(
                error_code=0,
                partition_index=partition.index,
                leader_id=node[0] if partition.offline is None else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[] if partition.offline is None else node,
            )
            for partition in topic.partitions[start : start + limit]
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
