"""Heartbeat: request and response of API key 12. KIP-345."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, message


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """v3 supports static members."""

    group_id: Text
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = field("3+", default=None)


@message(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """The error code, REBALANCE_IN_PROGRESS during a rebalance."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
