"""StreamsGroupTopologyDescriptionUpdate v0: the description of a topology, for a plugin of the broker. KIP-1331.

Kafka stores descriptions in a plugin, and has none of its own: without one it refuses them with UNSUPPORTED_VERSION,
and no heartbeat requests them. Requires READ on the group.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.streams.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ...context import RequestContext, handles

NO_PLUGIN = "The broker has no streams group topology description plugin configured."


@handles(StreamsGroupTopologyDescriptionUpdateRequest)
async def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Refuses the description."""
    code, message = ErrorCode.UNSUPPORTED_VERSION, None
    if context.broker.serves_streams_groups:
        message = NO_PLUGIN
        if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
            code, message = ErrorCode.GROUP_AUTHORIZATION_FAILED, None
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=message)
