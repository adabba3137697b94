"""The exceptions of reading, checking and compressing records.

A docstring names the error code that Kafka 2.4 and later return (older releases differ: see the broker's behaviours).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..named import NamedTuple

PARTITION = "{partition}"
"""Placeholder in a message for topic and partition, which are unknown where records are checked."""


class RecordError(NamedTuple):
    """A refused record of a batch (KIP-467): its 0-based index in the batch, and the reason."""

    batch_index: int
    message: str | None


class CorruptRecords(ValueError):
    """The bytes are not a whole, undamaged batch: bad size, magic or checksum. CORRUPT_MESSAGE (2)."""


class UnknownBatches(CorruptRecords):
    """A size or magic that exists in no format: a reader cannot find the next batch. CORRUPT_MESSAGE (2)."""


class InvalidRecords(ValueError):
    """A whole batch that breaks a rule. INVALID_RECORD (87)."""

    def __init__(self, message: str, record_errors: Iterable[RecordError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.record_errors: list[RecordError] = list(record_errors)


class DecompressedTooLarge(InvalidRecords):
    """Records that would exceed the allowed size when decompressed. INVALID_RECORD (87)."""


class Undecodable(InvalidRecords):
    """An unknown codec, or damaged compressed data. UNKNOWN_SERVER_ERROR (-1): the exceptions of Kafka's decompressors
    are not in its table of errors."""


class OverflowingSize(Undecodable):
    """A batch size near 2^31: adding the 12 bytes before it overflows in Kafka 0.11 and later, which then fails.
    UNKNOWN_SERVER_ERROR (-1)."""


class InvalidTimestamps(InvalidRecords):
    """At least one record lies outside the topic's time range. INVALID_TIMESTAMP (32)."""


class WrongBatches(InvalidRecords):
    """Produce v3 and later: not exactly one batch of format v2. INVALID_RECORD (87); releases before 2.4 return another
    error for it than for a batch that breaks a rule."""


class UnsupportedForFormat(ValueError):
    """A producer id or a transaction in a topic whose message format has neither. UNSUPPORTED_FOR_MESSAGE_FORMAT
    (43)."""


class Unwritable(ValueError):
    """Valid records that the topic's message format cannot hold: a timestamp below -1, headers or zstd before v2, wrong
    offsets in a batch that was not decoded. UNKNOWN_SERVER_ERROR (-1), since Kafka's own checks miss them."""


class MessageTooLarge(ValueError):
    """A batch, as sent or after conversion, exceeds `max.message.bytes`. MESSAGE_TOO_LARGE (10)."""


class UnsupportedCodec(ValueError):
    """A codec that is unknown, or not allowed in this request version. UNSUPPORTED_COMPRESSION_TYPE (76)."""
