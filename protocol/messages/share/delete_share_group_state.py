"""DeleteShareGroupState: request and response of API key 86. KIP-932."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text, Uuid
from ...schema import group, message


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
    results: list[DeleteStateResult]

    @group
    class DeleteStateResult:
        topic_id: Uuid
        partitions: list[PartitionResult]

        @group
        class PartitionResult:
            partition: Int32
            error_code: Int16 = 0
            error_message: Text | None = None
