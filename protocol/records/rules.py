"""The rules of one topic, under one release, for produced records, and the result of the checks.

Data that validate.py and validate_legacy.py share: the rules, the outcome, the verdict on single records (KIP-32,
KIP-467, KIP-937). No bytes are read here.
"""

from __future__ import annotations

from typing import Literal

from ..frozen import frozen
from ..limits import INT32_MAX, INT64_MAX, INT64_MIN, wrapped_int64
from ..named import NamedTuple
from . import batch
from .batch import NO_TIMESTAMP, BatchHeader, Buffer
from .errors import PARTITION, InvalidRecords, InvalidTimestamps, RecordError

# (timestamp, key, value, headers): a record in conversion to another format. The headers are encoded as in v2, with
# their count.
Message = tuple[int, Buffer | None, Buffer | None, Buffer]
NO_HEADERS = b"\x00"

UNLIMITED_MS = INT64_MAX

# The most records that a refusal names: Kafka names every one, but a decompressed batch may hold millions.
MAX_RECORD_ERRORS = 10_000


@frozen
class Rules:
    """The rules of one topic. Sizes in bytes, times in milliseconds. The defaults are those of the newest release,
    except that older message formats are accepted too."""

    max_message_bytes: int = 1048588
    """The largest batch as sent (compressed), and again after conversion; in older formats the largest message or
    wrapper."""
    log_append_time: bool = False
    """message.timestamp.type=LogAppendTime: the broker's time replaces the producer's."""
    timestamp_before_max_ms: int = UNLIMITED_MS
    timestamp_after_max_ms: int = UNLIMITED_MS
    compacted: bool = False
    """cleanup.policy includes compact: every record needs a key."""
    compression: int | None = None
    """The codec to store, 0 for none; None keeps the producer's."""
    compression_level: int | None = None
    walk_records: bool = True
    """False trusts the record count and timestamps of a v2 header that breaks no rule."""
    produce_version: int = 13
    """The Produce version assumed if `prepare` gets none."""
    append_time_bit_allowed: bool = True
    """Accept a batch with the log-append-time bit set by the client in a create-time topic, and clear the bit (3.6 and
    later)."""
    max_decompressed_bytes: int = batch.MAX_DECOMPRESSED_BYTES
    max_record_bytes: int = INT32_MAX
    """The largest record of a compressed batch, decompressed (max.decompressed.message.bytes, 4.4 and later)."""
    target_magic: int = 2
    """The message format of the topic: 0, 1 or 2."""
    old_formats: bool = True
    """False (4.0 and later) refuses all formats except v2."""
    one_magic: bool = True
    """Require that all of a set has one format, and that a v2 batch or a compressed message is alone in it (2.4 and
    later). False: the set is merged."""
    record_errors: Literal["none", "first", "all"] = "all"
    """How many refused records are named: none up to 2.3, in 2.4 the first, without a message of its own, from 2.5 all
    of a batch (KIP-467)."""
    refuse_unnumbered: bool = False
    """Refuse records whose offsets are not 0, 1, 2, ... in a set that would be written again (2.4 only)."""
    unnumbered_fail: bool = True
    """Fail a compressed v2 batch whose offsets are not 0, 1, 2, ... if its codec is kept (2.6 and later): records that
    were validated without decoding cannot be written again."""
    counted_record_errors: bool = True
    """Count the refused records in the error message and show three of them (3.2 and later)."""
    sizes_overflow: bool = True
    """Refuse a set with a batch size near 2^31 instead of treating it as the end of the set (0.11 and later)."""
    zstd_allowed: bool = True
    """False: zstd is never stored (inter.broker.protocol.version before 2.1)."""


class Prepared(NamedTuple):
    """Records ready to be written: one v2 batch, one compressed set, or single messages. `place` sets their offsets."""

    buffer: bytearray | memoryview
    """The caller's own buffer, modified in place, if it was writable and no conversion was needed; otherwise a new
    one."""
    header: BatchHeader
    """The header of the first entry, as it is now in the buffer."""
    log_append_time_ms: int
    """The append time for the response, -1 with create time."""
    base_offset: int
    """The offset of the first record, from which the offsets in the buffer count."""
    headers: tuple[BatchHeader, ...]
    """One header for each entry in the buffer: several only for uncompressed v0/v1 messages, none for an empty set."""
    compression_level: int | None = None
    """The level of the topic, for v0 wrappers: moving them changes the offsets inside, which are compressed."""

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.headers[-1].next_offset if self.headers else self.base_offset


# Takes the place of the first header in a set without entries: its next offset is its base offset.
NOTHING = BatchHeader(0, 0, -1, batch.MAGIC, 0, 0, -1, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0)


def nothing(base_offset: int) -> Prepared:
    """Returns the result for a set that has no entry except an incomplete one."""
    return Prepared(bytearray(), NOTHING.placed(base_offset, -1), -1, base_offset, ())


# Kafka's messages, which users search for.
_REJECTED = "One or more records have been rejected due to"
_KEYLESS = f"Compacted topic cannot accept message without key in topic partition {PARTITION}"
_MARKED = "Producer should not set timestamp type to LogAppendTime."


def unnumbered(offset: int, expected: int) -> str:
    """Returns Kafka 2.4's message, without its description of the record."""
    found = f"Inner record (offset={offset}) inside the compressed record batch does not have incremental offsets"
    return f"{found}, expected offset is {expected} in topic partition {PARTITION}"


class Verdicts:
    """Checks the records of one batch, one after another, and collects the refused ones."""

    def __init__(self, rules: Rules, now_ms: int, *, marked: bool, at_once: bool = True) -> None:
        """`marked`: the client set the log-append-time bit of the batch. Without `at_once` the first refused record is
        raised only by `check`, also under a release that stops there: that release decompresses and reads all records
        before it checks any."""
        before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        self._rules = rules
        self.marked = marked
        self.compacted = rules.compacted
        limited = not rules.log_append_time
        self.oldest = _oldest(before, after, now_ms) if limited else INT64_MIN
        self.newest = now_ms + after if limited and after < UNLIMITED_MS else INT64_MAX
        oldest, newest = wrapped_int64(now_ms - before), wrapped_int64(now_ms + after)
        self._range = f"The timestamp should be within [{oldest}, {newest}]"
        self._errors: list[RecordError] = []
        self._at_once = at_once
        self._first: InvalidRecords | None = None
        self.refused = 0
        self._bad_timestamp = False

    def judge(self, index: int, timestamp: int, has_key: bool, shown: str = "") -> None:
        """Checks the key, then the timestamp. Raises at once under a release that stops at the first refused record.
        `shown` is the record in the text about a wrong timestamp type.
        """
        rules = self._rules
        if self.compacted and not has_key:
            self.refuse(index, _KEYLESS)
        elif timestamp != NO_TIMESTAMP and not self.oldest <= timestamp <= self.newest:
            self._bad_timestamp = True
            self.refuse(index, f"Timestamp {timestamp} of message with offset {index} is out of range. {self._range}")
        elif self.marked and (rules.log_append_time or timestamp == NO_TIMESTAMP or not rules.append_time_bit_allowed):
            self._bad_timestamp = True
            shown = shown or f"with offset {index}"
            self.refuse(index, f"Invalid timestamp type in message {shown}. {_MARKED}")

    def check_fits(self, index: int, timestamp: int) -> None:
        """Refuses a timestamp of more than 64 bits, which no consumer can decode."""
        if not INT64_MIN <= timestamp <= INT64_MAX:
            self._bad_timestamp = True
            self.refuse(index, f"Timestamp {timestamp} of message with offset {index} does not fit 64 bits")

    def refuse(self, index: int, why: str) -> None:
        """Adds a refused record to the errors. Raises for the first one in releases that stop there."""
        self.refused += 1
        if self._rules.record_errors == "all":
            if len(self._errors) < MAX_RECORD_ERRORS:
                self._errors.append(RecordError(index, why))
        elif self._first is None:
            kind = InvalidTimestamps if self._bad_timestamp else InvalidRecords
            named = [RecordError(index, None)] if self._rules.record_errors == "first" else ()
            self._first = kind(why, named)
            if self._at_once:
                raise self._first

    def check(self) -> None:
        """Raises InvalidTimestamps or InvalidRecords with all refused records, if there are any."""
        if self._first is not None:
            raise self._first
        if not self.refused:
            return
        if self._bad_timestamp:
            raise InvalidTimestamps(f"{_REJECTED} invalid timestamp", self._errors)
        if not self._rules.counted_record_errors:
            raise InvalidRecords("One or more records have been rejected", self._errors)
        first = self._errors[:3]
        shown = ", ".join(f"RecordError(batchIndex={one.batch_index}, message='{one.message}')" for one in first)
        in_total = f"{self.refused} record errors in total, and only showing the first three errors at most"
        raise InvalidRecords(f"{_REJECTED} {in_total}: [{shown}]", self._errors)


def _oldest(before_ms: int, after_ms: int, now_ms: int) -> int:
    """Returns the lowest accepted timestamp. For a lower one the distance from now overflows, which Kafka's check takes
    for the far future."""
    if before_ms < UNLIMITED_MS:
        return now_ms - before_ms
    return now_ms - INT64_MAX if after_ms < UNLIMITED_MS else INT64_MIN


def may_be_out_of_range(lowest: int, highest: int, rules: Rules, now_ms: int) -> bool:
    """Returns whether a timestamp may be out of range. `lowest` may be lower than that of any record: True is not
    final."""
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    return (
        lowest < _oldest(before, after, now_ms)
        or (after < UNLIMITED_MS and highest - now_ms > after)
        or highest > INT64_MAX
    )


def writable(records: Buffer, size: int) -> bytearray | memoryview:
    """Returns the first `size` bytes without a copy if they are writable, otherwise a copy."""
    if isinstance(records, bytes):
        return bytearray(memoryview(records)[:size])
    if isinstance(records, memoryview) and records.readonly:
        return bytearray(records[:size])
    return records if len(records) == size else memoryview(records)[:size]
