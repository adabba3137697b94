"""Checks whether one entry of a log is valid at its position, and finds the sound entries after a damaged stretch: the
rules that verify, repair and recovery share.

Checks what a recovery checks, and also the leader epoch, which lies outside the CRC, and the number of records. If no
header leads to the next entry, an entry begins wherever offset, size, magic and CRC agree. Only the `.log` file is
considered, and only read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ...protocol.named import NamedTuple
from ...protocol.records import formats
from ...protocol.records.batch import HEADER_BYTES, MAX_DECOMPRESSED_BYTES, BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from .. import inspect
from ..errors import StorageError
from ..format.index import MAX_RELATIVE_OFFSET

CRC, WRAPPER, OFFSET, TOO_FAR = "crc", "wrapper", "offset", "too far"
OVERLAP, COUNT, GAP, EPOCH = "overlap", "count", "gap", "epoch"

_SIZES = rb"(?:\x00\x00\x00[\x0e-\xff]|\x00\x00[\x01-\xff].|\x00[\x01-\xff]..|[\x01-\x7f]...)"
# A search gives up when the candidates had this many bytes in total: garbage may consist of nothing else.
_SEARCH_BYTES, _SEARCH_FACTOR = 1 << 30, 8
_OVERLAP_BYTES = 16  # offset, size, four more; the next byte is the magic


class Place(NamedTuple):
    """The position of an entry: `expected` is the next offset, `next_base` the base offset of the next segment, None in
    the last, `epoch` the latest leader epoch before it, 0 if unknown."""

    base_offset: int
    next_base: int | None
    expected: int
    epoch: int


def entry_problem(found: inspect.BatchFacts, place: Place) -> tuple[str, str] | None:
    """Returns the fault of an entry, as its kind and in words, or None. A GAP is a fault only in a log that is not
    compacted."""
    header, expected = found.header, place.expected
    first = found.first_offset if found.is_wrapper else header.base_offset
    if not found.crc_ok:
        return CRC, f"CRC {header.crc:#010x} does not match what it covers, {found.size_bytes} bytes"
    if found.problem is not None:
        return WRAPPER, f"a compressed message that cannot be opened: {found.problem}"
    if header.last_offset < expected or 0 <= first < expected or header.last_offset_delta < 0:
        return OFFSET, f"offsets {header.base_offset}-{header.last_offset} where {expected} is next"
    if header.last_offset - place.base_offset > MAX_RELATIVE_OFFSET:
        return TOO_FAR, f"last offset {header.last_offset} is too far from the segment's base"
    if place.next_base is not None and header.last_offset >= place.next_base:
        what = f"last offset {header.last_offset} lies in the next segment, which begins at {place.next_base}"
        return OVERLAP, what
    if header.magic == 2 and not 0 <= header.record_count <= header.last_offset_delta + 1:
        return COUNT, f"{header.record_count} records in offsets {header.base_offset}-{header.last_offset}"
    if first > expected:
        return GAP, f"offsets {expected}-{first - 1} are missing before it"
    return epoch_problem(header, place.epoch)


def epoch_problem(header: BatchHeader, epoch: int) -> tuple[str, str] | None:
    """Returns a fault if its leader epoch is lower than an earlier one, or None."""
    # A batch converted from old messages has epoch -1 at any position.
    if header.magic == 2 and header.partition_leader_epoch != -1 and header.partition_leader_epoch < epoch:
        return EPOCH, f"leader epoch {header.partition_leader_epoch} does not follow those before it"
    return None


def record_problem(source: inspect.Source, found: inspect.BatchFacts, path: str, gaps: bool) -> str | None:
    """Decodes an entry and compares number, offsets and latest timestamp of its records with its header. Raises
    StorageError.

    `gaps`: records may have been removed by compaction.
    """
    header, count, first, last = found.header, 0, -1, -1
    largest_ms, what = -1, None
    try:
        if found.size_bytes > inspect.ENTRY_BYTES_MAX:
            raise InvalidRecords(f"{found.size_bytes} bytes are not opened")
        data = source.read(found.position, found.size_bytes)
        for record in formats.records(data, 0, max_bytes=MAX_DECOMPRESSED_BYTES):
            first = record.offset if not count else first
            count += 1
            if record.offset <= last:
                what = what or f"record offset {record.offset} after {last}"
            last = record.offset
            largest_ms = max(largest_ms, record.timestamp)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        return what or f"its records cannot be read: {error}"
    except OSError as error:
        raise StorageError(f"cannot read {os.path.basename(path)}: {error.strerror}") from error
    return what or _against_header(header, count, (first, last), largest_ms, gaps)


def _against_header(
    header: BatchHeader, count: int, offsets: tuple[int, int], largest_ms: int, gaps: bool
) -> str | None:
    first, last = offsets
    if 0 <= header.record_count != count:
        return f"{count} records where its header has {header.record_count}"
    if last > header.last_offset or (count and last < header.last_offset and not gaps):
        return f"its last record has offset {last}, by its header {header.last_offset}"
    if header.magic == 2 and count and (first < header.base_offset or (first > header.base_offset and not gaps)):
        return f"its first record has offset {first}, by its header {header.base_offset}"
    is_create_time = header.magic > 0 and not header.attributes & 8
    if header.magic == 2 and count and is_create_time and largest_ms != header.max_timestamp and not gaps:
        return f"its latest record is of {largest_ms}, by its header of {header.max_timestamp}"
    return None


# -- after damage


def sound_entries(source: inspect.Source, start: int, place: Place) -> Iterator[inspect.BatchFacts]:
    """Yields each sound entry that begins at or after a position and may come next in the log; they may overlap."""
    place = place._replace(epoch=0)
    if start < source.size and (first := sound_at(source, start, place)) is not None:
        yield first
    # All offsets that a segment can hold begin with one of two runs of four bytes.
    tops = {(offset >> 32).to_bytes(4, "big") for offset in (place.expected, place.base_offset + MAX_RELATIVE_OFFSET)}
    pattern = re.compile(b"(?s)(?=(?:" + b"|".join(map(re.escape, tops)) + b")...." + _SIZES + b"....[\x00-\x02])")
    at, work_left = start, _SEARCH_BYTES + _SEARCH_FACTOR * source.size
    while at < source.size:
        window = source.read(at, inspect.WINDOW_BYTES)
        if not window:
            return
        for match in pattern.finditer(window) if window.count(0) < len(window) else ():
            size = _claimed_size(source, at + match.start(), place)
            work_left -= size
            if work_left < 0:
                return
            if size and (found := sound_at(source, at + match.start(), place)) is not None:
                yield found
        at += max(len(window) - _OVERLAP_BYTES, 1)


def run_of_sound_entries(source: inspect.Source, start: int, place: Place) -> Iterator[inspect.BatchFacts]:
    """Yields the sound entries at or after a position, without overlaps, past every damaged stretch."""
    position, place = start, place._replace(epoch=0)
    while position < source.size:
        found = sound_at(source, position, place) or next(sound_entries(source, position + 1, place), None)
        if found is None:
            return
        yield found
        position = found.position + found.size_bytes
        place = place._replace(expected=found.last_offset + 1)


def _claimed_size(source: inspect.Source, position: int, place: Place) -> int:
    """Returns the size of a possible entry, by its header alone; 0 if it is none."""
    try:
        header = formats.read_header(source.read(position, HEADER_BYTES), whole=False)
    except CorruptRecords:
        return 0
    fits = place.expected <= header.last_offset and header.last_offset_delta >= 0
    fits = fits and header.last_offset < (place.next_base or header.last_offset + 1)
    size = header.size_bytes
    return size if fits and size <= min(source.size - position, inspect.ENTRY_BYTES_MAX) else 0


def sound_at(source: inspect.Source, position: int, place: Place) -> inspect.BatchFacts | None:
    """Returns the entry at a position if it is sound and may be there, with or without missing offsets before it."""
    size = _claimed_size(source, position, place)
    if size == 0:
        return None
    found = inspect.entry_at(inspect.BytesSource(source.read(position, size)), 0, open_wrappers=True)
    if isinstance(found, inspect.Damage):
        return None
    problem = entry_problem(found, place)
    return found._replace(position=position) if problem is None or problem[0] == GAP else None
