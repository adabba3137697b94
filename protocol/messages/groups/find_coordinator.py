"""FindCoordinator: request and response of API key 10. KIP-98, KIP-699."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """v1 adds key types, v4 several keys (KIP-699)."""

    key: Text = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[Text] = field("4+", default=list)


@message(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """v4 has one coordinator per key."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: Text | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: Text = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=list)

    @group
    class Coordinator:
        key: Text
        node_id: Int32
        host: Text
        port: Int32
        error_code: Int16
        error_message: Text | None = field(ignorable=True)
