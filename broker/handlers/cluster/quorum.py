"""The quorum of the metadata log: one voter, the controller of Metadata responses (KIP-595, KIP-836, KIP-853).

DescribeQuorum v0-v2 requires DESCRIBE on the cluster. The other running nodes are observers without lag. As in a quorum
of fixed voters, directory ids are left out. The controller's endpoint is the listener of its node: it has none of its
own. AddRaftVoter v0-v1 and RemoveRaftVoter v0 (KIP-1186) require ALTER on the cluster, and are refused as by a quorum
of fixed voters.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.internal_records.metadata_values import TOPIC
from ....protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ....protocol.messages.cluster.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from ....protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext, handles
from ...errors import Refused

Topic = DescribeQuorumResponse.TopicData
Partition = Topic.PartitionData
Node = DescribeQuorumResponse.Node
RequestedPartition = DescribeQuorumRequest.TopicData.PartitionData

MESSAGES_SINCE = 2
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


LISTENER = "CONTROLLER"


@handles(AddRaftVoterRequest)
async def add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Makes Kafka's checks in their order. CONTROLLER is the listener's name in Kafka's default configuration."""
    _check_voter("Add", request, context)
    if LISTENER not in (listener.name for listener in request.listeners):
        given = ", ".join(f"ListenerName({one.name})={one.host}/<unresolved>:{one.port}" for one in request.listeners)
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{given}}})) for the default "
            f"listener ListenerName({LISTENER})",
        )
    raise _unsupported("adding")


@handles(RemoveRaftVoterRequest)
async def remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    """Makes Kafka's checks in their order."""
    _check_voter("Remove", request, context)
    raise _unsupported("removing")


def _check_voter(doing: str, request: AddRaftVoterRequest | RemoveRaftVoterRequest, context: RequestContext) -> None:
    """Checks the permission to alter the cluster, its id, and the ids of the voter. Raises Refused."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    own = context.broker.cluster_id
    if request.cluster_id is not None and request.cluster_id != own:
        text = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{own}"'
        raise Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{doing} voter request didn't include a valid voter")


def _unsupported(doing: str) -> Refused:
    """The refusal of a quorum of fixed voters."""
    text = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return Refused(ErrorCode.UNSUPPORTED_VERSION, text)
