"""JoinGroup: request and response of API key 11. KIP-62, KIP-394, KIP-345, KIP-559, KIP-800, KIP-814."""

from __future__ import annotations

from ...primitives import Bool, Bytes, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """v1 adds the rebalance timeout, v4 requires a member id (KIP-394), v5 adds static members (KIP-345), v8 a reason
    (KIP-800)."""

    group_id: Text
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: Text
    group_instance_id: Text | None = field("5+", default=None)
    protocol_type: Text
    protocols: list[JoinGroupRequestProtocol]
    reason: Text | None = field("8+", default=None, ignorable=True)

    @group
    class JoinGroupRequestProtocol:
        name: Text
        metadata: Bytes


@message(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """v7 adds the protocol type, v9 skip_assignment (KIP-814)."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: Text | None = field("7+", default=None, ignorable=True)
    protocol_name: Text | None = field(nullable="7+")
    leader: Text
    skip_assignment: Bool = field("9+", default=False)
    member_id: Text
    members: list[JoinGroupResponseMember]

    @group
    class JoinGroupResponseMember:
        member_id: Text
        group_instance_id: Text | None = field("5+", default=None, ignorable=True)
        metadata: Bytes
