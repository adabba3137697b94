"""What storage may raise. Nothing else leaves it, apart from the record errors of `ottla.protocol.records`.

Knows no wire codes: the broker maps each class to one in its own table. The names in brackets say which.
"""

from __future__ import annotations


class StorageError(Exception):
    """The disk failed, or what lies on it contradicts itself (KAFKA_STORAGE_ERROR, 56)."""


class DirectoryLocked(StorageError):
    """Another process, or another opener in this one, holds the data directory."""


class DirectoryFailed(StorageError):
    """The disk under a data directory failed: nothing in it can be used (KAFKA_STORAGE_ERROR, 56)."""


class OffsetOutOfRange(Exception):
    """An offset below the log start or above its end was asked for (OFFSET_OUT_OF_RANGE, 1)."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int):
        super().__init__(f"offset {offset} is outside of {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class RecordListTooLarge(Exception):
    """The records of one append do not fit into a segment (RECORD_LIST_TOO_LARGE, 18)."""


class ProducerRefused(Exception):
    """An idempotent producer's batch does not follow from what is known of that producer."""


class FencedProducer(ProducerRefused):
    """The batch's epoch is older than the producer's (INVALID_PRODUCER_EPOCH, 47)."""


class OutOfOrderSequence(ProducerRefused):
    """The batch leaves a gap or overlaps in part (OUT_OF_ORDER_SEQUENCE_NUMBER, 45)."""


class DuplicateSequence(ProducerRefused):
    """All of the batch's sequences were written, yet their offset is not remembered (DUPLICATE_SEQUENCE_NUMBER, 46)."""


class InvalidTransactionState(ProducerRefused):
    """The batch is of a transaction that is not open here, or of none while one is (INVALID_TXN_STATE, 48)."""


class FencedCoordinator(ProducerRefused):
    """A marker comes from an older coordinator than the last one did (TRANSACTION_COORDINATOR_FENCED, 52)."""


class UnknownProducer(ProducerRefused):
    """Nothing is known of the producer and the batch is not its first (UNKNOWN_PRODUCER_ID, 59)."""
