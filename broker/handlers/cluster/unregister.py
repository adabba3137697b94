"""UnregisterBroker v0 removes the registration of a node (KIP-500), UnregisterController v0 that of a controller that
left the quorum. Both require ALTER on the cluster.

A stopped node is no longer listed as fenced, until it runs again. Kafka also removes a running node, which then has to
be restarted to register again; here it registers again at once. The only controller here is the active one, which
cannot be removed; all other ids are unknown.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ....protocol.messages.cluster.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from ...context import RequestContext, handles


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Removes a registration. A node that is unknown or already removed is an error."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    nodes, node_id = context.broker.nodes, request.broker_id
    if nodes.unregister(node_id):
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message="")
    text = (
        f"Broker ID {node_id} is not currently registered"
        if context.broker.profile.behaviour.reports_unregistered
        else ""
    )
    return UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=text
    )


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
