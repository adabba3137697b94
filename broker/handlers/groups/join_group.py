"""JoinGroup v0-v9: joins a group, or changes a member's metadata. KIP-62, 345, 394, 559, 800, 814.

v0 has no rebalance timeout: the session timeout serves as both. From v4 on a new dynamic member first receives its id
(KIP-394); from v9 on a returning static leader may skip the assignment. Reasons (v8) are not kept.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
from ...context import RequestContext, handles
from ...groups.classic.state import JoinReply, JoinRequest

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


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
    if reply.error is ErrorCode.NONE:
        error = await context.broker.group_records_durable(request.group_id)
        if error is not ErrorCode.NONE:
            reply = JoinReply(error, reply.member_id)
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
