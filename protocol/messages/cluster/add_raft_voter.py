"""AddRaftVoter: request and response of API key 80. KIP-853, KIP-1186 (v1: a response before the change is
committed)."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text, UInt16, Uuid
from ...schema import field, group, message


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    """Adds a controller to the voters of the metadata log."""

    cluster_id: Text | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = field("1+", default=True)

    @group
    class Listener:
        name: Text
        host: Text
        port: UInt16


@message(api_key=80, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    """The error of the change, or NONE."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
