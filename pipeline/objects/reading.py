"""Objects as files that libraries read by position: `ObjectReader`. Each read is a request for a range of bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator

from .files import ObjectFiles

TAIL_BYTES = 64 << 10
"""Read at once where the last bytes are wanted: the footers of most Parquet files."""

STREAM_BYTES = 8 << 20


class ObjectReader(io.RawIOBase):
    """An object open for reading. Memory: the bytes of one read, and the tail. Raises OSError."""

    def __init__(self, files: ObjectFiles, path: str, size_bytes: int | None = None) -> None:
        self._files, self._path = files, path
        self._size = files.size(path) if size_bytes is None else size_bytes
        self._position = 0
        self._tail: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:  # words: quoted
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size is None or size < 0 else min(size, left)
        data = self._range(self._position, length) if length else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def _range(self, position: int, length: int) -> bytes:
        first = max(0, self._size - TAIL_BYTES)
        if position < first:
            return self._files.range(self._path, position, length)
        if self._tail is None:
            self._tail = self._files.range(self._path, first, self._size - first)
        return self._tail[position - first : position - first + length]


def stream(files: ObjectFiles, path: str, size_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of an object in order, some megabytes at a time."""
    for position in range(0, size_bytes, STREAM_BYTES):
        yield files.range(path, position, min(STREAM_BYTES, size_bytes - position))
