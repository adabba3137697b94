"""DeleteShareGroupState: request and response of API key 86. KIP-932."""

from __future__ import annotations

from ...primitives import Int32, Text, Uuid
from ...schema import group, message
from .parts import StateResult


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: Text
    topics: list[DeleteStateData]

    @group
    class DeleteStateData:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition: Int32


@message(api_key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[StateResult]
