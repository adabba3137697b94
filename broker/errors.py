"""The table from exceptions to the error codes of the protocol.

Owns the mapping and nothing else. `Refused` is raised by the broker's own rules and has its code. Exceptions of other
layers are listed in CODES by class. Any other exception is a defect: it is logged with its stack, and the client
receives UNKNOWN_SERVER_ERROR. `ProtocolViolation` has no code: it closes the connection.
"""

from __future__ import annotations

from ..protocol.errors import ErrorCode, MalformedMessage
from ..protocol.records import errors as records
from ..storage import errors as storage
from .logs import get_logger

MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)
"""Kafka's message for an INVALID_REQUEST without one of its own."""


class ConfigError(ValueError):
    """An invalid config: unknown, malformed, out of range, or not settable here. The message is for users."""


class Refused(Exception):
    """A request, or a part of it, that the broker's rules refuse. `message` is for users; with `wordless` the client
    receives the code without a message, as Kafka does for some refusals.
    """

    def __init__(self, code: ErrorCode, message: str = "", *, wordless: bool = False) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.wordless = wordless


CODES: dict[type[Exception], ErrorCode] = {
    MalformedMessage: ErrorCode.INVALID_REQUEST,
    ConfigError: ErrorCode.INVALID_CONFIG,
    records.CorruptRecords: ErrorCode.CORRUPT_MESSAGE,
    records.UnknownBatches: ErrorCode.CORRUPT_MESSAGE,
    records.InvalidRecords: ErrorCode.INVALID_RECORD,
    records.DecompressedTooLarge: ErrorCode.INVALID_RECORD,
    records.InvalidTimestamps: ErrorCode.INVALID_TIMESTAMP,
    records.WrongBatches: ErrorCode.INVALID_RECORD,
    records.Undecodable: ErrorCode.UNKNOWN_SERVER_ERROR,  # as in Kafka, whose decompressors throw an exception here
    records.OverflowingSize: ErrorCode.UNKNOWN_SERVER_ERROR,
    records.UnsupportedForFormat: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    records.Unwritable: ErrorCode.UNKNOWN_SERVER_ERROR,  # as in Kafka, whose record writer throws an exception here
    records.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    records.UnsupportedCodec: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    storage.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DamagedEntry: ErrorCode.CORRUPT_MESSAGE,
    storage.RecordAboveLimit: ErrorCode.INVALID_RECORD,
    storage.DirectoryLocked: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DirectoryFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.RecordListTooLarge: ErrorCode.RECORD_LIST_TOO_LARGE,
    storage.ProducerRefused: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.FencedProducer: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.DuplicateSequence: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    storage.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    storage.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    storage.FencedCoordinator: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
}


def message_of(error: Exception) -> str | None:
    """The error message for the client, or None for errors that the request did not cause."""
    if isinstance(error, Refused) and error.wordless:
        return None
    return str(error) if isinstance(error, Refused | ConfigError) else None


def code_of(error: Exception) -> ErrorCode:
    """The error code for an exception. One that is not in the table is logged with its stack, and damage of a log with
    its place."""
    if isinstance(error, Refused):
        return error.code
    found = CODES.get(type(error))
    if found is None:
        get_logger().error("unexpected error", exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, storage.DamagedEntry):
        get_logger().error("damaged batch in a log", reason=str(error))
    return found
