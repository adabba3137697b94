"""CreatePartitions: request and response of API key 37. KIP-195."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Text
from ...schema import group, message


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """New partition counts of topics, with optional assignments."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool

    @group
    class CreatePartitionsTopic:
        name: Text
        count: Int32
        assignments: list[CreatePartitionsAssignment] | None

        @group
        class CreatePartitionsAssignment:
            broker_ids: list[Int32]


@message(api_key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """One result per topic."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]

    @group
    class CreatePartitionsTopicResult:
        name: Text
        error_code: Int16
        error_message: Text | None = None
