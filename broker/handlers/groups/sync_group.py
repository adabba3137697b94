"""SyncGroup v0-v5: the leader sends the assignments, each member receives its own. KIP-345, KIP-559."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from ...context import RequestContext, handles
from ...groups.classic.state import SyncReply

PROTOCOL_REQUIRED_SINCE = 5


@handles(SyncGroupRequest)
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Waits for the leader's assignments. From v5 on protocol type and name are required and have to be the group's."""
    if context.api_version >= PROTOCOL_REQUIRED_SINCE and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    reply = await context.groups.sync(
        request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[(given.member_id, bytes(given.assignment)) for given in request.assignments],
    )
    if reply.error is ErrorCode.NONE:
        error = await context.broker.group_records_durable(request.group_id)
        if error is not ErrorCode.NONE:
            reply = SyncReply(error)
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
