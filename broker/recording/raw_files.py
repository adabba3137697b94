"""The way of raw events from the broker's loop to the disk: a queue in memory, and the files beside the recording.

Memory and files are used again where that is possible: pages that are used for the first time cost more than the copy.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator

from ..config.record_options import FORMER, RecordOptions
from .raw_events import RawReader

RAW = ".raw"  # after the name of the recording
_CHUNK_BYTES = 1 << 20
_FREE_CHUNKS = 16


def append(fd: int, data: bytes | memoryview) -> None:
    """Appends bytes to a file: all of them, or none. Raises OSError."""
    start = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        rest = memoryview(data)
        while rest:  # a disk that is getting full writes less, and raises the error at the next call
            rest = rest[os.write(fd, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, start)
            os.lseek(fd, start, os.SEEK_SET)
        raise


class _Chunk:
    """Memory that the queue fills and the writer empties."""

    __slots__ = ("begins_file", "data", "filled", "is_closed", "written")

    def __init__(self, data: memoryview, begins_file: bool) -> None:
        self.data = data
        self.filled = self.written = 0
        self.is_closed = False
        self.begins_file = begins_file


class Queue:
    """Bytes from the broker's loop to the thread that writes them. Each side changes its own counts, so there is no
    lock; the limit is for the loop to keep."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []  # the one that was used last is used first: it is in the processor's cache
        self._chunk = _Chunk(memoryview(bytearray(_CHUNK_BYTES)), False)
        self._chunks = deque([self._chunk])
        self.put_bytes = 0
        self.taken_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """The bytes that were not taken yet."""
        return self.put_bytes - self.taken_bytes

    def put(self, data: bytes) -> None:
        """Appends bytes."""
        chunk, size = self._chunk, len(data)
        end = chunk.filled + size
        if end <= _CHUNK_BYTES:
            chunk.data[chunk.filled : end] = data
            chunk.filled = end
        else:
            rest = memoryview(data)
            while rest:
                room = _CHUNK_BYTES - chunk.filled
                part, rest = rest[:room], rest[room:]
                chunk.data[chunk.filled : chunk.filled + len(part)] = part
                chunk.filled += len(part)
                if rest:
                    chunk = self._next_chunk(False)
        self.put_bytes += size

    def turn(self) -> None:
        """Has what is put from now on begin another file."""
        self._next_chunk(True)

    def _next_chunk(self, begins_file: bool) -> _Chunk:
        data = self._free.pop() if self._free else memoryview(bytearray(_CHUNK_BYTES))
        self._chunk.is_closed = True
        chunk = self._chunk = _Chunk(data, begins_file)
        self._chunks.append(chunk)
        return chunk

    def take(self) -> Iterator[tuple[memoryview, bool]]:
        """All that was put, in pieces, with whether a piece begins another file. A piece is taken when the next is
        asked for."""
        while True:
            chunk = self._chunks[0]
            is_closed, end = chunk.is_closed, chunk.filled
            if chunk.begins_file or end > chunk.written:
                begins_file, chunk.begins_file = chunk.begins_file, False
                yield chunk.data[chunk.written : end], begins_file
                self.taken_bytes += end - chunk.written
                chunk.written = end
            if not is_closed:
                return
            self._chunks.popleft()
            if len(self._free) < _FREE_CHUNKS:
                self._free.append(chunk.data)


class RawFiles:
    """The raw files beside a recording: one, or two for a ring, oldest first. Raises OSError.

    They have no name where the recording leaves out contents, so that none outlive the broker.
    """

    def __init__(self, options: RecordOptions, mode: int) -> None:
        self._path = options.path + RAW
        self._has_name = options.contents
        self._mode = mode
        self._files: deque[tuple[int, RawReader]] = deque()
        self.converted_bytes = 0
        self.remove()
        self.begin()

    def begin(self) -> None:
        """Begins another file; of two earlier ones the older is removed."""
        while len(self._files) > 1:
            self._drop_oldest()
        if self._files and self._has_name:
            os.replace(self._path, self._path + FORMER)
        if self._has_name:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self._mode)
        else:
            with tempfile.TemporaryFile(dir=os.path.dirname(self._path) or os.curdir) as file:
                fd = os.dup(file.fileno())
        self._files.append((fd, RawReader(fd)))

    def _drop_oldest(self) -> None:
        fd, reader = self._files.popleft()
        self.converted_bytes += os.fstat(fd).st_size - reader.position
        os.close(fd)

    def write(self, data: bytes | memoryview) -> None:
        """Appends to the newest file: all of it, or nothing."""
        append(self._files[-1][0], data)

    def read(self) -> bytes | None:
        """The next event that is to be converted; None where there is none."""
        while True:
            reader = self._files[0][1]
            before = reader.position
            event = reader.read()
            self.converted_bytes += reader.position - before
            if event is not None or len(self._files) == 1:
                return event
            self._drop_oldest()

    def remove(self) -> None:
        """Closes and removes all files."""
        for fd, _ in self._files:
            os.close(fd)
        self._files.clear()
        for path in (self._path, self._path + FORMER) if self._has_name else ():
            with contextlib.suppress(OSError):
                os.remove(path)
