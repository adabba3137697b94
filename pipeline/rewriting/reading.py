"""Logs as they are read for work in place: through `Files`, in windows that the columns are made of.

Owns the windows, and what of a log goes which way on its way to v2: see columnar/upgrading.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.records import formats
from ...protocol.records.batch import BatchHeader
from ...storage.files import MAP_BYTES, File, Files
from ...storage.rewrite import Read, Run
from ...storage.stream import entries
from ..columnar.upgrading import PADDING, upgraded
from ..logs.headers import walk

WINDOW_BYTES = 2 << 20
"""Enough for the array operations of a window to vanish among its entries."""

_PIECE_BYTES = MAP_BYTES - 4096  # more is given as a mapping, which counts as memory as far as it was read


def window(file: File, position: int, length: int) -> bytes:
    """So many bytes of a file, and `PADDING`. OSError."""
    pieces = [file.read(position + at, min(_PIECE_BYTES, length - at)) for at in range(0, length, _PIECE_BYTES)]
    return b"".join((*pieces, PADDING))


def upgrading(next_offset: int, end_offset: int, window_bytes: int = WINDOW_BYTES) -> Read:
    """How a log whose offsets lie from `next_offset` on, below `end_offset`, is read to become v2."""

    def read(files: Files, log_path: str, size_bytes: int) -> Iterator[tuple[memoryview, BatchHeader] | Run]:
        expected, position = next_offset, 0
        if size_bytes == 0:
            return
        file = files.open(log_path)
        try:
            while position < size_bytes:
                data = window(file, position, min(window_bytes, size_bytes - position))
                found = walk(data, 0, len(data) - len(PADDING))
                if not found.positions:  # larger than a window, or damaged, which is told there
                    entry, header = next(entries(files, log_path, size_bytes, start=position))
                    yield entry, header
                    expected = max(expected, header.next_offset)
                    position += len(entry)
                    continue
                view = memoryview(data)
                for made in upgraded(data, [*found.positions, found.end], next_offset=expected, end_offset=end_offset):
                    if isinstance(made, Run):
                        yield made
                        expected = made.last_offsets[-1] + 1
                    else:
                        entry = view[made.position : made.position + made.size]
                        header = formats.read_header(entry)
                        yield entry, header
                        expected = max(expected, header.next_offset)
                position += found.end
        finally:
            file.close()

    return read
