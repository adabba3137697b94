"""ReadShareGroupState: request and response of API key 84. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, Uuid
from ...schema import group, message
from .parts import StateBatch


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: Text
    topics: list[ReadStateData]

    @group
    class ReadStateData:
        topic_id: Uuid
        partitions: list[PartitionData]

        @group
        class PartitionData:
            partition: Int32
            leader_epoch: Int32


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: list[ReadStateResult]

    @group
    class ReadStateResult:
        topic_id: Uuid
        partitions: list[PartitionResult]

        @group
        class PartitionResult:
            partition: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
            state_epoch: Int32
            start_offset: Int64
            state_batches: list[StateBatch]
