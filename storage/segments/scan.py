"""Reads a segment from its beginning to its end, entry by entry, in little memory.

Reads the file in pieces. For work that goes once over a whole log: a mapping, which large reads of `files` use, counts
as memory of the process as far as it was read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ...protocol.records import batch, formats
from ...protocol.records.batch import HEADER_BYTES, BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...protocol.records.layout import LENGTH_AT, MAGIC_AT, PREFIX_BYTES
from ..io.files import MAP_BYTES, Files

_PIECE_BYTES = MAP_BYTES - 4096
# No topic should allow such batches: a size like that may be damage, for which no memory is allocated.
_MAPPED_BYTES = 16 * 1024 * 1024

OnRead = Callable[[int], None]
"""Called with the number of bytes read."""


def entries(
    files: Files, log_path: str, size_bytes: int, on_read: OnRead | None = None, *, start: int = 0
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yields the whole entries (batches, old messages) in the first `size_bytes` of a log, from the one at `start` on,
    with their headers.

    The yielded buffers stay valid. CRCs are not checked. Raises OSError, and CorruptRecords where no whole entry
    begins.
    """
    if size_bytes == 0:
        return
    with contextlib.closing(files.open(log_path)) as file:
        buffer, position, read = memoryview(b""), 0, start
        while True:
            left = len(buffer) - position
            size = HEADER_BYTES
            if left >= HEADER_BYTES or (left and read == size_bytes):
                header = None
                if left >= HEADER_BYTES and buffer[position + MAGIC_AT] == batch.MAGIC:
                    header = batch.read_header(buffer, position, whole=False)
                    size = PREFIX_BYTES + header.batch_length
                else:
                    size = _size(buffer, position)
                if size <= left:
                    yield buffer[position : position + size], header or formats.read_header(buffer, position)
                    position += size
                    continue
                if size > left + size_bytes - read:
                    raise CorruptRecords(f"an entry of {size} bytes where {left + size_bytes - read} are left")
                if size > _MAPPED_BYTES:
                    begin = read - left
                    entry = memoryview(file.read(begin, size))
                    yield entry, formats.read_header(entry)
                    buffer, position, read = memoryview(b""), 0, begin + size
                    if on_read is not None:
                        on_read(size - left)
                    continue
            elif left == 0 and read == size_bytes:
                return
            pieces: list[bytes | memoryview] = [buffer[position:]]
            while left < size and read < size_bytes:
                piece = file.read(read, min(_PIECE_BYTES, size_bytes - read))
                pieces.append(piece)
                left += len(piece)
                read += len(piece)
                if on_read is not None:
                    on_read(len(piece))
            buffer, position = memoryview(b"".join(pieces)), 0


def _size(buffer: memoryview, position: int) -> int:
    """Returns the size of the entry at a position, if its first bytes are plausible. Raises CorruptRecords."""
    if len(buffer) - position < PREFIX_BYTES:
        raise CorruptRecords(f"{len(buffer) - position} bytes where an entry begins")
    size = PREFIX_BYTES + int.from_bytes(buffer[position + LENGTH_AT : position + PREFIX_BYTES], "big", signed=True)
    if size < formats.MIN_ENTRY_BYTES:
        raise CorruptRecords(f"an entry of {size} bytes is smaller than any format allows")
    return size
