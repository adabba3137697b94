"""Reads zigzag varints of many records at once, and walks from record to record.

Owns the loops over the bytes of format v2. The start of a record is known only from the length of the one before: a few
batches are walked by a Python loop, many of them in step with each other. Everything else is read for all records of a
chunk at once, one varint byte per round: few varints have more than two. Raises InvalidRecords and nothing else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....protocol.records import walk
from ....protocol.records.errors import InvalidRecords

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

PADDING = bytes(64)
"""Follows a payload: the varints of a truncated record are read beyond its end, by less than this, before the check."""

_INT64_BITS = 64


def _hops() -> Int64s:
    """Returns the distance to the next record by the first two bytes of a record, as a little-endian index. For an
    invalid length, or one of more than two bytes, the distance is beyond any payload."""
    words = np.arange(1 << 16, dtype=np.int64)
    first, second = words & 255, words >> 8
    short = first < 128
    lengths = np.where(short, first, first & 127 | second << 7) >> 1
    valid = (first & 1 == 0) & (short | (second < 128)) & (lengths >= walk.MIN_RECORD_BYTES - 1)
    return np.where(valid, lengths + np.where(short, 1, 2), 1 << 40)


_HOPS = _hops()


def hop(payload: bytes, position: int, count: int, starts: list[int]) -> int:
    """Appends the start of each of the next `count` records. Returns the position after them, which may be beyond the
    end."""
    # The varint is inlined for its first three widths, as in protocol/records/walk.py, which has the constants.
    add = starts.append
    try:
        for _ in range(count):
            add(position)
            first = payload[position]
            if first & 1:
                raise InvalidRecords("a record has a negative length")
            if first < 128:
                if first < 12:
                    raise InvalidRecords(f"a record of {first >> 1} bytes")
                position += (first >> 1) + 1
            else:
                second = payload[position + 1]
                if second < 128:
                    # Two bytes may encode a one-byte value, so a length below the minimum is possible here, too.
                    if second == 0 and first < 140:
                        raise InvalidRecords(f"a record of {first - 128 >> 1} bytes")
                    position += (first >> 1) + (second << 6) - 62
                else:
                    length, position = walk.varint(payload, position)
                    if length < walk.MIN_RECORD_BYTES - 1:
                        raise InvalidRecords(f"a record of {length} bytes")
                    position += length
    except IndexError:
        raise InvalidRecords("the payload ends within a record") from None
    return position


def hop_together(payload: bytes, begins: Int64s, ends: Int64s, counts: Int64s, least: int) -> Int64s:
    """Returns the starts of these batches' records. Each step moves every batch to its next record while at least
    `least` batches have one; the rest is walked one by one. Each batch must end with its last record. The counts are
    bounded already."""
    if (starts := _hop_quickly(payload, begins, ends, counts, least)) is not None:
        return starts
    data = np.frombuffer(payload, np.uint8)
    order = np.argsort(-counts, kind="stable")  # batches with the most records come first
    left = counts[order]
    at = begins[order]
    targets = (np.cumsum(counts) - counts)[order]
    starts = np.empty(int(counts.sum()), np.int64)
    # The number of batches with more than `step` records.
    steps = int(left[least - 1]) if left.size >= least else 0
    alive = left.size - np.searchsorted(left[::-1], np.arange(steps), "right")
    try:
        for step, count in enumerate(alive.tolist()):
            position = at[:count]
            starts[targets[:count] + step] = position
            lengths, after = varints(data, position)
            if lengths.min() < walk.MIN_RECORD_BYTES - 1:
                raise InvalidRecords(f"a record of {lengths.min()} bytes")
            at[:count] = after + lengths
    except IndexError:
        raise InvalidRecords("the payload ends within a record") from None
    for index in np.flatnonzero(left > steps).tolist():
        alone: list[int] = []
        at[index] = hop(payload, int(at[index]), int(left[index]) - steps, alone)
        target = int(targets[index]) + steps
        starts[target : target + len(alone)] = alone
    if (at != ends[order]).any():
        raise InvalidRecords("a batch and its records end at different bytes")
    return starts


def _hop_quickly(payload: bytes, begins: Int64s, ends: Int64s, counts: Int64s, least: int) -> Int64s | None:
    """Does the same with a table, if all record lengths have at most two bytes and most steps move at least `least`
    batches. Returns None otherwise, and for invalid data."""
    steps, total = int(counts.max()), int(counts.sum())
    if steps * least > total or steps * counts.size > 4 * total:
        return None
    words = np.ndarray((len(payload) - 1,), "<u2", payload, strides=(1,))  # one at each byte
    order = np.argsort(-counts, kind="stable")
    at = begins[order]
    alive = at.size - np.searchsorted(counts[order][::-1], np.arange(steps), "right")
    found = np.empty((steps, at.size), np.int64)
    try:
        for step, count in enumerate(alive.tolist()):
            position = at[:count]
            found[step, :count] = position
            position += _HOPS[words[position]]
    except IndexError:
        return None
    if (at != ends[order]).any():
        return None
    of_batch = np.empty_like(order)
    of_batch[order] = np.arange(order.size)
    return found.T[of_batch][np.arange(steps) < counts[:, None]]


def varints(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the zigzag int32 at each position, and the positions after them; at most five bytes each."""
    first = data[positions]
    values = (first & 127).astype(np.int64)
    after = positions + 1
    longer = np.flatnonzero(first > 127)
    for shift in (7, 14, 21, 28):
        if not longer.size:
            break
        at = after[longer]
        byte = data[at]
        values[longer] |= (byte & 127).astype(np.int64) << shift
        after[longer] = at + 1
        if shift == 28 and byte.max() > 15:
            raise InvalidRecords("a varint of more than 5 bytes or 32 bits")
        longer = longer[byte > 127]
    return (values >> 1) ^ -(values & 1), after


def varlongs(data: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """Returns the zigzag int64 at each position, and the positions after them; at most ten bytes each."""
    first = data[positions]
    values = (first & 127).astype(np.uint64)
    after = positions + 1
    longer = np.flatnonzero(first > 127)
    for shift in range(7, 70, 7):
        if not longer.size:
            break
        at = after[longer]
        byte = data[at]
        if shift + 7 > _INT64_BITS and byte.max() > 1:
            raise InvalidRecords("a varlong of more than 10 bytes or 64 bits")
        values[longer] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[longer] = at + 1
        longer = longer[byte > 127]
    halves = (values >> np.uint64(1)).astype(np.int64)
    return halves ^ -(values & np.uint64(1)).astype(np.int64), after


def after_varints(data: Bytes, positions: Int64s) -> Int64s:
    """Returns the positions after varints that were validated before."""
    after = positions + 1
    longer = np.flatnonzero(data[positions] > 127)
    while longer.size:
        at = after[longer]
        after[longer] = at + 1
        longer = longer[data[at] > 127]
    return after


def zigzag_widths(values: Int64s) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Returns the zigzag form of each value and its size as a varint."""
    codes = ((values << 1) ^ (values >> 63)).view(np.uint64)
    widths = np.ones(codes.shape, np.int64)
    most, least = int(codes.max(initial=0)), 128
    while most >= least:
        widths += codes >= np.uint64(least)
        least <<= 7
    return codes, widths


def zigzags(values: Int64s) -> tuple[Bytes, Int64s]:
    """Returns all values as concatenated varints, and the size of each."""
    codes, widths = zigzag_widths(values)
    return varint_bytes(codes, widths), widths


def varint_bytes(codes: npt.NDArray[np.uint64], widths: Int64s) -> Bytes:
    """Returns all zigzag forms as concatenated varints; `widths` are their sizes."""
    codes, widths = codes.ravel(), widths.ravel()
    ends = np.cumsum(widths)
    begins = ends - widths
    out = np.empty(int(ends[-1]) if ends.size else 0, np.uint8)
    low = codes.astype(np.uint8)  # the last seven bits, and one that is replaced
    out[begins] = np.where(widths > 1, low | np.uint8(128), low)
    for index in range(1, int(widths.max(initial=0))):
        reached = np.flatnonzero(widths > index)
        byte = (codes[reached] >> np.uint64(7 * index) & np.uint64(127)).astype(np.uint8)
        byte[widths[reached] - 1 > index] |= 128
        out[begins[reached] + index] = byte
    return out


def checked_sum(left: Int64s, right: Int64s, name: str) -> Int64s:
    """Returns left + right. Raises InvalidRecords for a sum that does not fit 64 bits."""
    total = left + right  # numpy wraps silently
    if (((left ^ total) & (right ^ total)) < 0).any():
        raise InvalidRecords(f"{name} does not fit 64 bits")
    return total


def checked_difference(left: Int64s, right: Int64s, name: str) -> Int64s:
    """Returns left - right. Raises InvalidRecords for a difference that does not fit 64 bits."""
    difference = left - right
    if (((left ^ right) & (left ^ difference)) < 0).any():
        raise InvalidRecords(f"{name} does not fit 64 bits")
    return difference
