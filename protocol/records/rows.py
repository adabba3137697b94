"""Readers and writers of records in bulk for format conversion, one call per step.

A row is (timestamp, offset, key, value), a plain tuple: headers, which older formats lack, are skipped. A reader takes
one piece of an uncompressed set, at most a step long, and returns the position it reached: an incomplete record at the
end of the piece is left for the next one. convert.py decides which records belong together. Raises CorruptRecords and
InvalidRecords.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from functools import cache

from ..limits import INT64_MAX, INT64_MIN
from .batch import CODEC_BITS
from .errors import CorruptRecords, InvalidRecords
from .layout import LEGACY_CRC_FROM, MIN_BYTES, PREFIX_BYTES
from .walk import varint, varlong, zigzag

Row = tuple[int, int, bytes | None, bytes | None]

# Offset, size, CRC, magic, attributes, (timestamp,) key length.
_MESSAGE_V0 = struct.Struct(">qiIbbi").unpack_from
_MESSAGE_V1 = struct.Struct(">qiIbbqi").unpack_from
_LENGTH = struct.Struct(">i").unpack_from

_PREFIX = struct.Struct(">qiI").pack
_HEAD_V0 = struct.Struct(">bbi").pack
_HEAD_V1 = struct.Struct(">bbqi").pack
_PUT_LENGTH = struct.Struct(">i").pack
_NULL_LENGTH = b"\xff\xff\xff\xff"

READY_VARINTS = 8192
"""The number of precomputed varints: all of one or two bytes."""


@cache
def ready_varints() -> tuple[bytes, ...]:
    """Returns the varint of each number below READY_VARINTS, computed on first use: a lookup takes a tenth of the time
    of encoding."""
    short = [bytes((number << 1,)) for number in range(64)]
    return *short, *(bytes((number << 1 & 127 | 128, number >> 6)) for number in range(64, READY_VARINTS))


# --- formats v0 and v1


def read_messages(piece: bytes, magic: int, room: int) -> tuple[list[Row], int]:
    """Reads up to `room` plain messages of one magic and returns them with the position after them: the end, an
    incomplete message, or one that is compressed or of another magic. CRCs are checked; a damaged message raises if it
    is the first, and otherwise is left for the next piece, so that the messages before it are not lost."""
    return _read_v1(piece, room) if magic else _read_v0(piece, room)


def _read_v1(piece: bytes, room: int) -> tuple[list[Row], int]:
    rows: list[Row] = []
    add, crc32, unpack, length_at = rows.append, zlib.crc32, _MESSAGE_V1, _LENGTH
    end = len(piece)
    last = end - MIN_BYTES[1]
    position = 0
    for _ in range(room):
        if position > last:
            break
        offset, size, crc, magic, attributes, timestamp, key_bytes = unpack(piece, position)
        stop = position + PREFIX_BYTES + size
        if stop > end or magic != 1 or attributes & CODEC_BITS:
            break
        if crc32(piece[position + LEGACY_CRC_FROM : stop]) != crc:
            if rows:
                break
            raise _wrong_crc(offset)
        at = position + 30
        if key_bytes < 0:
            key = None
        else:
            if key_bytes > size - 22:
                if rows:
                    break
                raise _wrong_length(key_bytes, size - 22)
            at += key_bytes
            key = piece[at - key_bytes : at]
        (value_bytes,) = length_at(piece, at)
        if value_bytes < 0:
            value = None
            at += 4
        else:
            value = piece[at + 4 : at + 4 + value_bytes]
            at += 4 + value_bytes
        if at != stop:
            if rows:
                break
            raise _wrong_length(at - position, stop - position)
        add((timestamp, offset, key, value))
        position = stop
    return rows, position


def _read_v0(piece: bytes, room: int) -> tuple[list[Row], int]:
    # Like `_read_v1`, with other positions and without a timestamp: a common loop would take a fifth longer.
    rows: list[Row] = []
    add, crc32, unpack, length_at = rows.append, zlib.crc32, _MESSAGE_V0, _LENGTH
    end = len(piece)
    last = end - MIN_BYTES[0]
    position = 0
    for _ in range(room):
        if position > last:
            break
        offset, size, crc, magic, attributes, key_bytes = unpack(piece, position)
        stop = position + PREFIX_BYTES + size
        if stop > end or magic != 0 or attributes & CODEC_BITS:
            break
        if crc32(piece[position + LEGACY_CRC_FROM : stop]) != crc:
            if rows:
                break
            raise _wrong_crc(offset)
        at = position + 22
        if key_bytes < 0:
            key = None
        else:
            if key_bytes > size - 14:
                if rows:
                    break
                raise _wrong_length(key_bytes, size - 14)
            at += key_bytes
            key = piece[at - key_bytes : at]
        (value_bytes,) = length_at(piece, at)
        if value_bytes < 0:
            value = None
            at += 4
        else:
            value = piece[at + 4 : at + 4 + value_bytes]
            at += 4 + value_bytes
        if at != stop:
            if rows:
                break
            raise _wrong_length(at - position, stop - position)
        add((-1, offset, key, value))
        position = stop
    return rows, position


def _wrong_crc(offset: int) -> CorruptRecords:
    return CorruptRecords(f"the message at offset {offset} does not match its CRC")


def _wrong_length(found: int, most: int) -> CorruptRecords:
    return CorruptRecords(f"a message's parts take {found} bytes where {most} are expected")


def put_messages(rows: Iterable[Row], magic: int, attributes: int, base_offset: int) -> tuple[bytes, int]:
    """Encodes rows as messages with offsets relative to `base_offset` (0: absolute); returns them and the highest
    timestamp."""
    pieces: list[bytes] = []
    crc32, join, head_v0, head_v1 = zlib.crc32, b"".join, _HEAD_V0, _HEAD_V1
    length, prefix = _PUT_LENGTH, _PREFIX
    highest = -1
    try:
        for timestamp, offset, key, value in rows:
            if timestamp > highest:
                highest = timestamp
            if key is None:
                key_bytes = -1
                key = b""
            else:
                key_bytes = len(key)
            head = head_v1(1, attributes, timestamp, key_bytes) if magic else head_v0(0, attributes, key_bytes)
            body = join((head, key, _NULL_LENGTH) if value is None else (head, key, length(len(value)), value))
            pieces += (prefix(offset - base_offset, len(body) + 4, crc32(body)), body)
    except struct.error as error:
        raise InvalidRecords(f"an offset, a time or a size does not fit: {error}") from None
    return b"".join(pieces), highest


# --- format v2


def read_records(
    piece: bytes, base_offset: int, base_timestamp: int, append_time: int | None, room: int
) -> tuple[list[Row], int]:
    """Reads up to `room` records of a v2 batch and returns them with the position after them. `append_time`, if not
    None, is the timestamp of every record. Headers are skipped by the length of the record."""
    # Varints of one and two bytes are inlined: (first >> 1) + (second << 6) - 64 folds in the marker bit and the sign.
    rows: list[Row] = []
    add = rows.append
    position, start, stop, end = 0, 0, -1, len(piece)
    try:
        for _ in range(room):
            if position >= end:
                break
            start, stop, first = position, end, piece[position]
            if first < 128 and not first & 1:
                position += 1
                stop = position + (first >> 1)
            else:
                length, position = varint(piece, position)
                if length < 0:
                    raise InvalidRecords("a record has a negative length")
                stop = position + length
            if stop > end:
                return rows, start
            first = piece[position + 1]  # after the attributes, which are unused
            if first < 128:
                timestamp = base_timestamp + (~(first >> 1) if first & 1 else first >> 1)
                position += 2
            else:
                second = piece[position + 2]
                if second < 128 and not first & 1:
                    timestamp = base_timestamp + (first >> 1) + (second << 6) - 64
                    position += 3
                else:
                    timestamp, position = _far_time(piece, position + 1, base_timestamp)
            first = piece[position]
            if first < 128 and not first & 1:
                offset = base_offset + (first >> 1)
                position += 1
            else:
                second = piece[position + 1]
                if first > 127 and second < 128 and not first & 1:
                    offset = base_offset + (first >> 1) + (second << 6) - 64
                    position += 2
                else:
                    first, position = varint(piece, position)
                    offset = base_offset + first
            first = piece[position]
            if first < 128:
                count = -1 if first & 1 else first >> 1
                position += 1
            else:
                second = piece[position + 1]
                if second < 128 and not first & 1:
                    count = (first >> 1) + (second << 6) - 64
                    position += 2
                else:
                    count, position = varint(piece, position)
            key = None if count < 0 else piece[position : (position := position + count)]
            first = piece[position]
            if first < 128:
                count = -1 if first & 1 else first >> 1
                position += 1
            else:
                second = piece[position + 1]
                if second < 128 and not first & 1:
                    count = (first >> 1) + (second << 6) - 64
                    position += 2
                else:
                    count, position = varint(piece, position)
            value = None if count < 0 else piece[position : (position := position + count)]
            if position >= stop or (not piece[position] and position + 1 != stop):
                raise InvalidRecords(f"a record's parts and its length differ by {position + 1 - stop} bytes")
            add((timestamp if append_time is None else append_time, offset, key, value))
            position = stop
    except IndexError:
        if stop == end and position == start:  # the length itself continues after the end of the piece
            return rows, start
        raise InvalidRecords("a record is cut") from None
    return rows, position


def _far_time(piece: bytes, position: int, base_timestamp: int) -> tuple[int, int]:
    """Reads a timestamp whose delta takes more than two bytes or is negative; returns it and the position after it."""
    delta, position = varlong(piece, position)
    timestamp = base_timestamp + delta
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise InvalidRecords(f"timestamp {timestamp} does not fit 64 bits")
    return timestamp, position


def put_records(rows: Iterable[Row], deltas: Iterable[int], base_timestamp: int) -> tuple[bytes, int]:
    """Encodes rows as v2 records with these offset deltas; returns them and the highest timestamp. Raises
    InvalidRecords for a timestamp too far from the first."""
    pieces: list[bytes] = []
    ready = ready_varints()
    most = READY_VARINTS
    highest = -1
    for (timestamp, _, key, value), delta in zip(rows, deltas, strict=False):
        if timestamp > highest:
            highest = timestamp
        number = timestamp - base_timestamp
        if 0 <= number < most:
            time = ready[number]
        elif INT64_MIN <= number <= INT64_MAX:
            time = zigzag(number)
        else:
            raise InvalidRecords(f"a timestamp {number} ms from the batch's does not fit")
        index = ready[delta] if delta < most else zigzag(delta)
        if key is None:
            key_length = b"\x01"
            key = b""
        else:
            number = len(key)
            key_length = ready[number] if number < most else zigzag(number)
        if value is None:
            value_length = b"\x01"
            value = b""
        else:
            number = len(value)
            value_length = ready[number] if number < most else zigzag(number)
        number = 2 + len(time) + len(index) + len(key_length) + len(key) + len(value_length) + len(value)
        pieces += (
            ready[number] if number < most else zigzag(number),
            b"\x00",  # attributes
            time,
            index,
            key_length,
            key,
            value_length,
            value,
            b"\x00",  # headers
        )
    return b"".join(pieces), highest
