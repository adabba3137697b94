"""Heartbeat v0-v4: keeps a member's session alive, and reports a rebalance to it. KIP-345."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...context import RequestContext, handles


@handles(HeartbeatRequest)
async def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    error = context.groups.heartbeat(
        request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
    )
    return HeartbeatResponse(error_code=error)
