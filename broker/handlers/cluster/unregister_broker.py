"""UnregisterBroker v0: removes the registration of a node (KIP-500). Requires ALTER on the cluster.

A stopped node is no longer listed as fenced, until it runs again. Kafka also removes a running node, which then has to
be restarted to register again; here it registers again at once.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
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
