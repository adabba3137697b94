"""The current leader of a partition and its endpoint, in responses to clients with outdated metadata (KIP-951)."""

from __future__ import annotations

from ...primitives import Int32, Text
from ...schema import group


@group
class LeaderIdAndEpoch:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@group
class NodeEndpoint:
    node_id: Int32
    host: Text
    port: Int32
    rack: Text | None = None
