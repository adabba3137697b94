"""Finds the sound entries after a damaged stretch of a segment.

If no header leads to the next entry, an entry begins wherever offset, size, magic and CRC agree. Reads only; repair and
recovery decide what to do with the entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...protocol.records import formats
from ...protocol.records.batch import HEADER_BYTES
from ...protocol.records.errors import CorruptRecords
from .. import inspect
from ..format.index import MAX_RELATIVE_OFFSET
from .entry_check import GAP, Place, entry_problem

_SIZES = rb"(?:\x00\x00\x00[\x0e-\xff]|\x00\x00[\x01-\xff].|\x00[\x01-\xff]..|[\x01-\x7f]...)"
# A search gives up when the candidates had this many bytes in total: garbage may consist of nothing else.
_SEARCH_BYTES, _SEARCH_FACTOR = 1 << 30, 8
_OVERLAP_BYTES = 16  # offset, size, four more; the next byte is the magic


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
