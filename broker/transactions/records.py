"""Transactions as records of `__transaction_state`, in Apache Kafka's format.

A key is its type (int16, 0) and the transactional id; a value is its version (int16) and fields; a null value is a
tombstone. Kafka writes version 0 before 4.0 (`transaction.version` 0) and version 1 (KIP-915, KIP-890) from 4.0 on.
Both are read.
"""

from __future__ import annotations

from functools import lru_cache

from ...protocol.compiler import build, parse
from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.transaction_records import TransactionLogKey, TransactionLogValue
from ...protocol.named import NamedTuple
from ..groups.record_form import Record, leading_int16, value_version
from .state import Partition, Transaction, TransactionState

KEY_TYPE = 0
NEWEST_VALUE_VERSION = 1

# State numbers in records; the other states are never written.
STATE_IDS: dict[TransactionState, int] = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
_STATES = {number: state for state, number in STATE_IDS.items()}


class TransactionEntry(NamedTuple):
    """A decoded record; `transaction` is None for a tombstone."""

    transactional_id: str
    transaction: Transaction | None


def transaction_tombstone(transactional_id: str) -> Record:
    """Returns the tombstone of a transactional id. Raises MalformedMessage if the id is too long."""
    return _key(transactional_id), None


@lru_cache(4096)
def _key(transactional_id: str) -> bytes:
    return KEY_TYPE.to_bytes(2, "big") + build(TransactionLogKey(transactional_id=transactional_id), 0)


def transaction_record(transaction: Transaction, version: int = NEWEST_VALUE_VERSION) -> Record:
    """Returns the record of a transaction. Raises MalformedMessage if a string is too long.

    Version 0 omits the fields of KIP-890.
    """
    indexes: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        indexes.setdefault(topic, []).append(index)
    partitions = [
        TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=found) for topic, found in indexes.items()
    ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATE_IDS[transaction.state],
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=-1 if transaction.state is TransactionState.EMPTY else transaction.start_ms,
    )
    if version > 0:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.next_producer_epoch = transaction.next_producer_epoch
        value.client_transaction_version = transaction.client_version
    return _key(transaction.transactional_id), version.to_bytes(2, "big") + build(value, version)


def decode(key: bytes, value: bytes | None) -> TransactionEntry | None:
    """Decodes a record; None for a key type other than a transactional id. Raises MalformedMessage."""
    if leading_int16(key, "transaction record: key") != KEY_TYPE:
        return None
    transactional_id = parse(TransactionLogKey, 0, key[2:]).transactional_id
    return TransactionEntry(transactional_id, None if value is None else _transaction(transactional_id, value))


def _transaction(transactional_id: str, value: bytes) -> Transaction:
    version = value_version(value, "transaction record", NEWEST_VALUE_VERSION)
    read = parse(TransactionLogValue, version, value[2:])
    state = _STATES.get(read.transaction_status)
    if state is None:
        raise MalformedMessage(f"transaction record: state {read.transaction_status}, expected 0 to {max(_STATES)}")
    partitions: dict[Partition, None] = {}  # an ordered set
    for group in read.transaction_partitions or ():
        partitions.update(dict.fromkeys((group.topic, index) for index in group.partition_ids))
    return Transaction(
        transactional_id,
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        timeout_ms=read.transaction_timeout_ms,
        state=state,
        partitions=() if state is TransactionState.EMPTY else tuple(partitions),
        start_ms=read.transaction_start_timestamp_ms,
        last_update_ms=read.transaction_last_update_timestamp_ms,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        next_producer_epoch=read.next_producer_epoch,
        client_version=read.client_transaction_version,
    )
