"""DescribeCluster v0-v2 (KIP-700, KIP-919, KIP-1073). A broker's listener does not describe controllers."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ...context import RequestContext, handles
from ..topics.metadata import NOT_REQUESTED, cluster_operations

BROKERS, CONTROLLERS = 1, 2
MISMATCHED = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


@handles(DescribeClusterRequest)
async def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Lists the running nodes; stopped ones count as fenced and are included on request."""
    broker = context.broker
    if request.endpoint_type != BROKERS:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}"
        if request.endpoint_type == CONTROLLERS:
            code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, MISMATCHED
        return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
    nodes = broker.nodes
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=nodes.controller,
        brokers=[
            _described(node_id, context)
            for node_id in nodes.ids
            if node_id not in nodes.stopped or (request.include_fenced_brokers and node_id not in nodes.unregistered)
        ],
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _described(node_id: int, context: RequestContext) -> DescribeClusterResponse.DescribeClusterBroker:
    host, port = context.broker.endpoint(context.connection_info, node_id)
    rack = context.broker.nodes.racks[node_id]
    made = DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
    if node_id in context.broker.nodes.stopped:
        made.is_fenced = True
    return made
