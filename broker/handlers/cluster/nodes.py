"""The nodes of the cluster: DescribeCluster v0-v2 lists them (KIP-700, KIP-919, KIP-1073), UnregisterBroker v0 removes
the registration of one (KIP-500), UnregisterController v0 that of a controller that left the quorum.

A broker's listener does not describe controllers. Unregistering requires ALTER on the cluster. A stopped node is no
longer listed as fenced, until it runs again. Kafka also removes a running node, which then has to be restarted to
register again; here it registers again at once. The only controller here is the active one, which cannot be removed;
all other ids are unknown.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ....protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ....protocol.messages.cluster.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ..topics.metadata import NOT_REQUESTED, cluster_operations

BROKERS, CONTROLLERS = 1, 2
MISMATCHED = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"


@handles(DescribeClusterRequest)
async def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Lists the running nodes; stopped ones count as fenced and are included on request."""
    broker = context.broker
    if request.endpoint_type != BROKERS:
        if request.endpoint_type == CONTROLLERS:
            raise Refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, MISMATCHED)
        text = f"Unsupported endpoint type {request.endpoint_type}"
        raise Refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
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


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Removes a registration. A node that is unknown or already removed is an error."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    code, text = ErrorCode.NONE, ""
    if not context.broker.nodes.unregister(request.broker_id):
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        if context.broker.profile.behaviour.reports_unregistered:
            text = f"Broker ID {request.broker_id} is not currently registered"
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=text)


@handles(UnregisterControllerRequest)
async def unregister_controller(
    request: UnregisterControllerRequest, context: RequestContext
) -> UnregisterControllerResponse:
    """Refuses every id, with the errors of Kafka's controller."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    if request.controller_id == context.broker.nodes.controller:
        code, text = ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
    elif not context.broker.features.controllers_leave:
        code = ErrorCode.UNSUPPORTED_VERSION
        text = "The current MetadataVersion is too old to support controller unregistration."
    else:
        code = ErrorCode.CONTROLLER_ID_NOT_REGISTERED
        text = f"Controller ID {request.controller_id} is not currently registered."
    return UnregisterControllerResponse(throttle_time_ms=0, error_code=code, error_message=text)
