"""InitializeShareGroupState: request and response of API key 83. KIP-932."""

from __future__ import annotations

from ...primitives import Int32, Int64, Text, Uuid
from ...schema import group, message
from .parts import StateResult


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: Text
    topics: list[InitializeStateData]

    @group
    class InitializeStateData:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition: Int32
            state_epoch: Int32
            start_offset: Int64


@message(api_key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[StateResult]
