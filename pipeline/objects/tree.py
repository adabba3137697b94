"""The objects below a URL as files that are read by position: `ObjectTree`."""

from __future__ import annotations

from ...storage.io.files import File
from .files import ObjectFiles
from .places import Place

AHEAD_BYTES = 64 << 10
"""Read after the requested bytes: the header of the next batch is there."""


class AheadFile:
    """An object open for reading. Memory: the bytes of the last read, and some after them.

    The bytes that the last read and the next one have in common are not requested again. A read at the end returns
    fewer bytes. Raises OSError.
    """

    def __init__(self, files: ObjectTree, path: str, size_bytes: int) -> None:
        self._files, self._path, self._size = files, path, size_bytes
        self._start = 0
        self._kept = b""

    def size(self) -> int:
        return self._size

    def read(self, position: int, length: int) -> bytes:
        end = min(position + length, self._size)
        if position >= end:
            return b""
        at = position - self._start
        if at < 0 or at > len(self._kept):
            at, self._kept = 0, b""
        if at + end - position > len(self._kept):
            front = self._kept[at:]
            begin = position + len(front)
            more = min(end + AHEAD_BYTES, self._size) - begin
            self._kept, self._start, at = front + self._files.range(self._path, begin, more), position, 0
        return self._kept[at : at + end - position]

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        raise AssertionError("logs in object stores are only read")

    def truncate(self, size: int) -> None:
        raise AssertionError("logs in object stores are only read")

    def sync(self) -> None:
        pass

    def close(self) -> None:
        self._kept = b""


class ObjectTree(ObjectFiles):
    """Objects for reading. The sizes of a list are those of the objects in it: no request for each of them."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.url, place.files().store)
        self._sizes: dict[str, dict[str, int]] = {}

    def list(self, path: str) -> list[str]:
        found = self.entries(path)
        self._sizes[path] = {name: size for name, size in found.items() if size is not None}
        return list(found)

    def size(self, path: str) -> int:
        folder, _, name = path.rpartition("/")
        known = self._sizes.get(folder, {}).get(name)
        return super().size(path) if known is None else known

    def exists(self, path: str) -> bool:
        """Returns whether there is an object with this name, by a request."""
        try:
            super().size(path)
        except FileNotFoundError:
            return False
        return True

    def open(self, path: str, *, create: bool = False) -> File:
        return AheadFile(self, path, self.size(path))
