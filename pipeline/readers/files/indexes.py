"""Finds offsets and timestamps in a segment by its two sparse index files, whose entries are hints that the log must
confirm.

Owns the trust in an index. An entry of the offset index is valid if a whole log entry with a matching CRC is at its
position and ends with its offset; a time index entry only if the log entry has that timestamp. An index file may be
missing, truncated, not written yet, or padded with zeros: then headers are read instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ....protocol.records.batch import BatchHeader
from ....storage.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ....storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from .headers import Int64s, Table
from .windows import Gone, Hops, LogFile, file_bytes

_TRIED = 4  # index entries that are tried before the index is given up
_GROUP_BYTES = 8 << 20  # entries that were appended together lie within this range
_TAIL_BYTES = 16 << 20  # after the last time index entry; with more bytes the largest timestamp stays unknown


class Mark(NamedTuple):
    """A known entry of a log: its position, and the header fields that identify it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.size


class OffsetEntries(NamedTuple):
    """Offsets and positions, both ascending."""

    offsets: Int64s
    positions: Int64s


class TimeEntries(NamedTuple):
    """Timestamps in ms, ascending, and the offsets of their records."""

    times: Int64s
    offsets: Int64s


def mark_of(position: int, header: BatchHeader) -> Mark:
    return Mark(position, header.size_bytes, header.base_offset, header.last_offset, header.crc)


def is_still(file: LogFile, mark: Mark) -> bool:
    """Returns whether the entry is still at its position in this file; then everything before it has lower offsets."""
    header = file.header(mark.position)
    return header is not None and mark_of(mark.position, header) == mark


# -- index files


def offset_entries(log_path: str, base: int) -> OffsetEntries:
    """Returns the ascending leading entries of an offset index; none without the file."""
    data = _index_bytes(log_path, INDEX_SUFFIX, OFFSET_ENTRY_BYTES)
    numbers = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
    offsets, positions = numbers[:, 0], numbers[:, 1]
    rising = (np.diff(offsets, prepend=-1) > 0) & (np.diff(positions, prepend=0) > 0)
    count = _first_false(rising)
    return OffsetEntries(offsets[:count] + base, positions[:count])


def time_entries(log_path: str, base: int) -> TimeEntries:
    """Returns the ascending leading entries of a time index; none without the file."""
    data = _index_bytes(log_path, TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES)
    entries = np.frombuffer(data, np.dtype([("time", ">i8"), ("offset", ">i4")]))
    times, offsets = entries["time"].astype(np.int64), entries["offset"].astype(np.int64)
    rising = (np.diff(times, prepend=-1) > 0) & (np.diff(offsets, prepend=0) >= 0) & (times >= 0)
    count = _first_false(rising)
    return TimeEntries(times[:count], offsets[:count] + base)


def _index_bytes(log_path: str, suffix: str, entry_bytes: int) -> bytes:
    try:
        data = file_bytes(log_path.removesuffix(LOG_SUFFIX) + suffix)
    except Gone:
        return b""
    return data[: len(data) // entry_bytes * entry_bytes]


def _first_false(flags: np.ndarray) -> int:
    return len(flags) if flags.all() else int(np.argmin(flags))


# -- checks against the log


def confirmed(file: LogFile, offset: int, position: int, base: int) -> Mark | None:
    """Returns the log entry of an offset index entry, or None if the index entry is wrong.

    For batches that were appended or cleaned together, Kafka up to 3.8 indexes the last offset of the group with the
    position of its first batch.
    """
    header = file.header(position)
    if header is None or not base <= header.base_offset <= header.last_offset <= offset:
        return None
    if not file.is_whole(position, header):
        return None
    mark = mark_of(position, header)
    if mark.last_offset < offset:
        for table in Hops(file, position):
            reached = np.flatnonzero(table.last_offsets >= offset)
            if reached.size:
                return mark if int(table.last_offsets[reached[0]]) == offset else None
            if table.positions[-1] > position + _GROUP_BYTES:
                break
        return None
    return mark


def floor(file: LogFile, base: int, offset: int, entries: OffsetEntries | None = None) -> Mark | None:
    """Returns the last confirmed log entry at or below an offset by the offset index, or None: then the segment must be
    read from its start."""
    entries = offset_entries(file.path, base) if entries is None else entries
    number = int(np.searchsorted(entries.offsets, offset, "right")) - 1
    return _first_confirmed(file, base, entries, range(number, max(number - _TRIED, -1), -1))


def _first_confirmed(file: LogFile, base: int, entries: OffsetEntries, numbers: Iterable[int]) -> Mark | None:
    """Returns the log entry of the first of these index entries that the log confirms, or None."""
    for number in numbers:
        mark = confirmed(file, int(entries.offsets[number]), int(entries.positions[number]), base)
        if mark is not None:
            return mark
    return None


def before(file: LogFile, base: int, offset: int, known: Mark | None = None) -> Mark | None:
    """Returns the last log entry that ends below an offset, or None. `known` is an entry known to end below it. Reads
    headers from the nearest indexed entry, or from `known`."""
    found = floor(file, base, offset - 1)
    if known is not None and known.last_offset < offset and (found is None or known.position > found.position):
        found = known
    for table in Hops(file, found.position if found is not None else 0):
        below = int(np.searchsorted(table.last_offsets, offset))
        if below:
            found = mark_at(table, below - 1)
        if below < len(table):
            break
    return found


def at_or_after(file: LogFile, base: int, position: int, start: Mark | None, entries: OffsetEntries) -> Mark | None:
    """Returns a log entry at a position or a little after it, by the offset index, else by reading headers from
    `start`."""
    number = int(np.searchsorted(entries.positions, position))
    tried = range(number, min(number + _TRIED, len(entries.positions)))
    if (mark := _first_confirmed(file, base, entries, tried)) is not None:
        return mark
    for table in Hops(file, start.position if start is not None else 0):
        reached = int(np.searchsorted(table.positions, position))
        if reached < len(table):
            return mark_at(table, reached)
    return None


def after_damage(file: LogFile, base: int, position: int) -> Mark | None:
    """Returns the next indexed log entry after a damaged position, or None."""
    return within(file, base, position, file.size(), offset_entries(file.path, base))


def within(file: LogFile, base: int, begin: int, end: int, entries: OffsetEntries) -> Mark | None:
    """Returns the first indexed log entry between two positions, both exclusive, or None."""
    first, last = np.searchsorted(entries.positions, begin, "right"), np.searchsorted(entries.positions, end)
    return _first_confirmed(file, base, entries, range(int(first), int(last)))


def mark_at(table: Table, index: int) -> Mark:
    return Mark(
        int(table.positions[index]),
        int(table.sizes[index]),
        int(table.base_offsets[index]),
        int(table.last_offsets[index]),
        int(table.crcs[index]),
    )


# -- timestamps


def largest_time(file: LogFile, base: int) -> int | None:
    """Returns an upper bound of the timestamps of a segment's records in ms (-1 if none has a timestamp), or None if it
    is unknown.

    The last time index entry is trusted if the log confirms it; after that position headers are read, since the time
    index may have lost entries that the offset index has.
    """
    times = time_entries(file.path, base)
    largest, start = -1, 0
    if len(times.times):
        largest = int(times.times[-1])
        place = _place_of(file, base, int(times.offsets[-1]), largest, offset_entries(file.path, base))
        if place is None:
            return None
        start = place
    if file.size() - start > _TAIL_BYTES:
        return None
    hops = Hops(file, start)
    for table in hops:
        largest = max(largest, int(table.latest_times().max()))
    return None if hops.stop.problem is not None else largest


def earlier_up_to(file: LogFile, base: int, time_ms: int) -> int | None:
    """Returns an offset up to which (inclusive) all records are earlier than the timestamp, by the time index."""
    times = time_entries(file.path, base)
    number = int(np.searchsorted(times.times, time_ms)) - 1
    if number < 0:
        return None
    offset = int(times.offsets[number])
    entries = offset_entries(file.path, base)
    return offset if _place_of(file, base, offset, int(times.times[number]), entries) is not None else None


def _place_of(file: LogFile, base: int, offset: int, time_ms: int, entries: OffsetEntries) -> int | None:
    """Returns the position of the log entry with this offset if that entry has this largest timestamp, or None."""
    start = floor(file, base, offset, entries)
    for table in Hops(file, start.position if start is not None else 0):
        reached = int(np.searchsorted(table.last_offsets, offset))
        if reached < len(table):
            is_there = bool(table.first_offsets(-1)[reached] <= offset)
            is_true = is_there and int(table.max_timestamps[reached]) == time_ms
            return int(table.positions[reached]) if is_true else None
    return None
