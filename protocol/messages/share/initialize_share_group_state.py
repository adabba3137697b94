"""InitializeShareGroupState: request and response of API key 83. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, Uuid
from ...schema import group, message


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
    results: list[InitializeStateResult]

    @group
    class InitializeStateResult:
        topic_id: Uuid
        partitions: list[PartitionResult]

        @group
        class PartitionResult:
            partition: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
