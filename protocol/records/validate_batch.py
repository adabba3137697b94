"""The rules of validate.py for one batch of format v2: its header and each record, and writing it again.

Validates one batch of a client in steps; validate.py decides which of these functions a batch passes through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ..limits import INT32_MAX, INT64_MAX, INT64_MIN
from ..named import NamedTuple
from . import batch, record_sizes, walk
from .batch import NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import (
    CorruptRecords,
    InvalidRecords,
    MessageTooLarge,
    OverflowingSize,
    Undecodable,
    UnknownBatches,
    UnsupportedCodec,
    UnsupportedForFormat,
    Unwritable,
)
from .layout import MAGIC_AT, OFFSET_AND_LENGTH
from .rules import NO_HEADERS, Buffer, Message, Rules, Verdicts, unnumbered
from .steps import STEP_BYTES, STEP_RECORDS, Steps

NO_PRODUCER = -1
_INT64 = struct.Struct(">q")

# Copying and CRC-32C run at the speed of memory: this much takes as long as walking STEP_RECORDS.
CHECKSUM_BYTES = 4 * 1024 * 1024


MIN_LENGTH = 14  # the smallest message after its size field, that of v0


class Findings(NamedTuple):
    lowest_timestamp: int
    """May be lower than that of any record."""
    max_timestamp: int
    consecutive: bool  # offset deltas are 0, 1, 2, ...


def next_entry(records: Buffer, position: int, *, overflows: bool = True) -> tuple[int | None, int]:
    """Returns the magic and size of the batch or message at `position`; magic None if no whole one is left. Raises
    UnknownBatches and, if sizes near 2^31 overflow as in Kafka 0.11 and later, OverflowingSize."""
    left = len(records) - position
    if left < OFFSET_AND_LENGTH.size:
        return None, 0
    _, length = OFFSET_AND_LENGTH.unpack_from(records, position)
    if length < MIN_LENGTH:
        why = f"Record size {length} is less than the minimum record overhead ({MIN_LENGTH})"
        raise UnknownBatches(why)
    if left <= MAGIC_AT:
        return None, 0
    magic = records[position + MAGIC_AT]
    if magic > batch.MAGIC:
        why = f"Invalid magic found in record: {magic if magic < 128 else magic - 256}"
        raise UnknownBatches(why)
    size = OFFSET_AND_LENGTH.size + length
    if size > INT32_MAX and overflows:
        raise OverflowingSize(f"a batch of {length} bytes")
    return (magic if size <= left else None), size


def check_base_offset(records: Buffer, position: int) -> None:
    """Checks that the base offset is 0. Kafka does so before it checks the size, also for a batch shorter than its
    header."""
    (base_offset,) = _INT64.unpack_from(records, position)
    if base_offset != 0:
        raise InvalidRecords(f"a producer's batch starts at offset 0, not {base_offset}")


def check_whole(records: Buffer, position: int, header: BatchHeader, rules: Rules) -> None:
    """Checks size, CRC and codec of a v2 batch, before those of the records in any batch."""
    check_base_offset(records, position)
    if header.size_bytes > rules.max_message_bytes:
        raise MessageTooLarge(f"a batch of {header.size_bytes} bytes exceeds {rules.max_message_bytes}")
    if not batch.crc_matches(records, position, header):
        raise CorruptRecords("the batch does not match its CRC")
    if header.codec > Codec.ZSTD:
        raise Undecodable(f"codec {header.codec} is unknown")


def check_header(header: BatchHeader, rules: Rules) -> None:
    """Checks the header of a client's batch against the rules."""
    if not rules.zstd_allowed and (header.codec if rules.compression is None else rules.compression) == Codec.ZSTD:
        raise UnsupportedCodec("zstd is not allowed by inter.broker.protocol.version")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecords(f"{header.record_count} records, but the last has offset delta {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecords("only the broker writes control batches")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecords(f"sequence {header.base_sequence} with producer id {header.producer_id}")
    if rules.target_magic < batch.MAGIC and (header.has_producer or header.is_transactional):
        raise UnsupportedForFormat(f"format v{rules.target_magic} has no room for producers and transactions")


def inflating(
    opened: Callable[..., bytes | memoryview], header: BatchHeader, max_bytes: int, rules: Rules, *, large: bool = False
) -> Steps[bytes | memoryview]:
    """Decompresses with `opened(max_bytes=...)`: small data at once, and data that is `large` or turns out to be in a
    worker thread. Raises InvalidRecords for a record above the rules' limit."""
    if not header.codec:
        return opened(max_bytes=max_bytes)
    if header.size_bytes <= STEP_BYTES and not large:
        try:
            data = opened(max_bytes=min(max_bytes, STEP_BYTES))
        except InvalidRecords:
            if max_bytes <= STEP_BYTES:
                raise
        else:
            record_sizes.check(data, header.magic, rules.max_record_bytes)
            return data
    data = yield partial(opened, max_bytes=max_bytes)
    if len(data) > rules.max_record_bytes:
        yield partial(record_sizes.check, data, header.magic, rules.max_record_bytes)
    return data


def examining(data: bytes | memoryview, header: BatchHeader, rules: Rules, now_ms: int) -> Steps[Findings]:
    """Checks every record. Raises InvalidRecords or InvalidTimestamps with all refused records."""
    # With the log-append-time bit all records have the batch's max timestamp.
    marked = header.log_append_time
    base = header.max_timestamp if marked else header.base_timestamp
    count = header.record_count
    verdicts = Verdicts(rules, now_ms, marked=marked, at_once=not header.codec)
    codec = header.codec if rules.compression is None else rules.compression
    numbered = bool(rules.refuse_unnumbered and rules.target_magic and (header.codec or codec))
    # No delta has more than 64 bits, and the compiled walk takes no larger bound.
    least, most = max(verdicts.oldest - base, INT64_MIN), min(verdicts.newest - base, INT64_MAX)
    is_walked = not marked and not numbered and least <= most
    walk.check_count(data, count)
    highest, lowest = NO_TIMESTAMP, INT64_MAX
    consecutive = True
    position, end = 0, len(data)
    index, left = 0, STEP_RECORDS
    while index < count:
        if left <= 0:
            left = STEP_RECORDS
            yield
        if is_walked:
            room = min(left, count - index)
            position, passed, low, high, in_order = walk.whole_from(
                data, position, room, index, least, most, rules.compacted
            )
            consecutive = consecutive and in_order
            if passed:
                index += passed
                left -= passed
                highest, lowest = max(highest, base + high), min(lowest, base + low)
                continue
        found = walk.record(data, position, end)
        position = found.end
        left -= 1 + found.header_count
        if found.header_count:
            yield from _skipping_headers(data, found)
        # a release that stops at the first refused record has checked the end of the payload before
        if index == count - 1:
            walk.check_end(position, end, count)
        timestamp = base if marked else base + found.timestamp_delta
        highest, lowest = max(highest, timestamp), min(lowest, timestamp)
        if marked:  # a create-time topic clears the bit: readers then see the record's own timestamp
            verdicts.check_fits(index, header.base_timestamp + found.timestamp_delta)
        shown = _shown(index, timestamp, found, codec if codec == header.codec else 0) if marked else ""
        verdicts.judge(index, timestamp, found.key_bytes >= 0, shown)
        if found.offset_delta != index:
            consecutive = False
            if numbered:
                verdicts.refuse(index, unnumbered(found.offset_delta, index))
        index += 1
    walk.check_end(position, end, count)
    verdicts.check()
    return Findings(lowest, highest, consecutive)


def _shown(index: int, timestamp: int, found: walk.Walked, kept_codec: int) -> str:
    """Returns a record as Kafka prints it: of a compressed batch that is kept it reads no keys and values."""
    name, least = ("PartialDefaultRecord", -1) if kept_codec else ("DefaultRecord", 0)
    key, value = max(found.key_bytes, least), max(found.value_bytes, least)
    return f"{name}(offset={index}, timestamp={timestamp}, key={key} bytes, value={value} bytes)"


def _skipping_headers(data: bytes | memoryview, found: walk.Walked) -> Steps[None]:
    position, left = found.headers_position, found.header_count
    while left > STEP_RECORDS:
        position = walk.skip_headers(data, position, found.end, STEP_RECORDS)
        left -= STEP_RECORDS
        yield
    position = walk.skip_headers(data, position, found.end, left)
    if position != found.end:
        raise InvalidRecords(f"a record's parts and its length differ by {position - found.end} bytes")


def messages(data: bytes | memoryview, header: BatchHeader) -> Iterator[Message]:
    """Yields the checked records for conversion to another format."""
    position, end = 0, len(data)
    view = memoryview(data)
    for _ in range(header.record_count):
        found = walk.record(data, position, end)
        position = found.end
        timestamp = header.max_timestamp if header.log_append_time else header.base_timestamp + found.timestamp_delta
        _, key_start = walk.varint(data, found.key_position)
        value_end = found.value_position + max(found.value_bytes, 0)
        yield (
            timestamp,
            view[key_start : key_start + found.key_bytes] if found.key_bytes >= 0 else None,
            view[found.value_position : value_end] if found.value_bytes >= 0 else None,
            view[value_end:position] if found.header_count else NO_HEADERS,
        )


def rebuilding(data: Buffer, header: BatchHeader, findings: Findings, target: int, rules: Rules) -> Steps[bytearray]:
    """Builds the same records with another codec, numbered 0, 1, 2, ...; the producer's fields are kept."""
    if findings.lowest_timestamp < NO_TIMESTAMP:
        yield from _check_timestamps(data, header)
    if rules.unnumbered_fail and target == header.codec:
        raise Unwritable("the offset deltas of a compressed batch are not 0, 1, 2, ...")
    _check_producer(header)
    marked = header.log_append_time
    first_delta, _ = walk.varlong(data, walk.varint(data, 0)[1] + 1)  # after the length and the attributes
    if marked or first_delta or not findings.consecutive:
        data = yield from _numbering(data, header.record_count, None if marked else first_delta)
        base_timestamp = header.max_timestamp if marked else header.base_timestamp + first_delta
        header = header._replace(base_timestamp=base_timestamp)
    return (yield from _packing(header, data, target, rules))


def _check_timestamps(data: Buffer, header: BatchHeader) -> Steps[None]:
    """Raises Unwritable for a record with a timestamp below -1."""
    position, end = 0, len(data)
    for index in range(0 if header.log_append_time else header.record_count):
        if index and index % STEP_RECORDS == 0:
            yield
        found = walk.record(data, position, end)
        position = found.end
        if header.base_timestamp + found.timestamp_delta < NO_TIMESTAMP:
            raise Unwritable(
                f"timestamp {header.base_timestamp + found.timestamp_delta} cannot be written again; the lowest is -1"
            )
    if header.log_append_time and header.max_timestamp < NO_TIMESTAMP:
        raise Unwritable(f"timestamp {header.max_timestamp} cannot be written again; the lowest is -1")


def _check_producer(header: BatchHeader) -> None:
    """Checks the producer fields that Kafka requires when it writes a batch again. Raises Unwritable."""
    if header.producer_id == NO_PRODUCER:
        if header.is_transactional:
            raise Unwritable("a batch of a transaction without a producer id")
    elif header.producer_epoch == -1 or header.base_sequence < 0:
        epoch, sequence = header.producer_epoch, header.base_sequence
        raise Unwritable(f"producer {header.producer_id} with epoch {epoch} and sequence {sequence}")


def _numbering(data: Buffer, record_count: int, first_delta: int | None) -> Steps[bytearray]:
    """Encodes the records again with consecutive offsets and timestamps relative to the first; None for `first_delta`
    gives all the same timestamp. The rest of each record is copied."""
    out = bytearray()
    view = memoryview(data)
    position, end = 0, len(data)
    step_start = 0
    for index in range(record_count):
        if index and (index % STEP_RECORDS == 0 or len(out) - step_start > STEP_BYTES):
            step_start = len(out)
            yield
        found = walk.record(data, position, end)
        position = found.end
        delta = 0 if first_delta is None else found.timestamp_delta - first_delta
        head = b"\x00" + walk.zigzag(delta) + walk.zigzag(index)
        out += walk.zigzag(len(head) + position - found.key_position)
        out += head
        rest = view[found.key_position : position]
        if len(rest) > STEP_BYTES:
            yield partial(_append, out, (rest,))
        else:
            out += rest
    return out


def gathering(
    messages: Iterable[Message], first: BatchHeader, codec: int, rules: Rules, now_ms: int
) -> Steps[bytearray]:
    """Builds one batch, numbered 0, 1, 2, ... from offset 0, of records of other batches or formats. The producer is
    that of `first`, the header of the first of them."""
    out = bytearray()
    base_timestamp, highest, count = NO_TIMESTAMP, NO_TIMESTAMP, 0
    step_start = 0
    for timestamp, key, value, headers in messages:
        if timestamp < NO_TIMESTAMP:
            raise Unwritable(f"timestamp {timestamp} cannot be written again; the lowest is -1")
        if not count:
            base_timestamp = timestamp
        elif count % STEP_RECORDS == 0 or len(out) - step_start > STEP_BYTES:
            step_start = len(out)
            yield
        highest = max(highest, timestamp)
        head = b"\x00" + walk.zigzag(timestamp - base_timestamp) + walk.zigzag(count)
        key_head = b"\x01" if key is None else walk.zigzag(len(key))
        value_head = b"\x01" if value is None else walk.zigzag(len(value))
        key, value = key or b"", value or b""
        size = len(head) + len(key_head) + len(key) + len(value_head) + len(value) + len(headers)
        parts = (walk.zigzag(size), head, key_head, key, value_head, value, headers)
        if size > STEP_BYTES:
            yield partial(_append, out, parts)
        else:
            _append(out, parts)
        count += 1
    kept = first.attributes & batch.TRANSACTIONAL_BIT if first.magic == batch.MAGIC else 0
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=batch.MAGIC,
        crc=0,
        attributes=kept | (batch.LOG_APPEND_TIME_BIT if rules.log_append_time else 0),
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=now_ms if rules.log_append_time else highest,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        record_count=count,
    )
    return (yield from _packing(header, out, codec, rules))


def _append(out: bytearray, parts: Iterable[Buffer]) -> None:
    for part in parts:
        out += part


def _packing(header: BatchHeader, data: Buffer, codec: int, rules: Rules) -> Steps[bytearray]:
    if codec and len(data) > rules.max_decompressed_bytes:  # more than any reader decompresses
        raise MessageTooLarge(f"after conversion, the records take more than {rules.max_decompressed_bytes} bytes")
    work = partial(batch.with_payload, header, data, codec, rules.compression_level)
    packed: bytearray = (yield work) if len(data) > (STEP_BYTES if codec else CHECKSUM_BYTES) else work()
    if len(packed) > rules.max_message_bytes:
        raise MessageTooLarge(
            f"after conversion, a batch has {len(packed)} bytes and exceeds {rules.max_message_bytes}"
        )
    return packed
