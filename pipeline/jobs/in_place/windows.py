"""Reads logs for work in place: through `Files`, in windows from which columns are built.

Owns the windows, and the choice between fast and slow path on the way to v2: see readers/columnar/upgrade.py.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import numpy as np

from ....protocol.records import formats
from ....protocol.records.batch import HEADER_BYTES, BatchHeader
from ....protocol.records.layout import MAGIC_AT
from ....storage.compaction.rewrite import Read, Run
from ....storage.io.files import MAP_BYTES, File, Files
from ....storage.segments.scan import entries
from ...readers.columnar.upgrade import PADDING, upgraded
from ...readers.files.headers import walk

WINDOW_BYTES = 2 << 20
"""Large enough to amortise the array operations of a window over its entries."""

_SIZE = struct.Struct(">8xI")
_LEAST_BYTES = np.array([26, 34, HEADER_BYTES], np.int64)  # of a whole entry, by its format
_PIECE_BYTES = MAP_BYTES - 4096  # larger reads return a mapping, whose touched pages count as memory


def window(file: File, position: int, length: int) -> bytes:
    """Returns `length` bytes of a file, followed by `PADDING`. Raises OSError."""
    pieces = [file.read(position + at, min(_PIECE_BYTES, length - at)) for at in range(0, length, _PIECE_BYTES)]
    return b"".join((*pieces, PADDING))


def entry_places(data: bytes) -> list[int]:
    """Returns the starts of the whole entries of a window, and the end of the last one."""
    end = len(data) - len(PADDING)
    places: list[int] = []
    add, unpack, last, position = places.append, _SIZE.unpack_from, end - formats.MIN_ENTRY_BYTES, 0
    while position <= last:  # by the sizes alone; a negative one, read as unsigned, leads beyond the end
        add(position)
        position += 12 + unpack(data, position)[0]
    if position <= end:
        add(position)
    if len(places) > 1:
        at = np.array(places, np.int64)
        magics = np.frombuffer(data, np.uint8)[at[:-1] + MAGIC_AT]
        if magics.max() <= formats.NEWEST_MAGIC and (np.diff(at) >= _LEAST_BYTES[magics]).all():
            return places
    found = walk(data, 0, end)
    return [*found.positions, found.end]


def entry_windows(
    files: Files, log_path: str, size_bytes: int, window_bytes: int = WINDOW_BYTES
) -> Iterator[tuple[bytes, list[int]]]:
    """Yields the first bytes of a log in windows, with the starts of the entries and the end of the last one. Each
    window is followed by `PADDING`. An entry larger than a window comes alone. Raises OSError, and CorruptRecords if no
    whole entry follows."""
    if size_bytes == 0:
        return
    position = 0
    with contextlib.closing(files.open(log_path)) as file:
        while position < size_bytes:
            data = window(file, position, min(window_bytes, size_bytes - position))
            places = entry_places(data)
            if len(places) > 1:
                yield data, places
                position += places[-1]
            else:
                entry, _ = next(entries(files, log_path, size_bytes, start=position))
                yield b"".join((entry, PADDING)), [0, len(entry)]
                position += len(entry)


def upgrading(next_offset: int, end_offset: int, window_bytes: int = WINDOW_BYTES) -> Read:
    """Returns a reader that converts a log to v2; its offsets are from `next_offset` (inclusive) to `end_offset`
    (exclusive)."""

    def read(files: Files, log_path: str, size_bytes: int) -> Iterator[tuple[memoryview, BatchHeader] | Run]:
        expected = next_offset
        for data, places in entry_windows(files, log_path, size_bytes, window_bytes):
            view = memoryview(data)
            for made in upgraded(data, places, next_offset=expected, end_offset=end_offset):
                if isinstance(made, Run):
                    yield made
                    expected = made.last_offsets[-1] + 1
                else:
                    entry = view[made.position : made.position + made.size]
                    header = formats.read_header(entry)
                    yield entry, header
                    expected = max(expected, header.next_offset)

    return read
