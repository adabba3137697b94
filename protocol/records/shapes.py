"""Fast checks of consecutive records of one shape: with the same widths of length, timestamp delta and offset delta.

One `struct` call reads the front of a record, since all widths are known, and a table gives the size of each varint
together with the size it announces. A record that passes is whole in the sense of `walk.record`; one that does not may
be whole too, with another shape.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

from ..named import NamedTuple

Buffer = bytes | bytearray | memoryview

_MOST_NUMBERS = 8192  # of a zigzag varint of two bytes
_FEW_HEADERS = 2 * 15  # zigzag-encoded, like walk.FEW_HEADERS
_WRONG = -(2**40)  # moves the position out of every payload
_NOTHING = (0, 0, 0)
_unpack_two: Callable[[Buffer, int], tuple[int]] = struct.Struct("<H").unpack_from


class _Shape(NamedTuple):
    unpack: Callable[[Buffer, int], tuple[int, int, int, int]]
    """Reads (length, timestamp delta, offset delta, first byte of the key's length), each as its raw bytes."""
    sizes: list[int]
    """The size of a record, with its length field, by the raw length; 0 for another width or a negative length."""
    time_mask: int
    time_bits: int
    """The continuation bits of a timestamp delta of this width."""
    numbers: list[int]
    """The raw bytes of the offset deltas 0, 1, ..."""
    first_number: int
    """The first offset delta of this width."""
    head_bytes: int
    """The bytes from the record's length to the key's length, both included."""


class _Tables(NamedTuple):
    shapes: dict[int, _Shape]
    sizes: list[int]
    """By the two bytes at the length of a nullable field: the size of length and field; _WRONG if it needs more than
    two bytes or is not in the shortest form."""


def _size_tables() -> tuple[list[int], list[int]]:
    """Returns tables by two bytes, the first one low: sizes for a varint of one or two bytes, and for two bytes
    only."""
    either = [_WRONG] * 65536
    both = [0] * 65536
    either[1::256] = [1] * 256  # null
    for low in range(0, 128, 2):
        either[low::256] = [1 + (low >> 1)] * 256
    for low in range(128, 256, 2):
        sizes = range(2 + (low - 128 >> 1), 2 + (low - 128 >> 1) + 64 * 128, 64)
        either[low:32768:256] = both[low:32768:256] = sizes
    return either, both


@functools.cache
def _tables() -> _Tables:
    """Builds the tables: 1.3 MB, in 2 ms, when the first batch is checked."""
    either, both = _size_tables()
    one = [0 if length > 127 or length & 1 else 1 + (length >> 1) for length in range(256)]
    short = [2 * number for number in range(64)]
    long = [2 * number & 127 | 128 | number >> 6 << 8 for number in range(_MOST_NUMBERS)]
    shapes: dict[int, _Shape] = {}
    for widths in range(8):
        wide_length, wide_time, wide_number = widths & 4, widths & 2, widths & 1
        layout = f"<{'H' if wide_length else 'B'}x{'H' if wide_time else 'B'}{'H' if wide_number else 'B'}B"
        shapes[widths] = _Shape(
            struct.Struct(layout).unpack_from,
            both if wide_length else one,
            0x8080 if wide_time else 0x80,
            0x80 if wide_time else 0,
            long if wide_number else short,
            64 if wide_number else 0,
            struct.calcsize(layout),
        )
    return _Tables(shapes, either)


def _shape_at(payload: Buffer, position: int) -> int:
    """Returns the widths of the record at the position, as a key of the tables."""
    widths = 0
    if payload[position] > 127:
        widths = 4
        position += 1
    position += 2
    if payload[position] > 127:
        widths |= 2
        position += 1
    return widths | payload[position + 1] >> 7


def same_shape(payload: Buffer, position: int, record_count: int, first: int, keyed: bool) -> tuple[int, int, int, int]:
    """Steps over at most `record_count` whole records of the first one's shape with offset deltas `first`, `first` + 1,
    ...

    Returns (position, count, lowest timestamp delta, highest timestamp delta).
    """
    start, after = position, first
    top = bottom = -1  # the highest delta and the lowest negative one as raw bytes, which compare like the values
    try:
        tables = _tables()
        unpack, sizes, time_mask, time_bits, numbers, first_number, head_bytes = tables.shapes[
            _shape_at(payload, position)
        ]
        if first < first_number:
            return (position, *_NOTHING)
        field_sizes = tables.sizes
        for number in numbers[first : first + record_count]:
            length, time, found, size = unpack(payload, position)
            if found != number or time & time_mask != time_bits:
                break
            at: int = position + head_bytes
            if size & 129:  # no key, or a long one
                if size == 1:
                    if keyed:
                        break
                else:
                    (size,) = _unpack_two(payload, at - 1)
                    at += field_sizes[size] - 1
            else:
                at += size >> 1
            stop = position + sizes[length]
            (size,) = _unpack_two(payload, at)
            at += field_sizes[size]
            count = payload[at]
            at += 1
            if count:
                if count & 1 or count > _FEW_HEADERS:
                    break
                for _ in range(count >> 1):
                    size = payload[at]
                    if size & 129:
                        at = _WRONG
                        break
                    at += 1 + (size >> 1)
                    (size,) = _unpack_two(payload, at)
                    at += field_sizes[size]
            if at != stop:
                break
            if time & 1:
                if time > bottom:
                    bottom = time
            elif time > top:
                top = time
            position = stop
            after += 1
    except (IndexError, struct.error):
        pass
    if position == start:
        return (position, *_NOTHING)
    if top < 0:  # no delta is positive: the one nearest to zero is the highest
        return start, 0, 0, 0
    low = 0 if bottom < 0 else ~(_value(bottom) >> 1)
    return position, after - first, low, _value(top) >> 1


def _value(raw: int) -> int:
    """Returns the zigzag form of one or two bytes."""
    return raw if raw < 128 else (raw & 127) | raw >> 8 << 7
