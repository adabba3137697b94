"""UnregisterBroker v0: has the cluster forget a node (KIP-500). Asks for ALTER on the cluster.

A node that is stopped is no longer listed as fenced, until it runs again. Of one that runs Kafka forgets as well, and
then nobody reaches it before it is started anew; here it registers again at once, as if that had been done.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ...context import RequestContext, handles


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Nodes of which the cluster does not know are an error, and so are those that it has forgotten."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    nodes, node_id = context.broker.nodes, request.broker_id
    if nodes.unregister(node_id):
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message="")
    text = (
        f"Broker ID {node_id} is not currently registered"
        if context.broker.profile.behaviour.tells_unregistered
        else ""
    )
    return UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=text
    )
