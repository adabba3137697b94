"""What reading, checking and compressing records may raise: these types and nothing else.

Owns no error codes: the number in each docstring is the code that Kafka 2.4 and later answer (semantics of older
releases differ, the broker's table of behaviours knows them).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PARTITION = "{partition}"
"""Stands in a message for the topic's name and the partition's number, which the records' rules do not know."""


class RecordError(NamedTuple):
    """One refused record of a batch (KIP-467): its 0-based index in the batch, and why."""

    batch_index: int
    message: str | None


class CorruptRecords(ValueError):
    """The bytes are not a whole, undamaged batch: bad size, magic or checksum. CORRUPT_MESSAGE (2)."""


class UnknownBatches(CorruptRecords):
    """A size or a magic that does not exist in any format: a reader cannot find the next batch. CORRUPT_MESSAGE (2)."""


class InvalidRecords(ValueError):
    """A whole batch that breaks a rule. INVALID_RECORD (87)."""

    def __init__(self, message: str, record_errors: Iterable[RecordError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.record_errors: list[RecordError] = list(record_errors)


class DecompressedTooLarge(InvalidRecords):
    """Records that would take more room than is allowed when they are decompressed. INVALID_RECORD (87)."""


class Undecodable(InvalidRecords):
    """A codec that is unknown, or compressed data that are damaged. UNKNOWN_SERVER_ERROR (-1): Kafka's decompressors
    raise what its table of errors does not know."""


class OverflowingSize(Undecodable):
    """A batch's size near 2^31: with the 12 bytes in front of it the sum overflows in Kafka 0.11 and later, which then
    fails. UNKNOWN_SERVER_ERROR (-1)."""


class InvalidTimestamps(InvalidRecords):
    """At least one record lies outside the topic's time range. INVALID_TIMESTAMP (32)."""


class WrongBatches(InvalidRecords):
    """Produce v3 and later: not exactly one batch of format v2. INVALID_RECORD (87); releases before 2.4 answered it
    otherwise than a batch that breaks a rule."""


class UnsupportedForFormat(ValueError):
    """A producer id or a transaction, and the topic has a format without them. UNSUPPORTED_FOR_MESSAGE_FORMAT (43)."""


class Unwritable(ValueError):
    """Records that passed every check, but the format that they are to be written in cannot hold them: a timestamp
    below -1, headers or zstd before v2, offsets of a batch that was only stepped over. UNKNOWN_SERVER_ERROR (-1), for
    Kafka's own checks foresee none of these."""


class MessageTooLarge(ValueError):
    """A batch, as sent or after it was rebuilt, exceeds `max.message.bytes`. MESSAGE_TOO_LARGE (10)."""


class UnsupportedCodec(ValueError):
    """A codec that this request version, or anybody, does not know. UNSUPPORTED_COMPRESSION_TYPE (76)."""
