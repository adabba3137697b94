"""What a produced batch must be before it may enter a log (Produce v3 and later, message format v2).

Owns Kafka's rules for one batch from a client: shape, size, CRC, offsets, codec, keys, timestamps (KIP-32, KIP-98,
KIP-110, KIP-467, KIP-937), and rebuilds the batch where the topic wants another codec. It knows no producer state, no
offsets of a log and no clock: the time is an argument. It behaves as Kafka 2.5 and later; which code an older release
answers for the same fault is the caller's table.

How deep it looks. A batch is walked once: record lengths, count and timestamps, so that the stored maximum is the one
really seen and no range can be evaded by a header that lies; a compressed one is decompressed within a bound, and its
offset deltas are looked at too. It is checked record by record (keys, headers, lengths inside) where that matters:
compacted topics, another codec, timestamps out of range, offsets to be written anew. Kafka looks inside every record;
here a batch with whole records but nonsense within one passes, and fails in the consumer that decodes it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from . import batch, walk
from .batch import NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import (
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamps,
    MessageTooLarge,
    RecordError,
    UnsupportedCodec,
)

__all__ = ["MessageTooLarge", "Prepared", "Rules", "UnsupportedCodec", "prepare"]

UNLIMITED_MS = 2**63 - 1

# A refusal names every bad record, as Kafka's does, up to this many: a decompressed batch may hold millions.
MAX_RECORD_ERRORS = 10_000

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_BASE_AND_LENGTH = struct.Struct(">qi")
_MAGIC_AT = 16
_MIN_LENGTH = 14  # what a v0 message takes after its length field: the smallest that any format allows


@dataclass(frozen=True, slots=True)
class Rules:
    """What one topic asks of a batch. Sizes in bytes, times in milliseconds."""

    max_message_bytes: int = 1048588
    """Of one batch as sent (compressed), and again after a rebuild."""
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
    """False trusts the header for the count and the times as long as they break no rule."""
    produce_version: int = 13
    """Used where `prepare` is not told one."""
    append_time_bit_allowed: bool = True
    """A batch that a client marked as log append time enters a create-time topic, unmarked (3.6 and later)."""
    max_decompressed_bytes: int = batch.MAX_DECOMPRESSED_BYTES


class Prepared(NamedTuple):
    """A batch ready to be given offsets: one whole v2 batch, writable, base offset 0."""

    buffer: bytearray | memoryview
    """The caller's own buffer, patched in place, if it was writable and no rebuild was needed; else a new one."""
    header: BatchHeader
    """As the buffer has it now."""
    log_append_time_ms: int
    """What the response carries: the append time, -1 with create time."""


class _Findings(NamedTuple):
    max_timestamp: int
    first_timestamp_delta: int
    consecutive: bool  # offset deltas 0, 1, 2, ...


def prepare(
    records: bytes | bytearray | memoryview, rules: Rules, now_ms: int, produce_version: int | None = None
) -> Prepared:
    """Check what a client sent for one partition against the topic's rules, and make it what the log stores.

    The order of the checks is Kafka's: one batch of magic 2, base offset, size, CRC, header, records. Raises
    CorruptRecords, InvalidRecords (InvalidTimestamps), MessageTooLarge, UnsupportedCodec; then nothing was changed.
    """
    header = _only_batch(records, rules.produce_version if produce_version is None else produce_version)
    _check_header(records, header, rules)
    source = header.codec
    target = source if rules.compression is None else rules.compression
    quick = None
    if source == target and not rules.compacted and not header.log_append_time:
        quick = _look(records, header, rules, now_ms)
    if quick is not None:
        max_timestamp = quick
        buffer = _writable(records, header.size_bytes)
    else:
        data = batch.payload(records, 0, header, max_bytes=rules.max_decompressed_bytes)
        findings = _examine(data, header, rules, now_ms)
        max_timestamp = findings.max_timestamp
        if source != target or (source and not findings.consecutive):
            buffer = _rebuild(records, data, header, findings, target, rules)
            header = batch.read_header(buffer)
        else:
            buffer = _writable(records, header.size_bytes)

    if rules.log_append_time:
        attributes = header.attributes | batch.LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    else:
        attributes = header.attributes & ~batch.LOG_APPEND_TIME_BIT
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        header = batch.reseal(buffer, attributes=attributes, max_timestamp=max_timestamp)
    return Prepared(buffer, header, now_ms if rules.log_append_time else -1)


# --- the batch


def _only_batch(records: bytes | bytearray | memoryview, produce_version: int) -> BatchHeader:
    """The header of the one batch that there must be. What is cut at the end is not there, as in Kafka."""
    if len(records) >= batch.HEADER_BYTES and records[_MAGIC_AT] == batch.MAGIC:  # the usual case, with one look
        _, length = _BASE_AND_LENGTH.unpack_from(records)
        if length + _BASE_AND_LENGTH.size == len(records):
            return _checked_codec(batch.read_header(records), produce_version)
    magic, size = _next_batch(records, 0)
    if magic is None:
        raise InvalidRecords("there is no whole record batch")
    if magic != batch.MAGIC:
        raise InvalidRecords(f"a batch of format v{magic}: Produce v{produce_version} takes v2 only")
    header = _checked_codec(batch.read_header(records), produce_version)
    if size != len(records) and _next_batch(records, size)[0] is not None:
        raise InvalidRecords("more than one record batch")
    return header


def _checked_codec(header: BatchHeader, produce_version: int) -> BatchHeader:
    if produce_version < 7 and header.codec == Codec.ZSTD:
        raise UnsupportedCodec(f"zstd needs Produce v7, this is v{produce_version}")
    return header


def _next_batch(records: bytes | bytearray | memoryview, position: int) -> tuple[int | None, int]:
    """(magic, size) of the batch or legacy message at `position`; magic None where none is whole."""
    left = len(records) - position
    if left < _BASE_AND_LENGTH.size:
        return None, 0
    _, length = _BASE_AND_LENGTH.unpack_from(records, position)
    if length < _MIN_LENGTH:
        raise CorruptRecords(f"a batch of {length} bytes is smaller than any format allows")
    if left <= _MAGIC_AT:
        return None, 0
    magic = records[position + _MAGIC_AT]
    if magic > batch.MAGIC:
        raise CorruptRecords(f"magic {magic} is unknown")
    size = _BASE_AND_LENGTH.size + length
    return (magic if size <= left else None), size


def _check_header(records: bytes | bytearray | memoryview, header: BatchHeader, rules: Rules) -> None:
    if header.base_offset != 0:
        raise InvalidRecords(f"a producer's batch starts at offset 0, not {header.base_offset}")
    if header.size_bytes > rules.max_message_bytes:
        raise MessageTooLarge(f"a batch of {header.size_bytes} bytes exceeds {rules.max_message_bytes}")
    if not batch.crc_matches(records, 0, header):
        raise CorruptRecords("the batch does not match its CRC")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecords(f"{header.record_count} records, but the last has offset delta {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecords("only the broker writes control batches")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecords(f"sequence {header.base_sequence} with producer id {header.producer_id}")
    if header.codec > Codec.ZSTD:
        raise InvalidRecords(f"codec {header.codec} is unknown")


def _writable(records: bytes | bytearray | memoryview, size: int) -> bytearray | memoryview:
    if isinstance(records, bytes):
        return bytearray(memoryview(records)[:size])
    if isinstance(records, memoryview) and records.readonly:
        return bytearray(records[:size])
    return records if len(records) == size else memoryview(records)[:size]


# --- the records


def _look(records: bytes | bytearray | memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> int | None:
    """The quick way through a batch in which nothing needs to be decoded: its highest timestamp.

    None where a record may be refused or the offsets of a compressed batch have to be written anew: then each record is
    to be looked at.
    """
    if not rules.walk_records:
        lowest, highest = header.base_timestamp, header.max_timestamp
    else:
        data = batch.payload(records, 0, header, max_bytes=rules.max_decompressed_bytes)
        if header.codec:
            low, high, numbered = walk.numbered_timestamps(data, header.record_count)
            if not numbered:
                return None
        elif rules.log_append_time:
            walk.lengths(data, header.record_count)
            return header.max_timestamp
        else:
            low, high = walk.timestamps(data, header.record_count)
        lowest, highest = header.base_timestamp + low, header.base_timestamp + high
    if not rules.log_append_time and _may_be_out_of_range(lowest, highest, rules, now_ms):
        return None
    return max(highest, NO_TIMESTAMP)


def _may_be_out_of_range(lowest: int, highest: int, rules: Rules, now_ms: int) -> bool:
    """`lowest` may be lower than any record's: a yes is not the last word."""
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    return (
        (before < UNLIMITED_MS and now_ms - lowest > before)
        or (after < UNLIMITED_MS and highest - now_ms > after)
        or highest > _INT64_MAX
        or lowest < _INT64_MIN
    )


def _examine(data: bytes | memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> _Findings:
    """Look at every record; raise InvalidRecords or InvalidTimestamps naming all that are refused."""
    data = bytes(data)
    # Records of a batch marked by the client all have the batch's time.
    marked = header.log_append_time
    base = header.max_timestamp if marked else header.base_timestamp
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    oldest = now_ms - before if before < UNLIMITED_MS else _INT64_MIN
    newest = now_ms + after if after < UNLIMITED_MS else _INT64_MAX
    check_range = not rules.log_append_time
    errors: list[RecordError] = []
    refused = 0
    bad_timestamp = False
    highest = NO_TIMESTAMP
    first_delta = 0
    consecutive = True
    for index, entry in enumerate(batch.entries(data, header.record_count)):
        timestamp = base if marked else base + entry[0]
        if index == 0:
            first_delta = entry[0]
        if entry[1] != index:
            consecutive = False
        if timestamp > highest:
            highest = timestamp
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise InvalidRecords(f"timestamp {timestamp} does not fit 64 bits")
        if rules.compacted and entry[2] < 0:
            why = "a compacted topic takes no record without a key"
        elif check_range and timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest:
            bad_timestamp = True
            why = f"timestamp {timestamp} is out of range: {oldest} to {newest} now"
        elif marked and (rules.log_append_time or timestamp == NO_TIMESTAMP or not rules.append_time_bit_allowed):
            bad_timestamp = True
            why = "a producer must not mark its batch as log append time"
        else:
            continue
        refused += 1
        if len(errors) < MAX_RECORD_ERRORS:
            errors.append(RecordError(index, why))
    if bad_timestamp:
        raise InvalidTimestamps(f"{refused} of {header.record_count} records refused, timestamps among them", errors)
    if errors:
        shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:3])
        raise InvalidRecords(f"{refused} of {header.record_count} records refused, the first: {shown}", errors)
    return _Findings(highest, first_delta, consecutive)


def _rebuild(
    records: bytes | bytearray | memoryview,
    data: bytes | memoryview,
    header: BatchHeader,
    findings: _Findings,
    target: int,
    rules: Rules,
) -> bytearray:
    """The same records under another codec, numbered 0, 1, 2, ...; the producer's fields stay."""
    if findings.consecutive and findings.first_timestamp_delta == 0 and not header.log_append_time:
        rebuilt = batch.with_payload(header, data, target, rules.compression_level)
    else:
        decoded = batch.records(records, max_bytes=rules.max_decompressed_bytes)
        rebuilt = batch.build(
            [record._replace(offset=index) for index, record in enumerate(decoded)],
            codec=target,
            compression_level=rules.compression_level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            leader_epoch=header.partition_leader_epoch,
        )
    if len(rebuilt) > rules.max_message_bytes:
        raise MessageTooLarge(f"recompressed, the batch has {len(rebuilt)} bytes and exceeds {rules.max_message_bytes}")
    return rebuilt
