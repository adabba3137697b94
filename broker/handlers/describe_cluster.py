"""DescribeCluster v0-v2 (KIP-700, KIP-919, KIP-1073). A broker's listener does not describe controllers."""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ..context import RequestContext, handles
from .metadata import CLUSTER_OPERATIONS, NOT_ASKED

BROKERS, CONTROLLERS = 1, 2


@handles(DescribeClusterRequest)
async def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """The one node, which is broker and controller."""
    broker = context.broker
    if request.endpoint_type != BROKERS:
        code = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(error_code=code, error_message=code.name, cluster_id="", brokers=[])
    host, port = broker.endpoint(context.arrival)
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=broker.node_id, host=host, port=port)],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
