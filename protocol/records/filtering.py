"""Removes records from a v2 batch by offset, key and null value: the per-batch work of compaction.

Nothing else of a record is decoded: a retained record is copied unchanged, and encoded again only if the batch's base
timestamp, to which its own is relative, changes. The caller checks the CRC and decides which records to retain. Raises
InvalidRecords and UnsupportedCodec only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..limits import INT64_MAX, INT64_MIN
from .batch import DELETE_HORIZON_BIT, NO_TIMESTAMP, BatchHeader, with_payload
from .errors import InvalidRecords
from .walk import check_count, check_end, varint, varlong, zigzag

Keep = Callable[[int, bytes | None, bool], bool]
"""Decides whether to retain a record, from its offset, its key and whether it has a value."""

# start, end (both with the length), timestamp delta, position of the offset delta, offset delta, key, has a value
Part = tuple[int, int, int, int, int, bytes | None, bool]


def parts(payload: bytes, record_count: int) -> Iterator[Part]:
    """Yields the parts of every record of an uncompressed payload that a filter needs. Headers are not read."""
    check_count(payload, record_count)
    end = len(payload)
    position = 0
    for index in range(record_count):
        # Varints of one and two bytes are inlined, since this runs for every record of a log. If the sign bit is 0, a
        # varint of two bytes is (first >> 1) + (second << 6) - 64.
        start = position
        try:
            first = payload[position]
            if first < 128:
                length = (first >> 1) ^ -(first & 1)
                position += 1
            else:
                second = payload[position + 1]
                if second < 128 and not first & 1:
                    length = (first >> 1) + (second << 6) - 64
                    position += 2
                else:
                    length, position = varint(payload, position)
            stop = position + length
            if length < 0 or stop > end:
                raise InvalidRecords(f"a record of {length} bytes where {end - position} are left")
            delta = payload[position + 1]  # after the attributes, which are unused
            if delta < 128:
                delta = (delta >> 1) ^ -(delta & 1)
                position += 2
            else:
                second = payload[position + 2]
                if second < 128 and not delta & 1:
                    delta = (delta >> 1) + (second << 6) - 64
                    position += 3
                else:
                    delta, position = varlong(payload, position + 1)
            offset_at = position
            number = payload[position]
            if number < 128:
                number = (number >> 1) ^ -(number & 1)
                position += 1
            else:
                number, position = varint(payload, position)
            length = payload[position]
            if length < 128:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = varint(payload, position)
            if length < 0:
                key = None
            else:
                key = payload[position : position + length]
                position += length
            first = payload[position]
            if first & 1:
                length, position = varint(payload, position)
                has_value = False
            else:
                has_value = True
                if first < 128:
                    position += 1 + (first >> 1)
                else:
                    second = payload[position + 1]
                    if second < 128:
                        position += (first >> 1) + (second << 6) - 62
                    else:
                        length, position = varint(payload, position)
                        position += length
        except IndexError:
            raise InvalidRecords(f"record {index} is cut") from None
        if position >= stop:  # the header count comes next
            raise InvalidRecords(f"a record's parts and its length differ by {position + 1 - stop} bytes")
        yield start, stop, delta, offset_at, number, key, has_value
        position = stop
    check_end(position, end, record_count)


def thinned(
    payload: bytes, header: BatchHeader, keep: Keep | None, delete_horizon_ms: int | None
) -> tuple[bytearray | None, int]:
    """Returns the batch of the retained records (all if `keep` is None) and their number. The batch is None if none are
    retained, or if nothing changes.

    Offsets, sequences, producer, epochs and codec are kept; the base timestamp is that of the first retained record,
    the max timestamp the highest of them. `delete_horizon_ms` (KIP-534) is set in a batch without one, if it is a
    control batch or retains a record without a value; an existing delete horizon is kept.
    """
    base_offset = header.base_offset
    runs: list[int] = []  # starts and ends, alternating, of the retained bytes
    count, tombstones = 0, False
    earliest = latest = first_delta = 0
    for start, stop, delta, _, number, key, has_value in parts(payload, header.record_count):
        if keep is not None and not keep(base_offset + number, key, has_value):
            continue
        if not count:
            first_delta = earliest = latest = delta
            runs = [start, stop]
        elif runs[-1] == start:
            runs[-1] = stop
        else:
            runs += (start, stop)
        count += 1
        if delta > latest:
            latest = delta
        elif delta < earliest:
            earliest = delta
        if not has_value:
            tombstones = True
    if not count:
        return None, 0
    has_horizon = header.has_delete_horizon
    if has_horizon or not (tombstones or header.is_control):
        delete_horizon_ms = None
    if count == header.record_count and delete_horizon_ms is None:
        return None, count
    old_base = header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    if delete_horizon_ms is not None or has_horizon:
        new_base = old_base if delete_horizon_ms is None else delete_horizon_ms
    else:
        new_base = old_base + first_delta if append_time is None else append_time
    shift = old_base - new_base
    if append_time is None:
        is_same, highest = shift == 0, old_base + latest
    else:
        is_same, highest = earliest == latest == append_time - new_base, append_time
    data = b"".join([payload[runs[at] : runs[at + 1]] for at in range(0, len(runs), 2)])
    if not is_same:
        data = _retimed(data, count, shift, None if append_time is None else append_time - new_base)
    changed = header._replace(base_timestamp=new_base, max_timestamp=max(highest, NO_TIMESTAMP), record_count=count)
    bits = DELETE_HORIZON_BIT if has_horizon or delete_horizon_ms is not None else 0
    return with_payload(changed, data, header.codec, bits=bits), count


def _retimed(payload: bytes, record_count: int, shift: int, same: int | None) -> bytearray:
    """Encodes the records again with timestamp deltas larger by `shift`, or all equal to `same`."""
    out = bytearray()
    for _, stop, delta, offset_at, _, _, _ in parts(payload, record_count):
        moved = delta + shift if same is None else same
        if not INT64_MIN <= moved <= INT64_MAX:
            raise InvalidRecords(f"a timestamp {moved} ms from the batch's does not fit")
        time = zigzag(moved)
        out += zigzag(1 + len(time) + stop - offset_at)
        out.append(0)  # attributes
        out += time
        out += payload[offset_at:stop]
    return out
