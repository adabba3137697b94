"""LeaveGroup: request and response of API key 13. KIP-345, KIP-800."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """v3 removes several members (KIP-345), v5 adds reasons (KIP-800)."""

    group_id: Text
    member_id: Text = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=list)

    @group
    class MemberIdentity:
        member_id: Text
        group_instance_id: Text | None = None
        reason: Text | None = field("5+", default=None, ignorable=True)


@message(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """v3 has one result per member."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field("3+", default=list)

    @group
    class MemberResponse:
        member_id: Text
        group_instance_id: Text | None
        error_code: Int16
