"""ElectLeaders: request and response of API key 43. KIP-183, KIP-460."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elects the preferred replica of partitions, or any live one (v1, KIP-460), as leader; null for all partitions."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000

    @group
    class TopicPartitions:
        topic: Text
        partitions: list[Int32]


@message(api_key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """One result per partition; v1 adds an error for the request as a whole."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]

    @group
    class ReplicaElectionResult:
        topic: Text
        partition_result: list[PartitionResult]

        @group
        class PartitionResult:
            partition_id: Int32
            error_code: Int16
            error_message: Text | None
