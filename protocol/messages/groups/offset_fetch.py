"""OffsetFetch: request and response of API key 9. KIP-320, KIP-447, KIP-709, KIP-848."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Bool, Int16, Int32, Int64, Text, Uuid
from ...schema import field, group, message


@message(api_key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    """Null requests all topics (v2), require_stable is v7 (KIP-447), several groups v8 (KIP-709), topic ids v10."""

    group_id: Text = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default=list)
    require_stable: Bool = field("7+", default=False)

    @group
    class OffsetFetchRequestTopic:
        name: Text
        partition_indexes: list[Int32]

    @group
    class OffsetFetchRequestGroup:
        group_id: Text
        member_id: Text | None = field("9+", default=None, ignorable=True)
        member_epoch: Int32 = field("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequestTopics] | None

        @group
        class OffsetFetchRequestTopics:
            name: Text = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
            partition_indexes: list[Int32]


@message(api_key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    """Committed offsets with leader epoch (v5) and metadata."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=list)

    @group
    class OffsetFetchResponseTopic:
        name: Text
        partitions: list[OffsetFetchResponsePartition]

        @group
        class OffsetFetchResponsePartition:
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field("5+", default=-1, ignorable=True)
            metadata: Text | None
            error_code: Int16

    @group
    class OffsetFetchResponseGroup:
        group_id: Text
        topics: list[OffsetFetchResponseTopics]
        error_code: Int16 = 0

        @group
        class OffsetFetchResponseTopics:
            name: Text = field("8-9", default="", ignorable=True)
            topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
            partitions: list[OffsetFetchResponsePartitions]

            @group
            class OffsetFetchResponsePartitions:
                partition_index: Int32
                committed_offset: Int64
                committed_leader_epoch: Int32 = field(default=-1, ignorable=True)
                metadata: Text | None
                error_code: Int16
