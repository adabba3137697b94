"""Steps over the records of an uncompressed v2 payload without decoding them.

Reads zigzag varints and checks every record that a broker receives. `whole_from` continues from a position for a number
of records, so that a large batch can be walked in parts, and stops before an invalid record; `record` and
`skip_headers` read one record and raise InvalidRecords for its error.
"""

from __future__ import annotations

from ..named import NamedTuple
from . import shapes
from .errors import InvalidRecords
from .new_tuple import new_tuple
from .steps import STEP_RECORDS

Buffer = bytes | bytearray | memoryview

MIN_RECORD_BYTES = 7
FEW_HEADERS = 15  # limits the work per record
_FEW_RECORDS, _MANY_RECORDS = 8, 128
IS_COMPILED = not __file__.endswith((".py", ".pyc"))
"""Whether this module is compiled, with the types of walk.pxd. Then one record after the other is the fastest way."""
RECORDS_AT_ONCE = 5 * STEP_RECORDS if IS_COMPILED else STEP_RECORDS
"""Records that `whole_from` steps over within a cooperative step."""


def check_count(payload: Buffer, record_count: int) -> None:
    if record_count < 0 or record_count * MIN_RECORD_BYTES > len(payload):
        raise InvalidRecords(f"{len(payload)} bytes cannot hold {record_count} records")


def check_end(position: int, end: int, record_count: int) -> None:
    if position > end:
        raise InvalidRecords("the last record is cut")
    if position < end:
        raise InvalidRecords(f"{end - position} bytes after the last of {record_count} records")


def whole_from(
    payload: Buffer, position: int, record_count: int, first: int, least: int, most: int, keyed: bool
) -> tuple[int, int, int, int, bool]:
    """Steps over at most `record_count` structurally valid records (every length, varint and header).

    Stops before the first that is broken, has a timestamp delta outside `least` to `most`, has no key (if `keyed`) or
    more than FEW_HEADERS headers; `record` raises the error. Returns (position, count, lowest delta, highest delta,
    whether the offset deltas are `first`, `first` + 1, ...). The lowest delta is between 0 and the true one if none is
    negative.
    """
    if IS_COMPILED or record_count == 1:
        return _any_shape_from(payload, position, record_count, first, least, most, keyed)
    # Most records of a batch have varints of the same widths. `same_shape` steps over these in half the time; after a
    # short run of one shape, the next records are read one varint at a time.
    lowest, highest = most, least
    count, numbered, some = 0, True, _FEW_RECORDS
    while count < record_count:
        number = first + count
        stop, passed, low, high = shapes.same_shape(payload, position, record_count - count, number, keyed)
        if passed and least <= low and high <= most:
            position = stop
            count += passed
            lowest, highest = min(lowest, low), max(highest, high)
            if passed >= _FEW_RECORDS:
                some = _FEW_RECORDS
                continue
        some = min(2 * some, _MANY_RECORDS, record_count - count)
        position, passed, low, high, in_order = _any_shape_from(
            payload, position, some, first + count, least, most, keyed
        )
        count += passed
        lowest, highest = min(lowest, low), max(highest, high)
        numbered = numbered and in_order
        if passed < some:
            break
    return position, count, lowest, highest, numbered


def _any_shape_from(
    payload: Buffer, position: int, record_count: int, first: int, least: int, most: int, keyed: bool
) -> tuple[int, int, int, int, bool]:
    """Like `whole_from`, for varints of any width."""
    lowest, highest = most, least
    count, numbered = 0, True
    expected = 2 * first  # the zigzag form of the offset delta
    try:
        while count < record_count:
            # Calls cost more than the rest of a varint: varints of one or two bytes are read inline. The constants
            # account for the continuation bit and the bytes of the varint itself: 62 = 64 - 2, 63 = 64 - 1.
            length = payload[position]
            if length < 128:
                at = position + 2  # after the attributes, which are unused
                stop = position + (length >> 1) + 1
            else:
                second = payload[position + 1]
                if second < 128:
                    at = position + 3
                    stop = position + (length >> 1) + (second << 6) - 62
                else:
                    size, at = varint(payload, position)
                    stop = at + size
                    at += 1
            if length & 1:
                break
            delta = payload[at]
            at += 1
            if delta < 128:
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                second = payload[at]
                if second < 128:
                    delta += (second << 7) - 128
                    delta = (delta >> 1) ^ -(delta & 1)
                    at += 1
                elif (third := payload[at + 1]) < 128:
                    delta += (second << 7) + (third << 14) - 16512
                    delta = (delta >> 1) ^ -(delta & 1)
                    at += 2
                else:
                    delta, at = varlong(payload, at - 1)
            if not least <= delta <= most:
                break
            number = payload[at]
            at += 1
            if number > 127:
                second = payload[at]
                if second < 128:
                    number += (second << 7) - 128
                    at += 1
                else:
                    number, at = varint(payload, at - 1)
                    number <<= 1
            if number != expected:
                numbered = False
            expected += 2
            size = payload[at]
            at += 1
            if size == 1:  # null
                if keyed:
                    break
            elif size & 129:
                size, at = varint(payload, at - 1)
                if size >= 0:
                    at += size
                elif keyed:
                    break
            else:
                at += size >> 1
            size = payload[at]
            at += 1
            if size & 129:
                second = payload[at]
                if size & 1 or second > 127:
                    size, at = varint(payload, at - 1)
                    if size > 0:
                        at += size
                else:
                    at += (size >> 1) + (second << 6) - 63
            else:
                at += size >> 1
            headers = payload[at]
            at += 1
            if headers:
                if headers & 1 or headers > 2 * FEW_HEADERS:
                    break
                at = skip_headers(payload, at, stop, headers >> 1)
            if at != stop:
                break
            if delta < lowest:
                lowest = delta
            if delta > highest:
                highest = delta
            position = stop
            count += 1
    except (IndexError, InvalidRecords):
        pass
    return position, count, lowest, highest, numbered


class Walked(NamedTuple):
    """A record as far as it was read. Positions are in the payload."""

    end: int
    timestamp_delta: int
    offset_delta: int
    key_position: int
    """The position of the key's length. The bytes from here to the end stay the same when a record is numbered
    again."""
    key_bytes: int
    """-1 for null, as for the value."""
    value_position: int
    """The position of the value itself, after its length."""
    value_bytes: int
    headers_position: int
    """The position after the header count."""
    header_count: int


def record(payload: Buffer, position: int, end: int) -> Walked:
    """Reads the record at `position`: lengths, deltas, and the header count. `skip_headers` checks the headers."""
    try:
        length, position = varint(payload, position)
        stop = position + length
        if length < MIN_RECORD_BYTES - 1 or stop > end:
            raise InvalidRecords(f"a record of {length} bytes where {end - position} are left")
        timestamp_delta, position = varlong(payload, position + 1)  # after the attributes, which are unused
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
    return new_tuple(Walked, (*walked, header_count))


def skip_headers(payload: Buffer, position: int, stop: int, count: int) -> int:
    """Skips `count` headers of a record and returns the position after them, which must not be beyond `stop`, the end
    of the record."""
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


def _field(payload: Buffer, position: int, stop: int) -> tuple[int, int]:
    """Reads the length of nullable bytes that end by `stop`; returns (length, position after it). Any negative length
    is null, as in Java."""
    length, position = varint(payload, position)
    if length > stop - position:
        raise InvalidRecords(f"a field of {length} bytes where {stop - position} are left")
    return (length if length >= 0 else -1), position


def varint(payload: Buffer, position: int) -> tuple[int, int]:
    """Reads a zigzag int32 of at most five bytes; returns it and the position after it."""
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
    """Reads a zigzag int64 of at most ten bytes; returns it and the position after it."""
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
    """Returns the varint or varlong of a value, without a check of its width."""
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
