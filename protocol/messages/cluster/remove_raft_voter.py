"""RemoveRaftVoter: request and response of API key 81. KIP-853."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text, Uuid
from ...schema import message


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    """Removes a controller from the voters of the metadata log."""

    cluster_id: Text | None
    voter_id: Int32
    voter_directory_id: Uuid


@message(api_key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    """The error of the change, or NONE."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
