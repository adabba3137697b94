"""Format v2: finds the positions of keys, values and headers in joined, decompressed record batches.

Owns the record layout of format v2, with the checks of protocol/records/batch.py: lengths within the record, the number
of headers, no bytes left in a record or after the last. Raises InvalidRecords and nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ....protocol.records import walk
from ....protocol.records.batch import BatchHeader
from ....protocol.records.errors import InvalidRecords
from .rows import HeaderSpans, Rows, Spans
from .varints import PADDING, Bytes, Int64s, after_varints, checked_sum, hop, hop_together, varints, varlongs

MAX_ROWS = 256 * 1024
"""Records decoded at once. A few bytes of a compressed batch may expand to a record, and a record takes some hundred
bytes here."""

TOGETHER = 16
"""From this number of batches on, walking all batches in step is faster than one after the other."""

_FEW_HEADERS = 16  # up to this number one round of array operations per header of a record, above it a loop


def rows(
    headers: Sequence[BatchHeader], payloads: Sequence[bytes | memoryview], crc_ok: Sequence[bool]
) -> Iterator[Rows]:
    """Yields the records of these batches, at most MAX_ROWS at a time; more than one item only for very large batches.

    `payloads` are decompressed, with less than 2 GiB in total. Raises InvalidRecords, possibly after some items.
    """
    for header, payload in zip(headers, payloads, strict=True):
        walk.check_count(payload, header.record_count)
    joined = b"".join((*payloads, PADDING))
    declared = [header.record_count for header in headers]
    if len(headers) >= TOGETHER and sum(declared) <= MAX_ROWS:
        ends = np.cumsum(np.array([len(payload) for payload in payloads], np.int64))
        begins = np.concatenate(([0], ends[:-1]))
        found = hop_together(joined, begins, ends, np.array(declared, np.int64), TOGETHER)
        yield _rows(joined, headers, crc_ok, declared, found, int(ends[-1]))
        return
    starts: list[int] = []
    counts: list[int] = []
    first = position = 0
    continues = False
    for index, (header, payload) in enumerate(zip(headers, payloads, strict=True)):
        begin = position
        left = header.record_count
        while left > (room := MAX_ROWS - len(starts)):
            position = _hop(joined, position, room, starts, begin + len(payload))
            counts.append(room)
            until = index + 1
            yield _rows(joined, headers[first:until], crc_ok[first:until], counts, starts, position, continues)
            starts, counts, first, continues = [], [], index, True
            left -= room
        position = _hop(joined, position, left, starts, begin + len(payload))
        walk.check_end(position, begin + len(payload), header.record_count)
        counts.append(left)
    yield _rows(joined, headers[first:], crc_ok[first:], counts, starts, position, continues)


def _hop(payload: bytes, position: int, count: int, starts: list[int], end: int) -> int:
    position = hop(payload, position, count, starts)
    if position > end:
        raise InvalidRecords("the last record is truncated")
    return position


def _rows(
    payload: bytes,
    headers: Sequence[BatchHeader],
    crc_ok: Sequence[bool],
    counts: Sequence[int],
    starts: Sequence[int] | Int64s,
    end: int,
    continues: bool = False,
) -> Rows:
    begins = np.asarray(starts, np.int64)
    stops = np.append(begins[1:], end) if begins.size else begins
    record_counts = np.array(counts, np.int64)
    deltas, offset_deltas, keys, values, found = _parts(payload, begins, stops)
    base_offsets = np.repeat(np.array([header.base_offset for header in headers], np.int64), record_counts)
    return Rows(
        payload,
        headers,
        crc_ok,
        record_counts,
        checked_sum(base_offsets, offset_deltas, "an offset"),
        _timestamps(headers, record_counts, deltas),
        offset_deltas,
        keys,
        values,
        found,
        begins,
        stops,
        continues,
    )


def lone_rows(
    payload: bytes, begins: Int64s, stops: Int64s, base_offsets: Int64s, base_timestamps: Int64s, appended: Int64s
) -> Rows:
    """Returns the records of uncompressed batches with one record each; a record lies between its begin and its stop.
    `appended` has the LogAppendTime of each batch, or -1 for CreateTime. `payload` continues after the last record by
    `PADDING`. The rows have no batch headers. Raises InvalidRecords."""
    lengths, after = varints(np.frombuffer(payload, np.uint8), begins)
    if (after + lengths != stops).any() or (lengths < walk.MIN_RECORD_BYTES - 1).any():
        raise InvalidRecords("a record's length does not match its batch's")
    deltas, offset_deltas, keys, values, found = _parts(payload, begins, stops)
    timestamps = checked_sum(base_timestamps, deltas, "a timestamp")
    return Rows(
        payload,
        (),
        (),
        np.ones(begins.size, np.int64),
        checked_sum(base_offsets, offset_deltas, "an offset"),
        np.where(appended < 0, timestamps, appended),
        offset_deltas,
        keys,
        values,
        found,
        begins,
        stops,
    )


def _parts(payload: bytes, begins: Int64s, stops: Int64s) -> tuple[Int64s, Int64s, Spans, Spans, HeaderSpans | None]:
    """Returns both deltas, and the positions of keys, values and headers, of the records at these positions."""
    data = np.frombuffer(payload, np.uint8)
    deltas, position = varlongs(data, after_varints(data, begins) + 1)  # skips the attributes, which are unused
    offset_deltas, position = varints(data, position)
    keys, position = _spans(data, position, stops)
    values, position = _spans(data, position, stops)
    found, position = _header_spans(payload, data, position, stops)
    if (position != stops).any():
        raise InvalidRecords("a record's parts do not add up to its length")
    return deltas, offset_deltas, keys, values, found


def _timestamps(headers: Sequence[BatchHeader], counts: Int64s, deltas: Int64s) -> Int64s:
    appended = np.array([header.log_append_time for header in headers], np.bool_)
    times = [header.max_timestamp if header.log_append_time else header.base_timestamp for header in headers]
    bases = np.repeat(np.array(times, np.int64), counts)
    if appended.any():
        deltas = np.where(np.repeat(appended, counts), 0, deltas)
    return checked_sum(bases, deltas, "a timestamp")


def _spans(data: Bytes, position: Int64s, stops: Int64s) -> tuple[Spans, Int64s]:
    """Returns the nullable bytes at each position, and the positions after them. Any negative length is null, as in
    Java."""
    sizes, position = varints(data, position)
    if (sizes > np.maximum(stops - position, 0)).any():
        raise InvalidRecords("a field is longer than its record")
    return Spans(position, np.maximum(sizes, -1)), position + np.maximum(sizes, 0)


def _header_spans(payload: bytes, data: Bytes, position: Int64s, stops: Int64s) -> tuple[HeaderSpans | None, Int64s]:
    counts, position = varints(data, position)
    if not counts.any():
        return None, position
    # A header takes at least two bytes: its two lengths.
    if (counts < 0).any() or (2 * counts > np.maximum(stops - position, 0)).any():
        raise InvalidRecords("a record has more headers than bytes")
    ends = np.cumsum(counts)
    # Four bytes per number if there are many, as in a decompression bomb.
    places: Any = np.zeros((4, int(ends[-1])), np.int64 if counts.max() <= _FEW_HEADERS else np.int32)
    key_starts, key_sizes, value_starts, value_sizes = places
    active = np.flatnonzero((counts > 0) & (counts <= _FEW_HEADERS))
    target = (ends - counts)[active]
    at = position[active]
    left = counts[active]
    while active.size:
        keys, at = _spans(data, at, stops[active])
        if (keys.sizes < 0).any():
            raise InvalidRecords("a header's key is null")
        values, at = _spans(data, at, stops[active])
        key_starts[target], key_sizes[target] = keys.starts, keys.sizes
        value_starts[target], value_sizes[target] = values.starts, values.sizes
        if (at > stops[active]).any():
            raise InvalidRecords("a record's headers are longer than it")
        position[active] = at
        left = left - 1
        more = left > 0
        active, at, left, target = active[more], at[more], left[more], target[more] + 1
    for index in np.flatnonzero(counts > _FEW_HEADERS).tolist():
        count, end = int(counts[index]), int(ends[index])
        found, position[index] = _many_headers(payload, int(position[index]), int(stops[index]), count)
        places[:, end - count : end] = found
    return HeaderSpans(counts, Spans(key_starts, key_sizes), Spans(value_starts, value_sizes)), position


def _many_headers(payload: bytes, position: int, stop: int, count: int) -> tuple[np.ndarray, int]:
    """Returns the positions of one record's headers and the position after them, by a loop: for many headers it is far
    faster than a round of array operations for each. Four bytes per number, since a decompression bomb may have many.
    """
    places = array("i")
    try:
        for _ in range(count):
            size, position = walk.varint(payload, position)
            if size < 0 or size > stop - position:
                raise InvalidRecords(f"a header's key of {size} bytes where {stop - position} are left")
            key = position
            value_size, position = walk.varint(payload, position + size)
            if value_size > stop - position:
                raise InvalidRecords(f"a header of {value_size} bytes where {stop - position} are left")
            places.extend((key, size, position, max(value_size, -1)))
            position += max(value_size, 0)
    except IndexError:
        raise InvalidRecords("the payload ends within a header") from None
    return np.frombuffer(places, np.int32).reshape(-1, 4).T, position
