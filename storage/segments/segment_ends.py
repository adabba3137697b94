"""Detects whether a segment before the last one lost its end, by its indexes and a few headers."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..errors import StorageError
from ..format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ..io.files import Files
from .segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment

_ENTRY = struct.Struct(">ii")  # of an offset index
_TIME_ENTRY = struct.Struct(">qi")


def is_short(files: Files, segments: Sequence[Segment], number: int, has_gaps: bool) -> bool:
    """Returns whether a segment ends within an entry, or earlier than it once did: below the base of the next one or,
    if offsets may be missing, below an offset in one of its indexes. Raises OSError."""
    segment = segments[number]
    offset_entry = _last_entry(files, segment.path(INDEX_SUFFIX), OFFSET_ENTRY_BYTES)
    relative_offset, position = _ENTRY.unpack(offset_entry) if offset_entry else (-1, 0)
    reached = relative_offset
    if time_entry := _last_entry(files, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY_BYTES):
        reached = max(reached, _TIME_ENTRY.unpack(time_entry)[1])
    end_offset = segment.base_offset
    try:
        is_true = relative_offset >= 0 and position >= 0 and segment.points_at(position, relative_offset)
        for _, _, last_offset in segment.walk(position if is_true else 0):
            end_offset = last_offset + 1
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        return True
    finally:
        segment.close()
    return end_offset < (segment.base_offset + reached + 1 if has_gaps else segments[number + 1].base_offset)


def _last_entry(files: Files, path: str, entry_bytes: int) -> bytes:
    """Returns the last entry of an index file; empty if there is none."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return b""
    try:
        size = file.size() // entry_bytes * entry_bytes
        return bytes(file.read(size - entry_bytes, entry_bytes)) if size else b""
    finally:
        file.close()
