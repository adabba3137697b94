"""A circular buffer in memory that two processes share: one appends bytes, the other reads them.

Owns the memory, and how much of it is free. When all has been read what comes next goes to the beginning again, so that
traffic with pauses stays in few pages: a page that is new to a process costs many times what copying to it does. The
two tell each other where they are in cells of 8 bytes before the data; how far the reader may read it is told in
another way (a pipe), which orders what one process writes and the other sees.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from typing import Any

LENGTH = struct.Struct("<I")  # before each note
_CELLS_BYTES = mmap.PAGESIZE
_WRITTEN, _READ, _LEFT_AT, _LEFT_TO = range(4)  # positions: bytes since the beginning, those passed over among them
_KEPT_BYTES = 1 << 20  # so much is used before the beginning is used again


def _memory(size: int) -> int:
    """The descriptor of so much memory, of which nothing is taken until it is used. Raises OSError."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("ottla-recording")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        raise
    return fd


class _Shared:
    """The memory as one process sees it. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 0)
        self._whole = memoryview(self._map)
        self._cells = self._whole[:_CELLS_BYTES].cast("Q")
        self._data = self._whole[_CELLS_BYTES:]
        self._size = len(self._data)

    def close(self) -> None:
        """Gives the memory back. No note may be held any more."""
        for view in (self._data, self._cells, self._whole):
            view.release()
        self._map.close()


class SharedWriter(_Shared):
    """Who appends. `fd` is for the reader; `position` is how far it may read now. Raises OSError."""

    def __init__(self, size: int) -> None:
        self.fd = _memory(_CELLS_BYTES + size)
        super().__init__(self.fd)
        self.position = 0
        self._free_from = 0  # where the beginning was last returned to

    @property
    def waiting_bytes(self) -> int:
        """How much has not been read."""
        return self.position - max(self._cells[_READ], self._free_from)

    @property
    def free_bytes(self) -> int:
        """How much may be put; the reader makes it more."""
        return self._size - self.waiting_bytes

    def put(self, *pieces: Any) -> None:
        """Appends bytes, for which there has to be room."""
        cells, data, size = self._cells, self._data, self._size
        position = self.position
        offset = position % size
        if offset > _KEPT_BYTES and cells[_READ] == position:
            cells[_LEFT_TO] = self._free_from = position + size - offset
            cells[_LEFT_AT] = position
            position, offset = self._free_from, 0
        for piece in pieces:
            length = len(piece)
            end = offset + length
            if end < size:
                data[offset:end] = piece
                offset = end
            else:
                rest = size - offset
                with memoryview(piece) as view:
                    data[offset:] = view[:rest]
                    offset = length - rest
                    data[:offset] = view[rest:]
            position += length
        self.position = cells[_WRITTEN] = position

    def close(self) -> None:
        super().close()
        os.close(self.fd)


class SharedReader(_Shared):
    """Who reads."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._position = 0

    def notes(self, position: int) -> Iterator[memoryview]:
        """What lies before a position, in notes, each after 4 bytes that say how long it is; valid until the next is
        asked for."""
        cells = self._cells
        at = self._position
        while at < position:
            if at == cells[_LEFT_AT] and at < cells[_LEFT_TO]:
                at = cells[_LEFT_TO]
            with self._piece(at, LENGTH.size) as head:
                (length,) = LENGTH.unpack(head)
            at += LENGTH.size
            with self._piece(at, length) as note:
                yield note
            at += length
            self._position = cells[_READ] = at

    def _piece(self, position: int, length: int) -> memoryview:
        """Where it lies, or a copy if its end is at the beginning of the memory."""
        offset = position % self._size
        end = offset + length
        if end <= self._size:
            return self._data[offset:end]
        return memoryview(b"".join((self._data[offset:], self._data[: end - self._size])))

    @property
    def written(self) -> int:
        """How far the other has written; only to be believed when it writes no more."""
        return self._cells[_WRITTEN]
