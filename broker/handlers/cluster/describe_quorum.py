"""DescribeQuorum v0-v2: the voters of the metadata log (KIP-595, KIP-836, KIP-853). Requires DESCRIBE on the cluster.

There is one metadata log and one voter, the controller of Metadata responses. The other running nodes are observers
without lag. As in a quorum of fixed voters, directory ids are left out. The controller's endpoint is the listener of
its node: it has none of its own.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from ...context import RequestContext, handles
from ...metadata.log import TOPIC

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node
RequestedPartition = DescribeQuorumRequest.TopicData.PartitionData

MESSAGES_SINCE = 2
TIMES_SINCE = 1
UNKNOWN = "This server does not host this topic-partition."
EPOCH = 1  # the leader epoch of a quorum's first leader, the only one here


@handles(DescribeQuorumRequest)
async def describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describes the one partition of the metadata log. As in Kafka, a request for any other partition fails for all of
    them.
    """
    context.check_allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    requested = [(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    if requested != [(TOPIC, 0)] or len(request.topics) != 1:
        topics = [
            Topic(topic_name=topic.topic_name, partitions=await context.mapped(_unknown, topic.partitions))
            for topic in request.topics
        ]
        return DescribeQuorumResponse(error_code=0, topics=topics)
    nodes = context.broker.nodes
    leader, end = nodes.controller, context.broker.metadata_log.end_offset
    partition = Partition(
        partition_index=0,
        error_code=0,
        leader_id=leader,
        leader_epoch=EPOCH,
        high_watermark=end,
        current_voters=[_state(leader, end, context)],
        observers=[_state(node, end, context) for node in nodes.running if node != leader],
    )
    response = DescribeQuorumResponse(error_code=0, topics=[Topic(topic_name=TOPIC, partitions=[partition])])
    if context.api_version >= MESSAGES_SINCE:
        host, port = context.broker.endpoint(context.connection_info, leader)
        response.nodes = [
            Node(node_id=leader, listeners=[Node.Listener(name=context.connection_info.listener, host=host, port=port)])
        ]
    return response


def _state(node_id: int, end: int, context: RequestContext) -> ReplicaState:
    now_ms = context.now_ms()
    return ReplicaState(
        replica_id=node_id, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms
    )


def _unknown(requested: RequestedPartition) -> Partition:
    return Partition(
        partition_index=requested.partition_index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=UNKNOWN,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
