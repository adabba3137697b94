"""WriteShareGroupState: request and response of API key 85. KIP-932, KIP-1226."""

from __future__ import annotations

from ...primitives import Int32, Int64, Text, Uuid
from ...schema import field, group, message
from .parts import StateBatch, StateResult


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: Text
    topics: list[WriteStateData]

    @group
    class WriteStateData:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition: Int32
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
            state_batches: list[StateBatch]


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[StateResult]
