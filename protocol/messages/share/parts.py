"""Parts that several messages and records of share groups have in common. KIP-932."""

from __future__ import annotations

from ...primitives import Int8, Int16, Int32, Int64, Text, Uuid
from ...schema import group


@group
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@group
class LeaderIdAndEpoch:
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


@group
class StateBatch:
    """Consecutive records of a share partition in the same delivery state."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@group
class StateResult:
    """The result of a change of the states of a topic's share partitions."""

    topic_id: Uuid
    partitions: list[PartitionResult]

    @group
    class PartitionResult:
        partition: Int32
        error_code: Int16 = 0
        error_message: Text | None = None
