"""Records of `__transaction_state`: transactional ids. A key begins with its type, a value with its version, an int16
each."""

from __future__ import annotations

from ..primitives import Int8, Int16, Int32, Int64, Text
from ..schema import field, group, message


@message(api_key=0, versions="0")
class TransactionLogKey:
    """Key 0: one transactional id."""

    transactional_id: Text


@message(api_key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    """The producer and the state of its transaction. v1 is flexible (KIP-915); tagged fields are those of KIP-890."""

    producer_id: Int64
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", default=0, tag=2)

    @group
    class PartitionsSchema:
        topic: Text
        partition_ids: list[Int32]
