"""DescribeGroups v0-v6: state and members of groups. KIP-345, KIP-430, KIP-1043.

A group that does not exist, or that does not use the classic protocol, is Dead, from v6 on with GROUP_ID_NOT_FOUND.
Requires DESCRIBE on each group.
"""

from __future__ import annotations

from functools import partial

from ....protocol.acls import ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT32_MIN
from ....protocol.messages.groups.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ...context import RequestContext, handles
from ...groups.classic.state import Group, GroupState, Member
from .describing import describe_each

NOT_FOUND_SINCE = 6
NOT_REQUESTED = INT32_MIN

Described = DescribeGroupsResponse.DescribedGroup
_failed = partial(
    Described,
    group_state="",
    protocol_type="",
    protocol_data="",
    members=[],
    authorized_operations=NOT_REQUESTED,
)


@handles(DescribeGroupsRequest)
async def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describes groups; only Stable groups have metadata and assignments. As in Kafka, groups without permission come
    first.
    """
    groups = await describe_each(
        request.groups,
        context,
        is_enabled=True,
        failed=_failed,
        described=lambda name: _described(name, context, request),
    )
    return DescribeGroupsResponse(groups=groups)


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
        found = _failed(error_code=error, error_message=message, group_id=group_id, group_state=state)
        if error is ErrorCode.NONE:
            found.authorized_operations = operations
        return found
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
