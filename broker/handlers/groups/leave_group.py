"""LeaveGroup v0-v5: removes one member, from v3 on several. KIP-345, KIP-800. Reasons (v5) are not kept."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ...context import RequestContext, handles
from ...groups.classic.state import LeftMember

SEVERAL_MEMBERS_SINCE = 3


@handles(LeaveGroupRequest)
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Removes members. Before v3 the response has the member's error; from v3 on each member has its own."""
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    alone = context.api_version < SEVERAL_MEMBERS_SINCE
    members = await context.mapped(_member, request.members)
    reply = context.groups.leave(request.group_id, [(request.member_id, None)] if alone else members)
    if reply.error is ErrorCode.NONE:
        error = await context.broker.group_records_durable(request.group_id)
        if error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=error)
    if alone:
        error = reply.error if reply.error is not ErrorCode.NONE else reply.members[0].error
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(error_code=reply.error, members=await context.mapped(_left, reply.members))


def _member(identity: LeaveGroupRequest.MemberIdentity) -> tuple[str, str | None]:
    return identity.member_id, identity.group_instance_id


def _left(member: LeftMember) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
    )
