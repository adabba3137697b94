"""AlterPartitionReassignments: request and response of API key 45. KIP-455, KIP-860."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Reassigns partitions to these replicas; null replicas cancel a reassignment in progress. v1 may forbid a change
    of the replication factor (KIP-860)."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic]

    @group
    class ReassignableTopic:
        name: Text
        partitions: list[ReassignablePartition]

        @group
        class ReassignablePartition:
            partition_index: Int32
            replicas: list[Int32] | None = None


@message(api_key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """One error per partition; NONE if its reassignment was accepted."""

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: Text | None
    responses: list[ReassignableTopicResponse]

    @group
    class ReassignableTopicResponse:
        name: Text
        partitions: list[ReassignablePartitionResponse]

        @group
        class ReassignablePartitionResponse:
            partition_index: Int32
            error_code: Int16
            error_message: Text | None
