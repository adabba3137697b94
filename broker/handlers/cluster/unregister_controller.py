"""UnregisterController v0: removes the registration of a controller that left the quorum.

Requires ALTER on the cluster. The only controller here is the active one, which cannot be removed; all other ids are
unknown.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from ...context import RequestContext, handles


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
