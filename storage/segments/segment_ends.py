"""Detects whether a segment before the last one lost its end, by its indexes and a few headers."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

from ..errors import StorageError
from ..format.index import OFFSET_ENTRY, TIME_ENTRY
from ..io.files import Files
from .segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment


def is_short(files: Files, segments: Sequence[Segment], number: int, has_gaps: bool) -> bool:
    """Returns whether a segment ends within an entry, or earlier than it once did: below the base of the next one or,
    if offsets may be missing, below an offset in one of its indexes. Raises OSError."""
    segment = segments[number]
    relative_offset, position = _last_entry(files, segment.path(INDEX_SUFFIX), OFFSET_ENTRY) or (-1, 0)
    _, timed_offset = _last_entry(files, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY) or (-1, -1)
    reached = max(relative_offset, timed_offset)
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


def _last_entry(files: Files, path: str, entry: struct.Struct) -> tuple[int, int] | None:
    """Returns the last entry of an index file, or None."""
    with contextlib.suppress(FileNotFoundError), contextlib.closing(files.open(path)) as file:
        if count := file.size() // entry.size:
            return entry.unpack(file.read((count - 1) * entry.size, entry.size))
    return None
