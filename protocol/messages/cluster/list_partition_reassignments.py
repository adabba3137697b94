"""ListPartitionReassignments: request and response of API key 46. KIP-455."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Requests the reassignments in progress; null topics for all."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)

    @group
    class ListPartitionReassignmentsTopics:
        name: Text
        partition_indexes: list[Int32]


@message(api_key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The replicas of each partition in reassignment, with those being added and removed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: Text | None
    topics: list[OngoingTopicReassignment]

    @group
    class OngoingTopicReassignment:
        name: Text
        partitions: list[OngoingPartitionReassignment]

        @group
        class OngoingPartitionReassignment:
            partition_index: Int32
            replicas: list[Int32]
            adding_replicas: list[Int32]
            removing_replicas: list[Int32]
