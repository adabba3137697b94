"""Stepping over the records of an uncompressed v2 payload without decoding them.

Owns the loops that run for every record that a broker receives, and the zigzag varints. What is inside a record beyond
its length, timestamp delta and offset delta is not looked at. Raises InvalidRecords and nothing else.
"""

from __future__ import annotations

from .errors import InvalidRecords

Buffer = bytes | bytearray | memoryview

MIN_RECORD_BYTES = 7
_INT64_MIN = -(2**63)


def check_count(payload: Buffer, record_count: int) -> None:
    if record_count < 0 or record_count * MIN_RECORD_BYTES > len(payload):
        raise InvalidRecords(f"{len(payload)} bytes cannot hold {record_count} records")


def check_end(position: int, end: int, record_count: int) -> None:
    if position > end:
        raise InvalidRecords("the last record is cut")
    if position < end:
        raise InvalidRecords(f"{end - position} bytes after the last of {record_count} records")


def lengths(payload: Buffer, record_count: int) -> None:
    """Step from record to record over an uncompressed payload by their lengths.

    Checks that there are exactly `record_count` and nothing after them; what is inside a record is not looked at.
    Raises InvalidRecords.
    """
    check_count(payload, record_count)
    # These functions run for every record that the broker receives. The varint is inlined for its first three
    # widths; bit 0 is the sign, so an odd first byte is a negative length. The constants fold in the marker bits of the
    # leading bytes and the bytes of the varint itself: 62 = 64 - 2, 8253 = 64 + 8192 - 3.
    position = 0
    try:
        for _ in range(record_count):
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
                    position += (first >> 1) + (second << 6) - 62
                else:
                    third = payload[position + 2]
                    if third < 128:
                        position += (first >> 1) + (second << 6) + (third << 13) - 8253
                    else:
                        length, position = varint(payload, position)
                        position += length
    except IndexError:
        raise InvalidRecords(f"the payload ends before {record_count} records") from None
    check_end(position, len(payload), record_count)


def timestamps(payload: Buffer, record_count: int) -> tuple[int, int]:
    """As `lengths`, and the range of the timestamp deltas: (lowest or 0 if none is negative, highest)."""
    check_count(payload, record_count)
    position = 0
    lowest = 0
    highest = _INT64_MIN
    top = -1  # the highest of the short, non-negative deltas, still shifted left by its sign bit
    try:
        for _ in range(record_count):
            first = payload[position]
            if first & 1:
                raise InvalidRecords("a record has a negative length")
            if first < 128:
                if first < 12:
                    raise InvalidRecords(f"a record of {first >> 1} bytes")
                at = position + 2
                position += (first >> 1) + 1
            else:
                second = payload[position + 1]
                if second < 128:
                    at = position + 3
                    position += (first >> 1) + (second << 6) - 62
                else:
                    third = payload[position + 2]
                    if third < 128:
                        at = position + 4
                        position += (first >> 1) + (second << 6) + (third << 13) - 8253
                    else:
                        length, at = varint(payload, position)
                        position = at + length
                        at += 1
            delta = payload[at]
            if delta & 0x81:
                more = payload[at + 1]
                if delta & 1 or more > 127:
                    value, _ = varlong(payload, at)
                    if value > highest:
                        highest = value
                    if value < lowest:
                        lowest = value
                    continue
                delta += (more << 7) - 128
            if delta > top:
                top = delta
    except IndexError:
        raise InvalidRecords(f"the payload ends before {record_count} records") from None
    check_end(position, len(payload), record_count)
    return lowest, max(highest, top >> 1) if top >= 0 else highest


def numbered_timestamps(payload: Buffer, record_count: int) -> tuple[int, int, bool]:
    """As `timestamps`, and whether the offset deltas are 0, 1, 2, ... (False also where one is oddly encoded)."""
    check_count(payload, record_count)
    position = 0
    lowest = 0
    highest = _INT64_MIN
    top = -1  # the highest non-negative delta, in its zigzag form
    numbered = True
    expected = -2  # the zigzag form of the offset delta: twice the record's index
    try:
        for _ in range(record_count):
            first = payload[position]
            if first & 1:
                raise InvalidRecords("a record has a negative length")
            if first < 128:
                if first < 12:
                    raise InvalidRecords(f"a record of {first >> 1} bytes")
                at = position + 2
                position += (first >> 1) + 1
            else:
                second = payload[position + 1]
                if second < 128:
                    at = position + 3
                    position += (first >> 1) + (second << 6) - 62
                else:
                    length, at = varint(payload, position)
                    position = at + length
                    at += 1
            delta = payload[at]
            at += 1
            if delta > 127:
                more = payload[at]
                at += 1
                if more < 128:
                    delta += (more << 7) - 128
                else:
                    delta, at = varlong(payload, at - 2)
                    delta = delta << 1 if delta >= 0 else ~(delta << 1)
            if delta & 1:
                if ~(delta >> 1) < lowest:
                    lowest = ~(delta >> 1)
                if top < 0 and ~(delta >> 1) > highest:
                    highest = ~(delta >> 1)
            elif delta > top:
                top = delta
            expected += 2
            if expected < 128:
                if payload[at] != expected:
                    numbered = False
            elif expected < 16384:
                if payload[at] != expected & 127 | 128 or payload[at + 1] != expected >> 7:
                    numbered = False
            elif varint(payload, at)[0] << 1 != expected:
                numbered = False
    except IndexError:
        raise InvalidRecords(f"the payload ends before {record_count} records") from None
    check_end(position, len(payload), record_count)
    return lowest, top >> 1 if top >= 0 else highest, numbered


def varint(payload: Buffer, position: int) -> tuple[int, int]:
    """A zigzag int32 of at most five bytes, and the position after it."""
    value = payload[position]
    position += 1
    if value > 127:
        value &= 127
        for shift in (7, 14, 21, 28):
            byte = payload[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise InvalidRecords("a varint of more than 5 bytes")
        if value > 0xFFFFFFFF:
            raise InvalidRecords("a varint of more than 32 bits")
    return (value >> 1) ^ -(value & 1), position


def varlong(payload: Buffer, position: int) -> tuple[int, int]:
    """A zigzag int64 of at most ten bytes, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise InvalidRecords("a varlong of more than 10 bytes")
    if value > 0xFFFFFFFFFFFFFFFF:
        raise InvalidRecords("a varlong of more than 64 bits")
    return (value >> 1) ^ -(value & 1), position
