"""Stepping over the records of an uncompressed v2 payload without decoding them.

Owns the loops that run for every record that a broker receives, and the zigzag varints. The quick loops look at no more
of a record than its length, timestamp delta and offset delta; each goes on from a position for a number of records, so
that a large batch can be walked in parts. `record` and `skip_headers` look at everything that the format says about one
record. Raises InvalidRecords and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from .errors import InvalidRecords

Buffer = bytes | bytearray | memoryview

MIN_RECORD_BYTES = 7
_FEW_HEADERS = 15  # so that a number of records bounds the work
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
    check_end(lengths_from(payload, 0, record_count), len(payload), record_count)


def timestamps(payload: Buffer, record_count: int) -> tuple[int, int]:
    """As `lengths`, and the range of the timestamp deltas: (lowest or 0 if none is negative, highest)."""
    check_count(payload, record_count)
    position, lowest, highest = timestamps_from(payload, 0, record_count)
    check_end(position, len(payload), record_count)
    return lowest, highest


def numbered_timestamps(payload: Buffer, record_count: int) -> tuple[int, int, bool]:
    """As `timestamps`, and whether the offset deltas are 0, 1, 2, ... (False also where one is oddly encoded)."""
    check_count(payload, record_count)
    position, lowest, highest, numbered = numbered_timestamps_from(payload, 0, record_count)
    check_end(position, len(payload), record_count)
    return lowest, highest, numbered


def lengths_from(payload: Buffer, position: int, record_count: int) -> int:
    """Step over so many records; the position after them, which may lie beyond the end (`check_end` tells)."""
    # These functions run for every record that the broker receives. The varint is inlined for its first three
    # widths; bit 0 is the sign, so an odd first byte is a negative length. The constants fold in the marker bits of the
    # leading bytes and the bytes of the varint itself: 62 = 64 - 2, 8253 = 64 + 8192 - 3.
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
        raise InvalidRecords(f"the payload ends before {record_count} more records") from None
    return position


def timestamps_from(payload: Buffer, position: int, record_count: int) -> tuple[int, int, int]:
    """As `lengths_from`, and the range of these records' timestamp deltas, as in `timestamps`."""
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
        raise InvalidRecords(f"the payload ends before {record_count} more records") from None
    return position, lowest, max(highest, top >> 1) if top >= 0 else highest


def numbered_timestamps_from(
    payload: Buffer, position: int, record_count: int, first: int = 0
) -> tuple[int, int, int, bool]:
    """As `timestamps_from`, and whether the offset deltas are `first`, `first` + 1, ..."""
    lowest = 0
    highest = _INT64_MIN
    top = -1  # the highest non-negative delta, in its zigzag form
    numbered = True
    expected = 2 * first - 2  # the zigzag form of the offset delta: twice the record's index
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
        raise InvalidRecords(f"the payload ends before {record_count} more records") from None
    return position, lowest, top >> 1 if top >= 0 else highest, numbered


def whole_from(
    payload: Buffer, position: int, record_count: int, first: int, least: int, most: int, keyed: bool
) -> tuple[int, int, int, int, bool]:
    """Step over records as long as all is well with everything inside, at most so many.

    Stops before the first that is broken, has a timestamp delta outside of `least` to `most`, has no key (if `keyed`)
    or many headers; `record` tells what is wrong. (position, count, lowest delta, highest delta, whether the
    offset deltas are `first`, `first` + 1, ...)
    """
    lowest, highest, end = most, least, len(payload)
    start, count, numbered = position, 0, True
    try:
        while count < record_count:
            length = payload[position]
            position += 1
            if length > 127:
                second = payload[position]
                if second < 128:
                    position += 1
                    length += (second << 7) - 128
                else:
                    length, position = varint(payload, start)
                    length <<= 1
            stop = position + (length >> 1)
            if length & 1 or length < 12 or stop > end:
                break
            delta = payload[position + 1]  # after the attributes, which mean nothing
            if delta < 128:
                delta = (delta >> 1) ^ -(delta & 1)
                position += 2
            else:
                delta, position = varlong(payload, position + 1)
            if not least <= delta <= most:
                break
            number = payload[position]
            if number < 128:
                number = (number >> 1) ^ -(number & 1)
                position += 1
            else:
                number, position = varint(payload, position)
            if number != first + count:
                numbered = False
            length = payload[position]
            position += 1
            if length & 1:
                if keyed or length > 127:
                    break
            elif length < 128:
                position += length >> 1
            else:
                length, position = varint(payload, position - 1)
                position += length
            length = payload[position]
            position += 1
            if length < 128:
                position += 0 if length & 1 else length >> 1
            else:
                second = payload[position]
                if length & 1 or second > 127:
                    length, position = varint(payload, position - 1)
                    position += length if length > 0 else 0
                else:
                    position += (length >> 1) + (second << 6) - 63
            headers = payload[position]
            position += 1
            if headers:
                if headers & 1 or headers > 2 * _FEW_HEADERS:
                    break
                position = skip_headers(payload, position, stop, headers >> 1)
            if position != stop:
                break
            if delta < lowest:
                lowest = delta
            if delta > highest:
                highest = delta
            start = stop
            count += 1
    except IndexError:
        pass
    return start, count, lowest, highest, numbered


class Walked(NamedTuple):
    """One record, as far as it was looked at. Positions are in the payload."""

    end: int
    timestamp_delta: int
    offset_delta: int
    key_position: int
    """Of the key's length; from here to the end a record stays the same when it is numbered anew."""
    key_bytes: int
    """-1 for null, as for the value."""
    value_position: int
    """Of the value itself, behind its length."""
    value_bytes: int
    headers_position: int
    """Behind the headers' count."""
    header_count: int


def record(payload: Buffer, position: int, end: int) -> Walked:
    """The record at `position`: lengths, deltas, and the count of its headers, which are left to `skip_headers`."""
    try:
        length, position = varint(payload, position)
        stop = position + length
        if length < MIN_RECORD_BYTES - 1 or stop > end:
            raise InvalidRecords(f"a record of {length} bytes where {end - position} are left")
        timestamp_delta, position = varlong(payload, position + 1)  # after the attributes, which mean nothing
        offset_delta, key_position = varint(payload, position)
        key_bytes, position = _field(payload, key_position, stop)
        position += key_bytes if key_bytes > 0 else 0
        value_bytes, value_position = _field(payload, position, stop)
        position = value_position + (value_bytes if value_bytes > 0 else 0)
        header_count, position = varint(payload, position)
    except IndexError:
        raise InvalidRecords("the payload ends within a record") from None
    if header_count < 0 or header_count > max(stop - position, 0):
        raise InvalidRecords(f"{header_count} headers where {stop - position} bytes are left")
    if not header_count and position != stop:
        raise InvalidRecords(f"a record's parts and its length differ by {position - stop} bytes")
    walked = (stop, timestamp_delta, offset_delta, key_position, key_bytes, value_position, value_bytes, position)
    return _made_walked(Walked, (*walked, header_count))


def skip_headers(payload: Buffer, position: int, stop: int, count: int) -> int:
    """Step over so many headers of a record; the position after them, which must not lie beyond `stop`, where the
    record ends."""
    try:
        for _ in range(count):
            length = payload[position]
            if length < 128 and not length & 1:
                position += 1 + (length >> 1)
            else:
                length, position = _field(payload, position, stop)
                if length < 0:
                    raise InvalidRecords("a header's key is null")
                position += length
            length = payload[position]
            if length < 128 and not length & 1:
                position += 1 + (length >> 1)
            else:
                length, position = _field(payload, position, stop)
                if length > 0:
                    position += length
    except IndexError:
        raise InvalidRecords("the payload ends within a header") from None
    return position


_made_walked = tuple.__new__


def _field(payload: Buffer, position: int, stop: int) -> tuple[int, int]:
    """(length, position after it) of nullable bytes that end by `stop`; any negative length is null, as in Java."""
    length, position = varint(payload, position)
    if length > stop - position:
        raise InvalidRecords(f"a field of {length} bytes where {stop - position} are left")
    return (length if length >= 0 else -1), position


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


def zigzag(value: int) -> bytes:
    """The varint or varlong of a value; its width is the caller's affair."""
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < 128:
        return _ONE_BYTE[rest]
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(128)]
