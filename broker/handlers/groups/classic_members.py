"""The members of classic groups. KIP-62, 345, 394, 559, 800, 814. All APIs require READ on the group.

JoinGroup v0-v9: joins a group, or changes a member's metadata. v0 has no rebalance timeout: the session timeout serves
as both. From v4 on a new dynamic member first receives its id (KIP-394); from v9 on a returning static leader may skip
the assignment. SyncGroup v0-v5: the leader sends the assignments, each member receives its own. Heartbeat v0-v4: keeps
a member's session alive, and reports a rebalance to it. LeaveGroup v0-v5: removes one member, from v3 on several.
Reasons (JoinGroup v8, LeaveGroup v5) are not kept.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from ....protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ....protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from ...context import RequestContext, handles
from ...groups.classic.state import JoinReply, JoinRequest, LeaveReply, LeftMember, SyncReply
from .membership import durable

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_REQUIRED_SINCE = 5
SEVERAL_MEMBERS_SINCE = 3


@handles(JoinGroupRequest)
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Waits until the rebalance is complete. The leader's response has the members to assign partitions to."""
    if not context.allowed(AclOperation.READ, ResourceType.GROUP, request.group_id):
        name = "" if context.api_version < NULL_PROTOCOL_SINCE else None
        return JoinGroupResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
            generation_id=-1,
            protocol_name=name,
            leader="",
            member_id="",
            members=[],
        )
    rebalance_timeout_ms = request.rebalance_timeout_ms
    reply = await context.groups.join(
        request.group_id,
        JoinRequest(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",  # in the format of Java, which every Kafka tool shows
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            requires_member_id=context.api_version >= MEMBER_ID_REQUIRED_SINCE,
            may_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
        ),
    )
    reply = await durable(reply, partial(JoinReply, member_id=reply.member_id), request.group_id, context)
    protocol_name = reply.protocol_name
    if protocol_name is None and context.api_version < NULL_PROTOCOL_SINCE:
        protocol_name = ""
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation_id,
        protocol_type=reply.protocol_type,
        protocol_name=protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


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
    reply = await durable(reply, SyncReply, request.group_id, context)
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


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


@handles(LeaveGroupRequest)
async def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Removes members. Before v3 the response has the member's error; from v3 on each member has its own."""
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    alone = context.api_version < SEVERAL_MEMBERS_SINCE
    members = await context.mapped(lambda one: (one.member_id, one.group_instance_id), request.members)
    reply = context.groups.leave(request.group_id, [(request.member_id, None)] if alone else members)
    reply = await durable(reply, LeaveReply, request.group_id, context)
    if alone:
        return LeaveGroupResponse(error_code=reply.error or reply.members[0].error)
    return LeaveGroupResponse(error_code=reply.error, members=await context.mapped(_left, reply.members))


def _left(member: LeftMember) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
    )
