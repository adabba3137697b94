"""DescribeTopicPartitions: request and response of API key 75. KIP-966."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text, Uuid
from ...schema import field, group, message


@message(api_key=75, versions="0-0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Requests a page of the partitions of topics."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None

    @group
    class TopicRequest:
        name: Text

    @group
    class Cursor:
        topic_name: Text
        partition_index: Int32


@message(api_key=75, versions="0-0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """A page of partitions, and the cursor of the next one."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None

    @group
    class DescribeTopicPartitionsResponseTopic:
        error_code: Int16
        name: Text | None
        topic_id: Uuid = field(ignorable=True)
        is_internal: Bool = field(default=False, ignorable=True)
        partitions: list[DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: Int32 = -2147483648

        @group
        class DescribeTopicPartitionsResponsePartition:
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field(default=-1, ignorable=True)
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            eligible_leader_replicas: list[Int32] | None = None
            last_known_elr: list[Int32] | None = None
            offline_replicas: list[Int32] = field(ignorable=True)

    @group
    class Cursor:
        topic_name: Text
        partition_index: Int32
