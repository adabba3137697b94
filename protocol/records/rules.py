"""What one topic, under one release, asks of what a producer sends; and what comes out of the checks.

Owns the data that validate.py and validate_legacy.py share: the rules, the outcome, the verdict on single records
(KIP-32, KIP-467, KIP-937). It reads no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..limits import INT64_MAX, INT64_MIN
from . import batch
from .batch import NO_TIMESTAMP, BatchHeader
from .errors import PARTITION, InvalidRecords, InvalidTimestamps, RecordError

Buffer = bytes | bytearray | memoryview

# (timestamp, key, value, headers): one record on its way into another format. The headers are as v2 writes them, their
# count included.
Message = tuple[int, Buffer | None, Buffer | None, Buffer]
NO_HEADERS = b"\x00"

UNLIMITED_MS = INT64_MAX

# A refusal names every bad record, as Kafka's does, up to this many: a decompressed batch may hold millions.
MAX_RECORD_ERRORS = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """What one topic asks of a batch. Sizes in bytes, times in milliseconds. The defaults are the newest release's, but
    that older formats are taken too."""

    max_message_bytes: int = 1048588
    """Of one batch as sent (compressed), and again after a rebuild; of each message or wrapper in the older formats."""
    log_append_time: bool = False
    """message.timestamp.type: the broker's time instead of the producer's."""
    timestamp_before_max_ms: int = UNLIMITED_MS
    timestamp_after_max_ms: int = UNLIMITED_MS
    compacted: bool = False
    """cleanup.policy has compact: every record needs a key."""
    compression: int | None = None
    """The codec to store, 0 for none; None keeps the producer's."""
    compression_level: int | None = None
    walk_records: bool = True
    """False trusts a v2 header for the count and the times as long as they break no rule."""
    produce_version: int = 13
    """Used where `prepare` is not told one."""
    append_time_bit_allowed: bool = True
    """A batch that a client marked as log append time enters a create-time topic, unmarked (3.6 and later)."""
    max_decompressed_bytes: int = batch.MAX_DECOMPRESSED_BYTES
    target_magic: int = 2
    """The format that the topic stores: 0, 1 or 2."""
    old_formats: bool = True
    """False (4.0 and later): anything but v2 is invalid."""
    one_magic: bool = True
    """All of a set has one format, and what is v2 or compressed comes alone (2.4 and later). False: it is merged."""
    record_errors: Literal["none", "first", "all"] = "all"
    """How many refused records are named: none up to 2.3, in 2.4 the first, without a text of its own, from 2.5 all of
    a batch (KIP-467)."""
    refuse_unnumbered: bool = False
    """Records whose offsets are not 0, 1, 2, ... are refused where they would be written anew (2.4 only)."""
    unnumbered_fail: bool = True
    """A compressed v2 batch whose offsets are not 0, 1, 2, ... fails where its codec is kept (2.6 and later): the
    records that were only stepped over cannot be written anew."""
    counted_record_errors: bool = True
    """The text of a refusal counts the refused records and shows three of them (3.2 and later)."""
    sizes_overflow: bool = True
    """A set with a batch's size near 2^31 is refused rather than taken to end there (0.11 and later)."""
    zstd_allowed: bool = True
    """False: nothing is stored with zstd (inter.broker.protocol.version before 2.1)."""


class Prepared(NamedTuple):
    """What is ready to be written: one v2 batch, one compressed set, or messages one by one. `place` moves it."""

    buffer: bytearray | memoryview
    """The caller's own buffer, patched in place, if it was writable and no rebuild was needed; else a new one."""
    header: BatchHeader
    """Of the first entry, as the buffer has it now."""
    log_append_time_ms: int
    """What the response carries: the append time, -1 with create time."""
    base_offset: int
    """Of the first record; the offsets in the buffer are counted from here."""
    headers: tuple[BatchHeader, ...]
    """One for each entry in the buffer: more than one only for uncompressed v0/v1 messages, none for an empty set."""
    compression_level: int | None = None
    """Of the topic, for v0 sets that are moved: their inner offsets are compressed."""

    @property
    def next_offset(self) -> int:
        """The one behind the last record."""
        return self.headers[-1].next_offset if self.headers else self.base_offset


# Stands for the first header where there is no entry: its next offset is its base offset.
NOTHING = BatchHeader(0, 0, -1, batch.MAGIC, 0, 0, -1, NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0)


def nothing(base_offset: int) -> Prepared:
    """A set of which nothing is left once its cut last entry is taken away."""
    return Prepared(bytearray(), NOTHING.placed(base_offset, -1), -1, base_offset, ())


# Kafka's texts, which users search for.
_REJECTED = "One or more records have been rejected due to"
_KEYLESS = f"Compacted topic cannot accept message without key in topic partition {PARTITION}"
_MARKED = "Producer should not set timestamp type to LogAppendTime."


def _int64(value: int) -> int:
    """As Kafka prints the sum of a time and an unlimited range, which overflows."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN


def unnumbered(offset: int, expected: int) -> str:
    """Kafka 2.4's text, without its description of the record."""
    found = f"Inner record (offset={offset}) inside the compressed record batch does not have incremental offsets"
    return f"{found}, expected offset is {expected} in topic partition {PARTITION}"


class Verdicts:
    """Judges the records of one batch, one after the other, and collects what is refused."""

    def __init__(self, rules: Rules, now_ms: int, *, marked: bool, at_once: bool = True) -> None:
        """`marked`: the client set the batch's bit for log append time. Without `at_once` the first refused record
        waits for `check` also where a release stops there: it decompresses and reads all records before it judges one.
        """
        before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
        self._rules = rules
        self.marked = marked
        self.compacted = rules.compacted
        limited = not rules.log_append_time
        self.oldest = _oldest(before, after, now_ms) if limited else INT64_MIN
        self.newest = now_ms + after if limited and after < UNLIMITED_MS else INT64_MAX
        self._range = f"The timestamp should be within [{_int64(now_ms - before)}, {_int64(now_ms + after)}]"
        self._errors: list[RecordError] = []
        self._at_once = at_once
        self._first: InvalidRecords | None = None
        self.refused = 0
        self._bad_timestamp = False

    def judge(self, index: int, timestamp: int, has_key: bool) -> None:
        """The key first, then the time. Raises at once where the release stops at the first bad record."""
        rules = self._rules
        if self.compacted and not has_key:
            self.refuse(index, _KEYLESS)
        elif timestamp != NO_TIMESTAMP and not self.oldest <= timestamp <= self.newest:
            self._bad_timestamp = True
            self.refuse(index, f"Timestamp {timestamp} of message with offset {index} is out of range. {self._range}")
        elif self.marked and (rules.log_append_time or timestamp == NO_TIMESTAMP or not rules.append_time_bit_allowed):
            self._bad_timestamp = True
            self.refuse(index, f"Invalid timestamp type in message with offset {index}. {_MARKED}")

    def check_fits(self, index: int, timestamp: int) -> None:
        """Refuses a timestamp that no consumer can read, for it takes more than 64 bits."""
        if not INT64_MIN <= timestamp <= INT64_MAX:
            self._bad_timestamp = True
            self.refuse(index, f"Timestamp {timestamp} of message with offset {index} does not fit 64 bits")

    def refuse(self, index: int, why: str) -> None:
        """One record; raises at once where the release stops there."""
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
    """A timestamp so low that its distance from now overflows is far in the future for Kafka's check."""
    if before_ms < UNLIMITED_MS:
        return now_ms - before_ms
    return now_ms - INT64_MAX if after_ms < UNLIMITED_MS else INT64_MIN


def may_be_out_of_range(lowest: int, highest: int, rules: Rules, now_ms: int) -> bool:
    """`lowest` may be lower than any record's: a yes is not the last word."""
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    return (
        lowest < _oldest(before, after, now_ms)
        or (after < UNLIMITED_MS and highest - now_ms > after)
        or highest > INT64_MAX
    )


def writable(records: Buffer, size: int) -> bytearray | memoryview:
    """The first `size` bytes as they are if they may be written to, else a copy."""
    if isinstance(records, bytes):
        return bytearray(memoryview(records)[:size])
    if isinstance(records, memoryview) and records.readonly:
        return bytearray(records[:size])
    return records if len(records) == size else memoryview(records)[:size]
