"""StreamsGroupTopologyDescriptionUpdate: request and response of API key 93. KIP-1331."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import message
from .topology_description import TopologyDescription


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: Text
    member_id: Text
    topology_epoch: Int32
    topology_description: TopologyDescription


@message(api_key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
