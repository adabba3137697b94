"""The exceptions of storage. Apart from the record errors of `ottla.protocol.records`, it raises no others.

The broker maps them to error codes, given in brackets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator


class StorageError(Exception):
    """The disk failed, or its files contradict each other (KAFKA_STORAGE_ERROR, 56)."""


@contextlib.contextmanager
def storage_errors(what: str) -> Generator[None]:
    """Raises an OSError of its body as a StorageError that begins with `what`. Too slow for a read or an append."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{what}: {error}") from error


class DamagedEntry(StorageError):
    """The bytes of a log where a batch begins are no header of one (CORRUPT_MESSAGE, 2)."""


class RecordAboveLimit(StorageError):
    """A record is larger, decompressed, than the limit of its topic since a later change (INVALID_RECORD, 87)."""


class DirectoryLocked(StorageError):
    """Another process, or another user in this one, holds the data directory."""


class DirectoryFailed(StorageError):
    """The disk of a data directory failed: none of its logs can be used (KAFKA_STORAGE_ERROR, 56)."""


class OffsetOutOfRange(Exception):
    """The requested offset is below the log start or above the log end (OFFSET_OUT_OF_RANGE, 1)."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int):
        super().__init__(f"offset {offset} is outside of {log_start_offset}..{log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class RecordListTooLarge(Exception):
    """The records of one append do not fit into a segment (RECORD_LIST_TOO_LARGE, 18)."""


class ProducerRefused(Exception):
    """An idempotent producer's batch does not match the producer state."""


class FencedProducer(ProducerRefused):
    """The batch's epoch is older than the producer's (INVALID_PRODUCER_EPOCH, 47)."""


class OutOfOrderSequence(ProducerRefused):
    """The sequences leave a gap or overlap in part (OUT_OF_ORDER_SEQUENCE_NUMBER, 45)."""


class DuplicateSequence(ProducerRefused):
    """All sequences of the batch were written, but their offset is no longer kept (DUPLICATE_SEQUENCE_NUMBER, 46)."""


class InvalidTransactionState(ProducerRefused):
    """The batch belongs to a transaction that is not open here, or to none while one is open (INVALID_TXN_STATE,
    48)."""


class FencedCoordinator(ProducerRefused):
    """The coordinator epoch of a marker is lower than that of an earlier one (TRANSACTION_COORDINATOR_FENCED, 52)."""


class UnknownProducer(ProducerRefused):
    """There is no producer state, and the batch is not the producer's first (UNKNOWN_PRODUCER_ID, 59)."""
