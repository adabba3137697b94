"""Formats v0 and v1: finds the positions of keys and values in plain messages and decompressed wrappers.

Owns the message layout of the old formats, with the checks of protocol/records/legacy.py. Message sizes, and CRCs
inside wrappers, need a loop per message; fixed fields, keys and values of a chunk are read at once. Raises
CorruptRecords, InvalidRecords.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ....protocol.limits import INT64_MAX
from ....protocol.records.batch import CODEC_BITS, BatchHeader
from ....protocol.records.errors import CorruptRecords, InvalidRecords
from ....protocol.records.layout import (
    LEGACY_ATTRIBUTES_AT,
    LEGACY_CRC_AT,
    LEGACY_CRC_FROM,
    LEGACY_KEY_AT,
    LEGACY_TIMESTAMP_AT,
    LENGTH_AT,
    MAGIC_AT,
    MIN_BYTES,
    PREFIX_BYTES,
)
from ....protocol.records.legacy import read_header
from .rows import Rows, Spans
from .varints import PADDING, Bytes, Int64s, checked_sum

_KEYS_AT = np.array(LEGACY_KEY_AT, np.int64)  # by magic; v1 has a timestamp before the key
_SIZE_AND_CRC = struct.Struct(">iI")
_SIZE = struct.Struct(">i")
_SIZE_TO_ATTRIBUTES = struct.Struct(">iIbb")


def rows(headers: Sequence[BatchHeader], payloads: Sequence[bytes | memoryview], crc_ok: Sequence[bool]) -> Rows:
    """Returns the records of these entries. A payload is a message, a run of messages (with the header of the first
    one), or the decompressed content of a wrapper. Raises CorruptRecords, InvalidRecords."""
    joined = b"".join((*payloads, PADDING))
    starts: list[int] = []
    counts: list[int] = []
    end = 0
    for header, payload in zip(headers, payloads, strict=True):
        before = len(starts)
        begin, end = end, end + len(payload)
        if header.codec:
            _hop(joined, begin, end, header.magic, starts)
        else:
            _hop_plain(joined, begin, end, starts)
        counts.append(len(starts) - before)
    return rows_at(headers, joined, starts, counts, crc_ok)


def rows_at(
    headers: Sequence[BatchHeader],
    joined: bytes,
    starts: Sequence[int] | Int64s,
    counts: Sequence[int],
    crc_ok: Sequence[bool],
) -> Rows:
    """Returns the records of messages with known positions and valid sizes. `joined` continues after the last message
    by `PADDING`."""
    data = np.frombuffer(joined, np.uint8)
    begins = np.asarray(starts, np.int64)
    record_counts = np.array(counts, np.int64)
    magics = np.repeat(np.array([header.magic for header in headers], np.int64), record_counts)
    wrapped = np.repeat(np.array([header.codec > 0 for header in headers], np.bool_), record_counts)
    if (data[begins + MAGIC_AT] != magics).any():
        raise InvalidRecords("a compressed message contains a message of another format")
    if (data[begins + LEGACY_ATTRIBUTES_AT][wrapped] & CODEC_BITS).any():
        raise InvalidRecords("a compressed message contains a compressed message")
    stops = begins + PREFIX_BYTES + _fields(data, begins + LENGTH_AT, ">i4")
    keys, position = _spans(data, begins + _KEYS_AT[magics], stops - 4)
    values, position = _spans(data, position, stops)
    if (position != stops).any():
        raise CorruptRecords("a message's parts do not add up to its size")
    offsets = _fields(data, begins, ">i8")
    shifts = _shifts(headers, record_counts, offsets)
    timestamps = np.full(begins.size, -1, np.int64)
    timed = magics > 0
    timestamps[timed] = _fields(data, begins[timed] + LEGACY_TIMESTAMP_AT, ">i8")
    appended = np.array([header.log_append_time and header.codec > 0 for header in headers], np.bool_)
    times = np.array([header.max_timestamp for header in headers], np.int64)
    if appended.any():
        timestamps = np.where(np.repeat(appended, record_counts), np.repeat(times, record_counts), timestamps)
    return Rows(
        joined,
        headers,
        crc_ok,
        record_counts,
        checked_sum(offsets, shifts, "an offset"),
        timestamps,
        np.zeros(begins.size, np.int64),
        keys,
        values,
        None,
        begins,
        stops,
    )


def plain_rows(data: bytes, places: Sequence[int]) -> Rows:
    """Returns the records of plain messages of one format with equal attributes. `places` are their positions and the
    end of the last one; their sizes are valid. `data` continues after them by `PADDING`. Raises CorruptRecords, also
    for a CRC that does not match."""
    view, crc32 = memoryview(data), zlib.crc32
    found = [crc32(view[begin + LEGACY_CRC_FROM : end]) for begin, end in pairwise(places)]
    starts = np.array(places[:-1], np.int64)
    if (_fields(np.frombuffer(data, np.uint8), starts + LEGACY_CRC_AT, ">u4") != np.array(found, np.int64)).any():
        raise CorruptRecords("a message does not match its CRC")
    return rows_at([read_header(view, places[0])], data, starts, [len(found)], [True])


def run(data: memoryview, position: int, most_bytes: int) -> int:
    """Returns the end of a run of plain messages from `position` on: whole, of equal format and attributes, with
    matching CRCs, of at most `most_bytes`. Returns `position` if there is none."""
    end = min(len(data), position + most_bytes)
    if end - position < MIN_BYTES[0]:
        return position
    _, _, magic, attributes = _SIZE_TO_ATTRIBUTES.unpack_from(data, position + LENGTH_AT)
    if magic not in (0, 1) or attributes & CODEC_BITS:
        return position
    least = MIN_BYTES[magic] - PREFIX_BYTES
    unpack, crc32 = _SIZE_TO_ATTRIBUTES.unpack_from, zlib.crc32
    while end - position >= MIN_BYTES[0]:
        size, crc, found, marks = unpack(data, position + LENGTH_AT)
        stop = position + PREFIX_BYTES + size
        if found != magic or marks != attributes or size < least or stop > end:
            break
        if crc32(data[position + LEGACY_CRC_FROM : stop]) != crc:
            break
        position = stop
    return position


def halves(header: BatchHeader, payload: bytes | memoryview) -> list[tuple[int, BatchHeader, memoryview]]:
    """Returns (position, header, payload) of both halves of a run of plain messages; an empty list for one message."""
    starts: list[int] = []
    view = memoryview(payload)
    if header.codec or len(view) == header.size_bytes:
        return []
    _hop_plain(bytes(view), 0, len(view), starts)
    at = starts[len(starts) // 2]
    return [(0, header, view[:at]), (at, read_header(view, at, whole=False), view[at:])]


def _hop_plain(payload: bytes, position: int, end: int, starts: list[int]) -> None:
    """Appends the start of each message of a run whose sizes are valid."""
    unpack = _SIZE.unpack_from
    while position < end:
        starts.append(position)
        position += PREFIX_BYTES + unpack(payload, position + LENGTH_AT)[0]


def _hop(payload: bytes, position: int, end: int, magic: int, starts: list[int]) -> None:
    """Appends the start of each message of a decompressed wrapper. Raises CorruptRecords, InvalidRecords."""
    if position == end:
        raise InvalidRecords("a compressed message contains no messages")
    least = MIN_BYTES[magic]
    view = memoryview(payload)
    while position < end:
        if end - position < least:
            raise CorruptRecords(f"{end - position} bytes where a message takes {least}")
        size, crc = _SIZE_AND_CRC.unpack_from(payload, position + LENGTH_AT)
        stop = position + PREFIX_BYTES + size
        if size < least - PREFIX_BYTES or stop > end:
            raise CorruptRecords(f"a message of {size + PREFIX_BYTES} bytes where {end - position} are left")
        if zlib.crc32(view[position + LEGACY_CRC_FROM : stop]) != crc:
            raise CorruptRecords("a message in a compressed message does not match its CRC")
        starts.append(position)
        position = stop


def _shifts(headers: Sequence[BatchHeader], counts: Int64s, offsets: Int64s) -> Int64s:
    """Returns the numbers to add to the offsets: those in a v1 wrapper are relative, and the wrapper's own offset is
    that of its last message."""
    lasts = offsets[np.cumsum(counts) - 1].tolist()
    shifts = np.zeros(len(headers), np.int64)
    for index, (header, last) in enumerate(zip(headers, lasts, strict=True)):
        if header.codec and header.magic:
            if header.base_offset < last:
                raise InvalidRecords(f"a wrapper's offset {header.base_offset} is below {last}, its last message's")
            if header.base_offset - last > INT64_MAX:
                raise InvalidRecords("an offset does not fit 64 bits")
            shifts[index] = header.base_offset - last
    return np.repeat(shifts, counts)


def _spans(data: Bytes, position: Int64s, stops: Int64s) -> tuple[Spans, Int64s]:
    sizes = _fields(data, position, ">i4")
    position = position + 4
    if (sizes > np.maximum(stops - position, 0)).any():
        raise CorruptRecords("a field is longer than its message")
    return Spans(position, np.maximum(sizes, -1)), position + np.maximum(sizes, 0)


def _fields(data: Bytes, positions: Int64s, form: str) -> Int64s:
    """Returns the big-endian integers at these positions."""
    kind: Any = np.dtype(form)
    return data[positions[:, None] + np.arange(kind.itemsize)].view(kind)[:, 0].astype(np.int64)
