"""SyncGroup: request and response of API key 14. KIP-345, KIP-559."""

from __future__ import annotations

from ...primitives import Bytes, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """The assignments, sent by the leader; v3 adds static members, v5 protocol type and name (KIP-559)."""

    group_id: Text
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = field("3+", default=None)
    protocol_type: Text | None = field("5+", default=None, ignorable=True)
    protocol_name: Text | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]

    @group
    class SyncGroupRequestAssignment:
        member_id: Text
        assignment: Bytes


@message(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's assignment."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    protocol_type: Text | None = field("5+", default=None, ignorable=True)
    protocol_name: Text | None = field("5+", default=None, ignorable=True)
    assignment: Bytes
