"""Writes sets of format v0 and v1 as a log stores them: in place with new offsets and timestamps, or encoded again.

Also gives a written set its final offsets. validate_legacy.py decides what may be written. Steps as in steps.py.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import partial

from ..limits import INT32_MAX
from . import compression, formats, legacy
from .batch import CODEC_BITS, LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import MessageTooLarge, Unwritable
from .layout import LEGACY_ATTRIBUTES_AT, LEGACY_CRC_AT, LEGACY_TIMESTAMP_AT, MAGIC_AT, OFFSET_AND_LENGTH
from .rules import Buffer, Message, Prepared, Rules, nothing, writable
from .steps import STEP_BYTES, STEP_RECORDS, Steps

_INT64, _UINT32 = struct.Struct(">q"), struct.Struct(">I")

# For data that was decompressed before, within its bound.
_UNBOUNDED = INT32_MAX


# --- stored in place


def numbering(records: Buffer, end: int, rules: Rules, now_ms: int, base_offset: int) -> Steps[Prepared]:
    """Sets the offset of each uncompressed message and, in v1, its timestamp."""
    buffer = writable(records, end)
    headers: list[BatchHeader] = []
    left_entries, left_bytes = STEP_RECORDS, STEP_BYTES
    for position, header in formats.headers(buffer):
        work = partial(
            _stamp, buffer, position, header, base_offset + len(headers), header.max_timestamp, rules, now_ms
        )
        stamped: BatchHeader = (yield work) if header.size_bytes > STEP_BYTES else work()
        headers.append(stamped)
        left_entries -= 1
        left_bytes -= header.size_bytes
        if left_entries <= 0 or left_bytes <= 0:
            left_entries, left_bytes = STEP_RECORDS, STEP_BYTES
            yield
    return _prepared(buffer, headers, rules, now_ms, base_offset)


def keeping_wrapper(
    records: Buffer,
    header: BatchHeader,
    record_count: int,
    max_timestamp: int,
    rules: Rules,
    now_ms: int,
    base_offset: int,
) -> Steps[Prepared]:
    """Sets the offset of a v1 wrapper to that of its last message and its timestamp to the highest inside; the messages
    inside are not changed."""
    buffer = writable(records, header.size_bytes)
    offset = base_offset + record_count - 1
    work = partial(_stamp, buffer, 0, header, offset, max_timestamp, rules, now_ms)
    header = (yield work) if header.size_bytes > STEP_BYTES else work()
    return _prepared(buffer, [header], rules, now_ms, base_offset)


def _stamp(
    buffer: bytearray | memoryview,
    position: int,
    header: BatchHeader,
    offset: int,
    timestamp: int,
    rules: Rules,
    now_ms: int,
) -> BatchHeader:
    """Writes the fields that the broker sets: the offset; in v1 timestamp and timestamp type, with a new CRC if they
    change."""
    legacy.assign(buffer, position, offset=offset)
    crc, attributes = header.crc, header.attributes
    if header.magic:
        timestamp = now_ms if rules.log_append_time else max(timestamp, NO_TIMESTAMP)
        attributes = header.codec | (LOG_APPEND_TIME_BIT if rules.log_append_time else 0)
        if attributes != header.attributes or timestamp != header.max_timestamp:
            buffer[position + LEGACY_ATTRIBUTES_AT] = attributes
            _INT64.pack_into(buffer, position + LEGACY_TIMESTAMP_AT, timestamp)
            with memoryview(buffer) as view, view[position + MAGIC_AT : position + header.size_bytes] as covered:
                crc = zlib.crc32(covered)
            _UINT32.pack_into(buffer, position + LEGACY_CRC_AT, crc)
    fields = (offset, header.batch_length, -1, header.magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1)
    return BatchHeader(*fields, header.record_count)


def _prepared(
    buffer: bytearray | memoryview, headers: Sequence[BatchHeader], rules: Rules, now_ms: int, base_offset: int
) -> Prepared:
    append_time_ms = now_ms if rules.log_append_time else -1
    return Prepared(buffer, headers[0], append_time_ms, base_offset, tuple(headers), rules.compression_level)


def writing(
    messages: Iterable[Message], codec: int, source: int, rules: Rules, now_ms: int, base_offset: int
) -> Steps[Prepared]:
    """Encodes the messages in the topic's format v0 or v1, one by one or as one wrapper.

    They take up to five times the size of v2. Compressed data may expand far: with a codec, of the source or of the
    topic, the size is bounded by `max_decompressed_bytes`.
    """
    if codec >= Codec.ZSTD:
        raise Unwritable(f"the topic's format v{rules.target_magic} has no zstd")
    magic = rules.target_magic
    mark = LOG_APPEND_TIME_BIT if rules.log_append_time and magic else 0
    first_offset = 0 if codec and magic else base_offset  # offsets inside a v1 wrapper count from 0
    out = bytearray()
    count, highest, step_start = 0, NO_TIMESTAMP, 0
    for timestamp, key, value, headers in messages:
        if timestamp < NO_TIMESTAMP:
            raise Unwritable(f"timestamp {timestamp} cannot be written again; the lowest is -1")
        if len(headers) > 1:
            raise Unwritable(f"the topic's format v{magic} has no record headers")
        highest = max(highest, timestamp)
        stored = now_ms if mark and not codec else timestamp
        put = partial(legacy.put_message, out, first_offset + count, magic, mark, stored, key, value)  # pyright: ignore[reportArgumentType]
        if len(key or b"") + len(value or b"") > STEP_BYTES:
            yield put
        else:
            put()
        count += 1
        if count % STEP_RECORDS == 0 or len(out) - step_start > STEP_BYTES:
            step_start = len(out)
            if (codec or source) and step_start > rules.max_decompressed_bytes:
                raise MessageTooLarge(
                    f"in format v{magic} the set takes more than {rules.max_decompressed_bytes} bytes"
                )
            yield
    if codec:
        time = now_ms if mark else highest
        offset = base_offset + count - 1
        work = partial(_wrapped, out, offset, magic, mark | codec, time, rules.compression_level)
        out = (yield work) if len(out) > STEP_BYTES else work()
    headers = yield from _sizes_checked(out, rules)
    return _prepared(out, headers, rules, now_ms, base_offset)


def _wrapped(
    messages: bytearray, offset: int, magic: int, attributes: int, timestamp: int, level: int | None
) -> bytearray:
    compressed = compression.compress(attributes & CODEC_BITS, messages, level, magic=magic)
    return legacy.wrapper(offset, magic, attributes, timestamp, compressed)


def _sizes_checked(buffer: bytearray, rules: Rules) -> Steps[list[BatchHeader]]:
    headers: list[BatchHeader] = []
    for _, header in formats.headers(buffer):
        if header.size_bytes > rules.max_message_bytes:
            raise MessageTooLarge(
                f"after conversion, a message has {header.size_bytes} bytes and exceeds {rules.max_message_bytes}"
            )
        headers.append(header)
        if len(headers) % STEP_RECORDS == 0:
            yield
    return headers


# --- final offsets


def place(prepared: Prepared, base_offset: int) -> Prepared:
    """Like validate.place. Only v0 wrappers, whose inner offsets are absolute, are compressed again, which may change
    their size."""
    shift = base_offset - prepared.base_offset
    if not prepared.headers:
        return nothing(base_offset)
    if not shift:
        return prepared
    buffer, headers = prepared.buffer, prepared.headers
    first = prepared.header
    if first.magic == 0 and first.codec:
        messages = bytearray(legacy.inner(buffer, 0, first, max_bytes=_UNBOUNDED))
        position = 0
        while position < len(messages):
            offset, length = OFFSET_AND_LENGTH.unpack_from(messages, position)
            _INT64.pack_into(messages, position, offset + shift)
            position += OFFSET_AND_LENGTH.size + length
        last = first.base_offset + shift
        buffer = _wrapped(messages, last, 0, first.attributes, NO_TIMESTAMP, prepared.compression_level)
        headers = (legacy.read_header(buffer),)
    else:
        position = 0
        for header in headers:
            legacy.assign(buffer, position, offset=header.base_offset + shift)
            position += header.size_bytes
        headers = tuple([header.placed(header.base_offset + shift, -1) for header in headers])
    return Prepared(buffer, headers[0], prepared.log_append_time_ms, base_offset, headers, prepared.compression_level)
