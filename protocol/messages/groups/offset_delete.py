"""OffsetDelete: request and response of API key 47. KIP-496."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=47, versions="0-0")
class OffsetDeleteRequest:
    """Deletes committed offsets of partitions of topics that the group is not subscribed to."""

    group_id: Text
    topics: list[OffsetDeleteRequestTopic]

    @group
    class OffsetDeleteRequestTopic:
        name: Text
        partitions: list[OffsetDeleteRequestPartition]

        @group
        class OffsetDeleteRequestPartition:
            partition_index: Int32


@message(api_key=47, versions="0-0")
class OffsetDeleteResponse:
    """One error per partition."""

    error_code: Int16
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic]

    @group
    class OffsetDeleteResponseTopic:
        name: Text
        partitions: list[OffsetDeleteResponsePartition]

        @group
        class OffsetDeleteResponsePartition:
            partition_index: Int32
            error_code: Int16
