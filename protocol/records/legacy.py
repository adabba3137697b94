"""Message formats v0 and v1 (KIP-31, KIP-32): messages, compressed wrappers, writing both.

The byte layout and its structural rules, for one stored entry at a time: a plain message, or a wrapper whose value is a
compressed message set. A header is returned as a `batch.BatchHeader`, so that a log can hold all formats: fields that
the old formats lack are -1 or 0, and the offset field, which is that of the entry's last message, is both first and
last offset. The first offset of a wrapper is known only after decompression. All integers are big-endian, times epoch
milliseconds.

    offset bytes field
         0     8 offset; of a wrapper: of its last message
         8     4 size of what follows
        12     4 CRC-32 of bytes 16 to end
        16     1 magic (0, 1)
        17     1 attributes: bits 0-2 codec, 3 log append time (v1)
        18     8 timestamp (v1 only)
     18/26     4 key length (-1 null), key
               4 value length (-1 null), value

Inside a wrapper the offsets are absolute in v0 and count from 0 in v1 (KIP-31). A wrapper's codec compresses the set of
its messages, each with its own size and CRC; a wrapper in a wrapper is refused, as in Kafka.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from . import compression
from .batch import CODEC_BITS, LOG_APPEND_TIME_BIT, MAX_DECOMPRESSED_BYTES, NO_TIMESTAMP, BatchHeader, Buffer, Record
from .compression import Codec
from .errors import CorruptRecords, InvalidRecords, Undecodable, UnsupportedCodec
from .layout import LEGACY_CRC_FROM, LEGACY_KEY_AT, MIN_BYTES, OFFSET_AND_LENGTH, PREFIX_BYTES

_V0 = struct.Struct(">qiIbb")
_V1 = struct.Struct(">qiIbbq")
_INT32, _INT64, _UINT32 = (struct.Struct(form) for form in (">i", ">q", ">I"))
_BODY_V0, _BODY_V1 = struct.Struct(">bb"), struct.Struct(">bbq")
_KNOWN_BITS = (CODEC_BITS, CODEC_BITS | LOG_APPEND_TIME_BIT)

# offset, attributes, timestamp, key, value, end
Message = tuple[int, int, int, bytes | None, bytes | None, int]


def read_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """Reads the header of the entry at `position` and checks its size and magic, but not its CRC.

    `record_count` is 1 for a plain message and -1 for a wrapper. `whole=False` accepts a buffer that ends somewhere
    after the fixed fields. Raises CorruptRecords.
    """
    left = len(buffer) - position
    if position < 0 or left < _V0.size:
        raise CorruptRecords(f"{left} bytes where a message takes {MIN_BYTES[0]}")
    offset, size, crc, magic, attributes = _V0.unpack_from(buffer, position)
    if magic not in (0, 1):
        raise CorruptRecords(f"magic {magic} where 0 or 1 is expected")
    if size + PREFIX_BYTES < MIN_BYTES[magic]:
        raise CorruptRecords(f"a message of {size + PREFIX_BYTES} bytes is smaller than its fixed fields")
    if whole and size + PREFIX_BYTES > left:
        raise CorruptRecords(f"a message of {size + PREFIX_BYTES} bytes where {left} are left")
    timestamp = NO_TIMESTAMP
    if magic:
        if left < _V1.size:
            raise CorruptRecords(f"{left} bytes where a message takes {MIN_BYTES[1]}")
        (timestamp,) = _INT64.unpack_from(buffer, position + _V0.size)
    attributes &= _KNOWN_BITS[magic]
    count = -1 if attributes & CODEC_BITS else 1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)


def crc_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Returns whether the CRC in the header matches the entry. Copies nothing."""
    end = position + PREFIX_BYTES + header.batch_length
    return zlib.crc32(memoryview(buffer)[position + LEGACY_CRC_FROM : end]) == header.crc


def message(buffer: Buffer, position: int, end: int, magic: int) -> Message:
    """Reads the message at `position`, which must end at or below `end`, as (offset, attributes, timestamp, key, value,
    end).

    Its CRC is not checked. Raises CorruptRecords for contradictory sizes, InvalidRecords for another magic.
    """
    if end - position < MIN_BYTES[magic]:
        raise CorruptRecords(f"{end - position} bytes where a message takes {MIN_BYTES[magic]}")
    if magic:
        offset, size, _, found, attributes, timestamp = _V1.unpack_from(buffer, position)
    else:
        offset, size, _, found, attributes = _V0.unpack_from(buffer, position)
        timestamp = NO_TIMESTAMP
    if found != magic:
        raise InvalidRecords(f"a message of format v{found} where v{magic} is expected")
    stop = position + PREFIX_BYTES + size
    if stop > end or size < MIN_BYTES[magic] - PREFIX_BYTES:
        raise CorruptRecords(f"a message of {size + PREFIX_BYTES} bytes where {end - position} are left")
    key, at = _nullable(buffer, position + LEGACY_KEY_AT[magic], stop - 4)
    value, at = _nullable(buffer, at, stop)
    if at != stop:
        raise CorruptRecords(f"a message's parts and its size differ by {stop - at} bytes")
    return offset, attributes, timestamp, key, value, stop


def _nullable(buffer: Buffer, position: int, stop: int) -> tuple[bytes | None, int]:
    """Reads nullable bytes and returns (bytes, end); any negative length is null, as in Java."""
    (length,) = _INT32.unpack_from(buffer, position)
    position += 4
    if length < 0:
        return None, position
    if length > stop - position:
        raise CorruptRecords(f"a field of {length} bytes where {stop - position} are left")
    return bytes(buffer[position : position + length]), position + length


def wrapped(buffer: Buffer, position: int, header: BatchHeader) -> memoryview:
    """Returns the compressed value of the wrapper at `position`. Raises InvalidRecords."""
    magic, codec = header.magic, header.codec
    if codec >= Codec.ZSTD:
        raise InvalidRecords(f"codec {codec} in a message of format v{magic}")
    view = memoryview(buffer)
    end = position + header.size_bytes
    at = position + LEGACY_KEY_AT[magic]
    (key_bytes,) = _INT32.unpack_from(view, at)
    at += 4 + max(key_bytes, 0)
    if at + 4 > end:
        raise Undecodable("a wrapper's key is longer than the wrapper")
    (value_bytes,) = _INT32.unpack_from(view, at)
    if value_bytes < 0:
        raise InvalidRecords("a compressed message without a value")
    if at + 4 + value_bytes != end:
        raise Undecodable(f"a wrapper's parts and its size differ by {end - at - 4 - value_bytes} bytes")
    return view[at + 4 : end]


def inner(buffer: Buffer, position: int, header: BatchHeader, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Returns the decompressed message set of the wrapper at `position`. Raises CorruptRecords, InvalidRecords."""
    value = wrapped(buffer, position, header)
    return bytes(compression.decompress(header.codec, value, max_bytes, magic=header.magic))


def records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, produced: bool = False
) -> Iterator[Record]:
    """Yields the records of the entry at `position`, those of a wrapper too, with absolute offsets and effective
    timestamps.

    The caller checks the CRC of the entry; those of messages inside a wrapper are checked here. With `produced`, an
    offset field of 0 is accepted in a v1 wrapper, as old librdkafka versions send it: its messages then count from 0.
    Raises CorruptRecords, InvalidRecords.
    """
    header = read_header(buffer, position)
    magic, codec = header.magic, header.codec
    if codec == 0:
        offset, _, timestamp, key, value, _ = message(buffer, position, position + header.size_bytes, magic)
        yield Record(offset, timestamp, key, value)
        return
    data = inner(buffer, position, header, max_bytes=max_bytes)
    shift = 0
    if magic:
        last = _last_offset(data)
        if header.base_offset < last and not (produced and header.base_offset == 0):
            raise InvalidRecords(f"a wrapper's offset {header.base_offset} is below {last}, its last message's")
        shift = header.base_offset - last if header.base_offset >= last else 0
    append_time = header.max_timestamp if header.log_append_time else None
    for offset, _, timestamp, key, value, _ in _inner_messages(data, magic):
        yield Record(offset + shift, timestamp if append_time is None else append_time, key, value)


def _last_offset(data: bytes) -> int:
    """Returns the offset field of the last message of a set, found by the sizes alone: messages may be many and
    small."""
    position, end, offset = 0, len(data), 0
    unpack = OFFSET_AND_LENGTH.unpack_from
    while end - position >= MIN_BYTES[0]:
        offset, size = unpack(data, position)
        if size < MIN_BYTES[0] - PREFIX_BYTES:
            break
        position += PREFIX_BYTES + size
    return offset


def _inner_messages(data: bytes, magic: int) -> Iterator[Message]:
    end = len(data)
    if not end:
        raise InvalidRecords("a compressed message without messages inside")
    position = 0
    while position < end:
        found = message(data, position, end, magic)
        if found[1] & CODEC_BITS:
            raise InvalidRecords("a compressed message inside of a compressed message")
        (crc,) = _UINT32.unpack_from(data, position + PREFIX_BYTES)
        if zlib.crc32(memoryview(data)[position + LEGACY_CRC_FROM : found[5]]) != crc:
            raise CorruptRecords("a message inside of a compressed one does not match its CRC")
        yield found
        position = found[5]


def put_message(
    out: bytearray, offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> None:
    """Appends one message to `out`."""
    body = bytearray(_BODY_V1.pack(magic, attributes, timestamp) if magic else _BODY_V0.pack(magic, attributes))
    for part in (key, value):
        if part is None:
            body += b"\xff\xff\xff\xff"
        else:
            body += _INT32.pack(len(part))
            body += part
    out += _INT64.pack(offset)
    out += _INT32.pack(len(body) + 4)
    out += _UINT32.pack(zlib.crc32(body))
    out += body


def wrapper(offset: int, magic: int, attributes: int, timestamp: int, value: bytes) -> bytearray:
    """Returns the wrapper of a set that is already compressed."""
    out = bytearray()
    put_message(out, offset, magic, attributes, timestamp, None, value)
    return out


def build(
    records: Sequence[Record], *, magic: int, codec: int = 0, log_append_time: bool = False, level: int | None = None
) -> bytearray:
    """Builds a message set of these records: plain messages at their offsets, or one wrapper.

    A wrapper has the offset of its last record and the highest timestamp; gaps between offsets stay. With
    `log_append_time` (v1) all records must have the same timestamp. Headers are dropped. Raises UnsupportedCodec for
    zstd.
    """
    if codec >= Codec.ZSTD:
        raise UnsupportedCodec(f"codec {codec} in messages of format v{magic}")
    mark = LOG_APPEND_TIME_BIT if log_append_time and magic else 0
    out = bytearray()
    if not codec:
        for record in records:
            put_message(out, record.offset, magic, mark, record.timestamp, record.key, record.value)
        return out
    shift = records[0].offset if magic else 0
    for record in records:
        put_message(out, record.offset - shift, magic, mark, record.timestamp, record.key, record.value)
    compressed = compression.compress(codec, out, level, magic=magic)
    newest = max(record.timestamp for record in records)
    return wrapper(records[-1].offset, magic, mark | codec, newest, compressed)


def assign(buffer: bytearray | memoryview, position: int, *, offset: int) -> None:
    """Sets the offset of an entry; it lies outside the CRC. Only for v1 wrappers and plain messages: the offsets inside
    a v0 wrapper are absolute."""
    _INT64.pack_into(buffer, position, offset)
