"""Checks the record sets of Produce v0-v2: messages of format v0 and v1, wrappers, even v2 batches, any number of them.

Applies Kafka's rules for such sets and converts them: stored in place, encoded again as one set of the same or an older
format, or as one v2 batch. set_writer.py writes v0 and v1. Steps as in steps.py. A message set that is cut inside a
wrapper is refused; Kafka accepts the whole part of it, and no client sends it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import partial

from ..limits import INT32_MAX
from ..named import NamedTuple
from . import batch, convert, formats, legacy, validate_batch
from .batch import CODEC_BITS, LOG_APPEND_TIME_BIT, NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import CorruptRecords, InvalidRecords, MessageTooLarge, Undecodable, UnsupportedCodec, Unwritable
from .layout import (
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_KEY_AT,
    LEGACY_TIMESTAMP_AT,
    MAGIC_AT,
    MIN_BYTES,
    OFFSET_AND_LENGTH,
    PREFIX_BYTES,
)
from .rules import NO_HEADERS, Buffer, Message, Prepared, Rules, Verdicts, nothing, unnumbered
from .set_writer import keeping_wrapper, numbering, writing
from .steps import STEP_BYTES, STEP_RECORDS, Steps

_FIXED = struct.Struct(">qiIbb").unpack_from
_WITH_KEY = (struct.Struct(">qiIbbi"), struct.Struct(">qiIbbqi"))  # up to the length of the key, by magic
_BITS = CODEC_BITS | LOG_APPEND_TIME_BIT
_INT32, _INT64, _UINT32 = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">I")

_UNBOUNDED = INT32_MAX  # no data is decompressed under this bound


class _Set(NamedTuple):
    """A summary of all headers of a set."""

    end: int
    entries: int
    first: BatchHeader
    magics: frozenset[int]
    codec: int
    """The codec of the last compressed entry, 0 if there is none."""


class _Seen(NamedTuple):
    """A summary of some records."""

    records: int
    lowest_timestamp: int
    """The lowest timestamp, at most -1."""
    max_timestamp: int
    consecutive: bool
    """Whether the offsets continue from the expected one."""

    def then(self, more: _Seen) -> _Seen:
        """Combines two summaries of consecutive records."""
        return _Seen(
            self.records + more.records,
            min(self.lowest_timestamp, more.lowest_timestamp),
            max(self.max_timestamp, more.max_timestamp),
            self.consecutive and more.consecutive,
        )


class _Found(NamedTuple):
    """A summary of all records of a set."""

    opened: list[bytes | memoryview]
    """The decompressed records of each wrapper or v2 batch, in order."""
    seen: _Seen


def preparing(records: Buffer, rules: Rules, now_ms: int, base_offset: int) -> Steps[Prepared]:
    """Like validate.preparing, for a set of any formats."""
    whole = yield from _splitting(records, rules)
    if whole is None:
        return nothing(base_offset)
    target = whole.codec if rules.compression is None else rules.compression
    _check_set(whole, target, rules)
    found = yield from _examining(records, whole, target, rules, now_ms)
    same_format = whole.magics == frozenset((rules.target_magic,))
    if rules.target_magic < batch.MAGIC and same_format and whole.codec == target:
        if not target:
            return (yield from numbering(records, whole.end, rules, now_ms, base_offset))
        if rules.target_magic and whole.entries == 1 and found.seen.consecutive:
            found_in = found.seen.records, found.seen.max_timestamp
            return (yield from keeping_wrapper(records, whole.first, *found_in, rules, now_ms, base_offset))
    messages = _messages(records, whole.end, found.opened)
    if found.seen.lowest_timestamp < NO_TIMESTAMP:
        raise Unwritable(f"timestamp {found.seen.lowest_timestamp} cannot be written again; the lowest is -1")
    if rules.target_magic < batch.MAGIC:
        return (yield from writing(messages, target, whole.codec, rules, now_ms, base_offset))
    append_time_ms = now_ms if rules.log_append_time else None
    if batch.MAGIC in whole.magics:  # only releases before 2.4 merge such sets
        built = yield from validate_batch.gathering(messages, whole.first, target, rules, now_ms)
    else:
        built = yield from convert.up_set(
            memoryview(records)[: whole.end],
            target,
            level=rules.compression_level,
            log_append_time_ms=append_time_ms,
            max_bytes=rules.max_decompressed_bytes if target else _UNBOUNDED,
        )
    if len(built) > rules.max_message_bytes:
        raise MessageTooLarge(f"after conversion, a batch has {len(built)} bytes and exceeds {rules.max_message_bytes}")
    header = batch.read_header(built)
    return Prepared(built, header, now_ms if rules.log_append_time else -1, 0, (header,))


# --- checking


def _splitting(records: Buffer, rules: Rules) -> Steps[_Set | None]:
    """Checks the headers and CRCs of all whole entries."""
    view = memoryview(records)
    position = count = codec = 0
    first: BatchHeader | None = None
    magic: int | None = None
    magics: set[int] = set()
    left, step_end = STEP_RECORDS, STEP_BYTES
    while True:
        if left <= 0 or position >= step_end:
            left, step_end = STEP_RECORDS, position + STEP_BYTES
            yield
        if magic is not None and magic < batch.MAGIC:
            position, passed = _split_plain(view, position, magic, rules, left, step_end)
            count += passed
            left -= passed
            if passed:
                continue
        magic, size = validate_batch.next_entry(records, position, overflows=rules.sizes_overflow)
        if magic is None:
            break
        if magic == batch.MAGIC:
            validate_batch.check_base_offset(records, position)
        header = formats.read_header(records, position)
        check = partial(_check_entry, records, position, header, rules)
        if size > STEP_BYTES:
            yield check
        else:
            check()
        if first is None:
            first = header
        magics.add(magic)
        codec = header.codec or codec
        position += size
        count += 1
        left -= 1
    return None if first is None else _Set(position, count, first, frozenset(magics), codec)


def _split_plain(
    view: memoryview, position: int, magic: int, rules: Rules, most: int, step_end: int
) -> tuple[int, int]:
    """Skips the next valid plain messages of this format, quickly; returns (position, count)."""
    end = len(view)
    smallest, largest = MIN_BYTES[magic], min(rules.max_message_bytes, STEP_BYTES)
    count = 0
    while count < most and position < step_end and end - position >= smallest:
        _, length, crc, found, attributes = _FIXED(view, position)
        following = position + PREFIX_BYTES + length
        if found != magic or attributes & CODEC_BITS or following > end:
            break
        if not smallest <= following - position <= largest:
            break
        if zlib.crc32(view[position + MAGIC_AT : following]) != crc:
            break
        position = following
        count += 1
    return position, count


def _check_entry(records: Buffer, position: int, header: BatchHeader, rules: Rules) -> None:
    if header.magic == batch.MAGIC:
        validate_batch.check_whole(records, position, header, rules)
        return
    if header.size_bytes > rules.max_message_bytes:
        raise MessageTooLarge(f"a message of {header.size_bytes} bytes exceeds {rules.max_message_bytes}")
    if not legacy.crc_matches(records, position, header):
        raise CorruptRecords(f"the message at byte {position} does not match its CRC")
    if header.codec > Codec.ZSTD:
        raise Undecodable(f"codec {header.codec} is unknown")


def _check_set(whole: _Set, target: int, rules: Rules) -> None:
    if not rules.old_formats and whole.magics != frozenset((batch.MAGIC,)):
        raise InvalidRecords(f"a batch of format v{min(whole.magics)}: only v2 is taken")
    if target == Codec.ZSTD and not rules.zstd_allowed:
        raise UnsupportedCodec("zstd is not allowed by inter.broker.protocol.version")
    if rules.one_magic and whole.entries > 1 and (whole.codec or whole.first.magic == batch.MAGIC):
        raise InvalidRecords(f"{whole.entries} batches where a compressed message or a v2 batch must be alone")


def _examining(records: Buffer, whole: _Set, target: int, rules: Rules, now_ms: int) -> Steps[_Found]:
    """Checks every record, entry after entry. Raises the errors of the first refused entry."""
    numbered = bool(rules.refuse_unnumbered and rules.target_magic and (whole.codec or target))
    view = memoryview(records)
    opened: list[bytes | memoryview] = []
    open_bytes = rules.max_decompressed_bytes
    verdicts = Verdicts(rules, now_ms, marked=False)
    seen = _Seen(0, NO_TIMESTAMP, NO_TIMESTAMP, True)
    position = 0
    left = STEP_RECORDS
    while position < whole.end:
        if left <= 0:
            left = STEP_RECORDS
            yield
        if whole.first.magic < batch.MAGIC:
            plain, position = _examine_plain(view, position, whole, left, seen.records, numbered, verdicts)
            if plain.records:
                seen = seen.then(plain)
                left -= plain.records
                continue
        left -= 1
        header = formats.read_header(records, position)
        if rules.one_magic and header.magic != whole.first.magic:
            raise InvalidRecords(f"a message of format v{header.magic} in a set that begins with v{whole.first.magic}")
        if header.magic < batch.MAGIC and not header.codec:
            seen = seen.then(_examine_message(view, position, header, seen.records, numbered, verdicts))
        else:
            reader = batch.payload if header.magic == batch.MAGIC else legacy.inner
            if header.magic == batch.MAGIC:
                validate_batch.check_header(header, rules)
            opening = partial(reader, records, position, header)
            data = yield from validate_batch.inflating(opening, header, open_bytes, rules)
            open_bytes -= len(data)
            opened.append(data)
            if header.magic == batch.MAGIC:
                findings = yield from validate_batch.examining(data, header, rules, now_ms)
                times = findings.lowest_timestamp, findings.max_timestamp
                seen = seen.then(_Seen(header.record_count, *times, findings.consecutive))
            else:
                seen = seen.then((yield from _examining_inner(data, header, rules, now_ms, seen.records, numbered)))
        position += header.size_bytes
    return _Found(opened, seen)


def _examine_plain(
    view: memoryview, position: int, whole: _Set, most: int, expected: int, numbered: bool, verdicts: Verdicts
) -> tuple[_Seen, int]:
    """Checks the next plain messages of the first one's format, quickly, up to one that may be refused; returns where
    they end."""
    magic = whole.first.magic
    with_fixed = _WITH_KEY[magic]
    oldest, newest, compacted = verdicts.oldest, verdicts.newest, verdicts.compacted
    lowest = highest = timestamp = NO_TIMESTAMP
    consecutive = True
    count = 0
    while count < most and position < whole.end:
        if magic:
            if whole.end - position < with_fixed.size:
                break
            offset, length, _, found, attributes, timestamp, key_bytes = with_fixed.unpack_from(view, position)
            if attributes & _BITS or not (oldest <= timestamp <= newest or timestamp == NO_TIMESTAMP):
                break
            if offset != expected + count:
                consecutive = False
                if numbered:
                    break
        else:
            _, length, _, found, attributes, key_bytes = with_fixed.unpack_from(view, position)
            if attributes & CODEC_BITS:
                break
        if found != magic or (compacted and key_bytes < 0):
            break
        end = position + PREFIX_BYTES + length
        at = position + with_fixed.size + (key_bytes if key_bytes > 0 else 0)
        if at + 4 > end:
            break
        (value_bytes,) = _INT32.unpack_from(view, at)
        if at + 4 + (value_bytes if value_bytes > 0 else 0) != end:
            break
        if timestamp > highest:
            highest = timestamp
        elif timestamp < lowest:
            lowest = timestamp
        position = end
        count += 1
    return _Seen(count, lowest, highest, consecutive), position


def _examine_message(
    view: memoryview, position: int, header: BatchHeader, expected: int, numbered: bool, verdicts: Verdicts
) -> _Seen:
    """Checks one plain message in full."""
    has_key = _has_key(view, position, header.magic, position + header.size_bytes)
    timestamp = header.max_timestamp
    verdicts.marked = header.log_append_time
    verdicts.judge(0, timestamp, has_key)
    consecutive = not header.magic or header.base_offset == expected
    if numbered and not consecutive:
        verdicts.refuse(0, unnumbered(header.base_offset, expected))
    verdicts.check()
    return _Seen(1, min(timestamp, NO_TIMESTAMP), max(timestamp, NO_TIMESTAMP), consecutive)


def _has_key(data: Buffer, position: int, magic: int, end: int) -> bool:
    """Returns whether the message has a key; its parts must fill it exactly. Raises Undecodable."""
    at = position + LEGACY_KEY_AT[magic]
    (key_bytes,) = _INT32.unpack_from(data, at)
    at += 4 + max(key_bytes, 0)
    if at + 4 > end:
        raise Undecodable(f"a key of {key_bytes} bytes in a message of {end - position}")
    (value_bytes,) = _INT32.unpack_from(data, at)
    if at + 4 + max(value_bytes, 0) != end:
        raise Undecodable(f"a message's parts and its size differ by {end - at - 4 - max(value_bytes, 0)} bytes")
    return key_bytes >= 0


def _last_inner(data: bytes | memoryview) -> Steps[tuple[int, int]]:
    """Returns the number of messages inside a wrapper and the offset field of the last, by their sizes alone."""
    position, end = 0, len(data)
    count, offset = 0, 0
    while position < end:
        if end - position < OFFSET_AND_LENGTH.size + validate_batch.MIN_LENGTH:
            raise CorruptRecords(f"{end - position} bytes after the last message of a compressed one")
        offset, length = OFFSET_AND_LENGTH.unpack_from(data, position)
        if length < validate_batch.MIN_LENGTH or length > end - position - OFFSET_AND_LENGTH.size:
            raise CorruptRecords(f"a message of {length} bytes inside of a compressed one")
        position += OFFSET_AND_LENGTH.size + length
        count += 1
        if count % STEP_RECORDS == 0:
            yield
    if not count:
        raise InvalidRecords("a compressed message without messages inside")
    return count, offset


def _examining_inner(
    data: bytes | memoryview, header: BatchHeader, rules: Rules, now_ms: int, expected: int, numbered: bool
) -> Steps[_Seen]:
    """Checks the messages inside a wrapper. With `numbered` their offsets must continue from `expected`."""
    count, last = yield from _last_inner(data)
    magic = header.magic
    shift = 0
    if magic:
        # Old librdkafka versions put an offset of 0 into every wrapper.
        if header.base_offset < last and header.base_offset != 0:
            raise InvalidRecords(f"a wrapper's offset {header.base_offset} is below {last}, its last message's")
        shift = header.base_offset - last if header.base_offset else 0
    marked = header.log_append_time
    verdicts = Verdicts(rules, now_ms, marked=marked)
    lowest = highest = NO_TIMESTAMP
    consecutive = True
    position = 0
    left_records, left_bytes = STEP_RECORDS, STEP_BYTES
    view = memoryview(data)
    for index in range(count):
        offset, length = OFFSET_AND_LENGTH.unpack_from(data, position)
        end = position + OFFSET_AND_LENGTH.size + length
        found = data[position + MAGIC_AT]
        if data[position + LEGACY_ATTRIBUTES_AT] & CODEC_BITS:
            raise InvalidRecords("a compressed message inside of a compressed message")
        if found != magic:
            verdicts.refuse(index, f"a message of format v{found} inside of one of v{magic}")
        else:
            if end - position < MIN_BYTES[magic]:
                raise CorruptRecords(f"a message of {end - position} bytes is smaller than its fixed fields")
            (crc,) = _UINT32.unpack_from(data, position + LEGACY_CRC_AT)
            covered = view[position + MAGIC_AT : end]
            actual = (yield partial(zlib.crc32, covered)) if length > STEP_BYTES else zlib.crc32(covered)
            if actual != crc:
                raise CorruptRecords("a message inside of a compressed one does not match its CRC")
            has_key = _has_key(data, position, magic, end)
            timestamp = NO_TIMESTAMP
            if magic:
                timestamp = header.max_timestamp
                if not marked:
                    (timestamp,) = _INT64.unpack_from(data, position + LEGACY_TIMESTAMP_AT)
            lowest, highest = min(lowest, timestamp), max(highest, timestamp)
            verdicts.judge(index, timestamp, has_key)
        if offset + shift != expected + index:
            consecutive = False
            if numbered and magic:
                verdicts.refuse(index, unnumbered(offset + shift, expected + index))
        position = end
        left_records -= 1
        left_bytes -= length
        if left_records <= 0 or left_bytes <= 0:
            left_records, left_bytes = STEP_RECORDS, STEP_BYTES
            yield
    verdicts.check()
    return _Seen(count, lowest, highest, consecutive)


# --- conversion


def _messages(records: Buffer, end: int, opened: Sequence[bytes | memoryview]) -> Iterator[Message]:
    """Yields all records of a checked set for conversion to another format."""
    data_of = iter(opened)
    view = memoryview(records)
    for position, header in formats.headers(memoryview(records)[:end]):
        if header.magic == batch.MAGIC:
            yield from validate_batch.messages(next(data_of), header)
        elif not header.codec:
            yield _message(view, position, header.magic, header.max_timestamp)[0]
        else:
            data = memoryview(next(data_of))
            at = 0
            while at < len(data):
                timestamp = header.max_timestamp
                if header.magic and not header.log_append_time:
                    (timestamp,) = _INT64.unpack_from(data, at + LEGACY_TIMESTAMP_AT)
                message, at = _message(data, at, header.magic, timestamp)
                yield message


def _message(view: memoryview, position: int, magic: int, timestamp: int) -> tuple[Message, int]:
    """Returns a checked message and the position of the next one."""
    at = position + LEGACY_KEY_AT[magic]
    (key_bytes,) = _INT32.unpack_from(view, at)
    at += 4
    key = view[at : at + key_bytes] if key_bytes >= 0 else None
    at += max(key_bytes, 0)
    (value_bytes,) = _INT32.unpack_from(view, at)
    at += 4
    value = view[at : at + value_bytes] if value_bytes >= 0 else None
    return (timestamp, key, value, NO_HEADERS), at + max(value_bytes, 0)
