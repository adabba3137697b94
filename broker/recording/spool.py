"""What waits for the process that writes a recording: bytes that one process appends and the other reads, in memory
that both have, and beyond that in a file without a name.

Owns that memory and that file, in chunks, and which of them are free. The first chunks are memory, and taken before
others: copying to what was used before costs least of all. The others are written like a segment of a log, to the
system's cache, so that a large burst takes no memory that is needed elsewhere. What was read is written again, so that
no more is used than ever waited at once. The two processes tell each other where they are, and in which order chunks
were written, in cells of 8 bytes; how far the reader may read is told in another way (a pipe), which orders what one
writes and the other sees.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import IO, Any

LENGTH = struct.Struct("<I")  # before each note
_MEMORY_BYTES = 64 << 20
_CHUNK_BYTES = 4 << 20
_CELLS_BYTES = mmap.PAGESIZE
# Cells: two positions, in bytes since the beginning; the size and number of chunks, and how many of them are memory;
# then the places of the chunks that wait, in turns.
_WRITTEN, _READ, _SIZE, _COUNT, _IN_MEMORY, _CHUNKS = range(6)
_PIECES = 1000  # of one call; the system takes 1024


def write_all(fd: int, pieces: Sequence[Any], position: int) -> int:
    """Writes pieces one behind the other, whole; where they end. Raises OSError. A call may write less than it was
    given, as on a disk that is getting full: then the next one says why."""
    for first in range(0, len(pieces), _PIECES):
        some = pieces[first : first + _PIECES]
        size = sum(map(len, some))
        written = os.pwritev(fd, some, position)
        if written < size:
            with memoryview(b"".join(some)) as whole:
                while written < size:
                    written += os.pwrite(fd, whole[written:], position + written)
        position += size
    return position


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


def _nameless(folder: str) -> IO[bytes]:
    """A file on the disk of the recording, or where temporary ones are if that folder takes no more files."""
    try:
        return tempfile.TemporaryFile(dir=folder)
    except OSError:
        return tempfile.TemporaryFile()


class _Spool:
    """The memory as one process sees it. The descriptor stays the caller's."""

    def __init__(self, memory_fd: int) -> None:
        self._map = mmap.mmap(memory_fd, 0)
        self._whole = memoryview(self._map)
        self._cells = self._whole[:_CELLS_BYTES].cast("Q")
        self._memory = self._whole[_CELLS_BYTES:]

    def close(self) -> None:
        """Gives the memory back. No note may be held any more."""
        for view in (self._memory, self._cells, self._whole):
            view.release()
        self._map.close()


class SpoolWriter(_Spool):
    """Who appends, up to so many bytes. `fds`, of the memory and of the file, are for the reader; `position` is how far
    it may read now. Raises OSError."""

    def __init__(self, folder: str, size_max: int) -> None:
        size = self._chunk_bytes = min(_CHUNK_BYTES, size_max // 8)
        count = self._count = size_max // size
        in_memory = self._in_memory = min(count // 2, _MEMORY_BYTES // size)
        memory = _memory(_CELLS_BYTES + in_memory * size)
        try:
            with _nameless(folder) as file:
                os.ftruncate(file.fileno(), count * size)
                self.fds = memory, os.dup(file.fileno())
        except OSError:
            os.close(memory)
            raise
        super().__init__(memory)
        self._cells[_SIZE], self._cells[_COUNT], self._cells[_IN_MEMORY] = size, count, in_memory
        self.position = 0
        self._free = list(range(count))  # places; a heap
        self._begun = self._freed = 0  # chunks

    @property
    def waiting_bytes(self) -> int:
        """How much has not been read."""
        return self.position - self._cells[_READ]

    @property
    def free_bytes(self) -> int:
        """How much may be put; the reader makes it more."""
        return (self._cells[_READ] // self._chunk_bytes + self._count) * self._chunk_bytes - self.position

    def put(self, pieces: Sequence[Any]) -> None:
        """Appends bytes, for which there has to be room. Raises OSError; then nothing was appended."""
        position, room = self.position, 0
        place = start = 0
        parts: list[Any] = []  # of the file
        for piece in pieces:
            done, size = 0, len(piece)
            while done < size:
                if not room:
                    write_all(self.fds[1], parts, start)
                    parts = []
                    place, start, room = self._place(position)
                taken = min(room, size - done)
                part = piece if taken == size else memoryview(piece)[done : done + taken]
                if place < self._in_memory:
                    self._memory[start : start + taken] = part
                    start += taken
                else:
                    parts.append(part)
                done += taken
                room -= taken
                position += taken
        write_all(self.fds[1], parts, start)
        self.position = self._cells[_WRITTEN] = position

    def _place(self, position: int) -> tuple[int, int, int]:
        """The chunk in which this lies, where that is, and how much may be written there."""
        chunk, offset = divmod(position, self._chunk_bytes)
        if chunk == self._begun:
            freed = self._cells[_READ] // self._chunk_bytes
            for one in range(self._freed, freed):
                heappush(self._free, self._cells[_CHUNKS + one % self._count])
            self._freed = freed
            self._cells[_CHUNKS + chunk % self._count] = heappop(self._free)
            self._begun += 1
        place = self._cells[_CHUNKS + chunk % self._count]
        return place, place * self._chunk_bytes + offset, self._chunk_bytes - offset

    def close(self) -> None:
        super().close()
        for fd in self.fds:
            os.close(fd)


class SpoolReader(_Spool):
    """Who reads. Raises OSError."""

    def __init__(self, memory_fd: int, fd: int) -> None:
        super().__init__(memory_fd)
        self._chunk_bytes, self._count, self._in_memory = self._cells[_SIZE:_CHUNKS]
        self._file = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        self._written = memoryview(self._file)
        self._position = 0

    def notes(self, position: int) -> Iterator[memoryview]:
        """What begins before a position, in notes, each after 4 bytes that say how long it is; valid until the next is
        asked for."""
        at = self._position
        while at < position:
            with self._piece(at, LENGTH.size) as head:
                (length,) = LENGTH.unpack(head)
            at += LENGTH.size
            with self._piece(at, length) as note:
                yield note
            at += length
            self._position = self._cells[_READ] = at

    def _piece(self, position: int, length: int) -> memoryview:
        """Where it lies, or a copy if it lies in several chunks."""
        chunk, offset = divmod(position, self._chunk_bytes)
        if offset + length <= self._chunk_bytes:
            return self._part(chunk, offset, length)
        parts: list[memoryview] = []
        while length:
            size = min(length, self._chunk_bytes - offset)
            parts.append(self._part(chunk, offset, size))
            chunk, offset, length = chunk + 1, 0, length - size
        return memoryview(b"".join(parts))

    def _part(self, chunk: int, offset: int, length: int) -> memoryview:
        place = self._cells[_CHUNKS + chunk % self._count]
        start = place * self._chunk_bytes + offset
        return (self._memory if place < self._in_memory else self._written)[start : start + length]

    @property
    def written(self) -> int:
        """How far the other has written; only to be believed when it writes no more."""
        return self._cells[_WRITTEN]

    def close(self) -> None:
        self._written.release()
        self._file.close()
        super().close()
