"""Finding offsets and times in a segment: the two sparse index files, each entry a hint that the log has to confirm.

Owns how far an index is believed. An entry of the offset index counts if a whole entry of the log with a CRC that
matches lies at its position, and ends with its offset; a time only if the log's entry has it. A file may be missing,
cut, one that a broker has not written yet, or one with zeros behind its entries: then the headers are read instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....protocol.records.batch import BatchHeader
from ....storage.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ....storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from ...backend import ReadError
from .headers import Int64s, Table
from .windows import Hops, LogFile

_TRIED = 4  # so many entries of an index are tried before it is given up
_GROUP_BYTES = 8 << 20  # entries that were noted together lie within so many bytes
_TAIL_BYTES = 16 << 20  # behind the last entry of the time index; if there is more, no largest time is told

_NO_ENTRIES = np.empty(0, np.int64)


class Mark(NamedTuple):
    """An entry of a log that is known: where it lies, and that of its header by which it is known again."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.size


class OffsetEntries(NamedTuple):
    """Offsets and positions, both rising."""

    offsets: Int64s
    positions: Int64s


class TimeEntries(NamedTuple):
    """Times in ms, rising, and the offsets that brought them."""

    times: Int64s
    offsets: Int64s


def mark_of(position: int, header: BatchHeader) -> Mark:
    """The entry of this header."""
    return Mark(position, header.size_bytes, header.base_offset, header.last_offset, header.crc)


def is_still(file: LogFile, mark: Mark) -> bool:
    """Whether the entry lies there in this file: then all that lies before it has lower offsets."""
    header = file.header(mark.position)
    return header is not None and mark_of(mark.position, header) == mark


# -- what the files say


def offset_entries(log_path: str, base: int) -> OffsetEntries:
    """The entries of an offset index, as far as they rise; none if there is no such file."""
    data = _index_bytes(log_path, INDEX_SUFFIX, OFFSET_ENTRY_BYTES)
    numbers = np.frombuffer(data, ">i4").reshape(-1, 2).astype(np.int64)
    offsets, positions = numbers[:, 0], numbers[:, 1]
    rising = (np.diff(offsets, prepend=-1) > 0) & (np.diff(positions, prepend=0) > 0)
    count = _first_false(rising)
    return OffsetEntries(offsets[:count] + base, positions[:count])


def time_entries(log_path: str, base: int) -> TimeEntries:
    """The entries of a time index, as far as they rise; none if there is no such file."""
    data = _index_bytes(log_path, TIME_INDEX_SUFFIX, TIME_ENTRY_BYTES)
    entries = np.frombuffer(data, np.dtype([("time", ">i8"), ("offset", ">i4")]))
    times, offsets = entries["time"].astype(np.int64), entries["offset"].astype(np.int64)
    rising = (np.diff(times, prepend=-1) > 0) & (np.diff(offsets, prepend=0) >= 0) & (times >= 0)
    count = _first_false(rising)
    return TimeEntries(times[:count], offsets[:count] + base)


def _index_bytes(log_path: str, suffix: str, entry_bytes: int) -> bytes:
    path = log_path.removesuffix(LOG_SUFFIX) + suffix
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ReadError(f"cannot read {path}: {error.strerror}") from error
    return data[: len(data) // entry_bytes * entry_bytes]


def _first_false(flags: np.ndarray) -> int:
    return len(flags) if flags.all() else int(np.argmin(flags))


# -- what the log confirms


def confirmed(file: LogFile, offset: int, position: int, base: int) -> Mark | None:
    """The entry of the log that an entry of the offset index speaks of; None if it is not true.

    Of entries that were appended or cleaned together Kafka up to 3.8 notes the offset of the last beside the position
    of the first.
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
    """An entry that begins at or below the offset, by the offset index: the last one that it knows of. None if it knows
    of none: then the segment is to be read from its start."""
    entries = offset_entries(file.path, base) if entries is None else entries
    number = int(np.searchsorted(entries.offsets, offset, "right")) - 1
    for candidate in range(number, max(number - _TRIED, -1), -1):
        mark = confirmed(file, int(entries.offsets[candidate]), int(entries.positions[candidate]), base)
        if mark is not None:
            return mark
    return None


def before(file: LogFile, base: int, offset: int, known: Mark | None = None) -> Mark | None:
    """The last entry that ends below the offset; None if there is none. `known`: an entry that is known to.

    Headers are read from the nearest entry on that an index, or `known`, tells of.
    """
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


def behind_position(file: LogFile, base: int, position: int, start: Mark | None, entries: OffsetEntries) -> Mark | None:
    """An entry at a position or a little behind it, by the offset index, else by reading headers from `start` on."""
    number = int(np.searchsorted(entries.positions, position))
    for candidate in range(number, min(number + _TRIED, len(entries.positions))):
        mark = confirmed(file, int(entries.offsets[candidate]), int(entries.positions[candidate]), base)
        if mark is not None:
            return mark
    for table in Hops(file, start.position if start is not None else 0):
        reached = int(np.searchsorted(table.positions, position))
        if reached < len(table):
            return mark_at(table, reached)
    return None


def behind_damage(file: LogFile, base: int, position: int) -> Mark | None:
    """The next entry that the offset index knows of, behind a position at which none begins; None if there is none."""
    entries = offset_entries(file.path, base)
    for number in range(int(np.searchsorted(entries.positions, position, "right")), len(entries.positions)):
        mark = confirmed(file, int(entries.offsets[number]), int(entries.positions[number]), base)
        if mark is not None:
            return mark
    return None


def mark_at(table: Table, index: int) -> Mark:
    """An entry of a table."""
    return Mark(
        int(table.positions[index]),
        int(table.sizes[index]),
        int(table.base_offsets[index]),
        int(table.last_offsets[index]),
        int(table.crcs[index]),
    )


# -- times


def largest_time(file: LogFile, base: int) -> int | None:
    """No record of the segment is later than this (ms; -1 where none has a time); None if that is not known.

    The time index is believed if the log has what its last entry says, up to where that entry is from; behind that
    headers are read, for it may have lost entries that the other index has.
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
    """An offset up to which, itself included, all records are earlier than the time, by the time index; None if it
    knows of none."""
    times = time_entries(file.path, base)
    number = int(np.searchsorted(times.times, time_ms)) - 1
    if number < 0:
        return None
    offset = int(times.offsets[number])
    entries = offset_entries(file.path, base)
    return offset if _place_of(file, base, offset, int(times.times[number]), entries) is not None else None


def _place_of(file: LogFile, base: int, offset: int, time_ms: int, entries: OffsetEntries) -> int | None:
    """The position of the entry that holds the offset, if it has this as its largest time."""
    start = floor(file, base, offset, entries)
    for table in Hops(file, start.position if start is not None else 0):
        reached = int(np.searchsorted(table.last_offsets, offset))
        if reached < len(table):
            is_there = bool(table.first_offsets(-1)[reached] <= offset)
            is_true = is_there and int(table.max_timestamps[reached]) == time_ms
            return int(table.positions[reached]) if is_true else None
    return None
