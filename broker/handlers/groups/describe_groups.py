"""DescribeGroups v0-v6: state and members of groups. KIP-345, KIP-430, KIP-1043.

A group that does not exist, or that does not use the classic protocol, is Dead, from v6 on with GROUP_ID_NOT_FOUND.
Requires DESCRIBE on each group.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT32_MIN
from ....protocol.messages.groups.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ...context import RequestContext, handles
from ...groups.classic.state import Group, GroupState, Member

NOT_FOUND_SINCE = 6
NOT_REQUESTED = INT32_MIN
GROUP_ENTRIES = 2  # entries of a cooperative step for each group

Described = DescribeGroupsResponse.DescribedGroup


@handles(DescribeGroupsRequest)
async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describes groups; only Stable groups have metadata and assignments. As in Kafka, groups without permission come
    first.
    """
    requested = request.groups
    if context.broker.authorizer is None:
        groups = await context.mapped(lambda name: _described(name, context, request), requested, GROUP_ENTRIES)
        return DescribeGroupsResponse(groups=groups)
    allowed = {name: context.allowed(AclOperation.DESCRIBE, ResourceType.GROUP, name) for name in requested}
    refused = [_without_members(name, ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in requested if not allowed[name]]
    visible = [name for name in requested if allowed[name]]
    groups = await context.mapped(lambda name: _described(name, context, request), visible, GROUP_ENTRIES)
    return DescribeGroupsResponse(groups=refused + groups)


def _without_members(
    group_id: str, error: ErrorCode, message: str | None = None, state: str = "", operations: int = NOT_REQUESTED
) -> Described:
    return Described(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
        authorized_operations=operations,
    )


def _described(group_id: str, context: RequestContext, request: DescribeGroupsRequest) -> Described:
    operations = NOT_REQUESTED
    if request.include_authorized_operations:
        operations = context.authorized_operations(ResourceType.GROUP, group_id)
    error, group = context.groups.describe(group_id)
    message = None
    state = GroupState.DEAD.value if error is ErrorCode.NONE else ""
    is_other = group is not None and not isinstance(group, Group)
    if error is ErrorCode.NONE and (group is None or is_other) and context.api_version >= NOT_FOUND_SINCE:
        text = f"Group {group_id} is not a classic group." if is_other else f"Group {group_id} not found."
        error, message = ErrorCode.GROUP_ID_NOT_FOUND, text
    if not isinstance(group, Group):
        return _without_members(
            group_id, error, message, state, operations if error is ErrorCode.NONE else NOT_REQUESTED
        )
    stable = group.state is GroupState.STABLE
    return Described(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol_name or "" if stable else "",
        members=[_member(group, member, stable) for member in group.members.values()],
        authorized_operations=operations,
    )


def _member(group: Group, member: Member, stable: bool) -> Described.DescribedGroupMember:
    return Described.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if stable else b"",
        member_assignment=member.assignment if stable else b"",
    )
