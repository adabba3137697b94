"""Bytes that wait for a pipe with room, in the order in which they came.

Owns the memory they wait in: a few large pieces that are filled and emptied one after the other. Memory that a process
touches for the first time costs several times what the copy does, less so in huge pages: hence these, where the system
has them, and none is given back while it will be wanted again.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque

CHUNK_BYTES = 8 << 20


def _chunk() -> memoryview:
    made = mmap.mmap(-1, CHUNK_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            made.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(made)


class Backlog:
    """First in, first out. `size` is how many bytes wait; whoever puts them bounds it."""

    def __init__(self) -> None:
        self.size = 0
        self._chunks: deque[memoryview] = deque()
        self._start = 0  # of what waits, in the first
        self._end = 0  # in the last
        self._spare: memoryview | None = None

    def put(self, data: bytes | memoryview) -> None:
        """A copy of these waits, too."""
        left = memoryview(data)
        self.size += len(left)
        while len(left):
            if not self._chunks or self._end == CHUNK_BYTES:
                self._chunks.append(self._spare or _chunk())
                self._spare, self._end = None, 0
            count = min(len(left), CHUNK_BYTES - self._end)
            self._chunks[-1][self._end : self._end + count] = left[:count]
            self._end += count
            left = left[count:]

    def first(self) -> memoryview:
        """What is next, as far as it lies together; valid until `taken`. There has to be something."""
        end = self._end if len(self._chunks) == 1 else CHUNK_BYTES
        return self._chunks[0][self._start : end]

    def taken(self, count: int) -> None:
        """So much of it does not wait any more."""
        self.size -= count
        self._start += count
        if not self.size:  # begins again where memory is warm
            self._start = self._end = 0
        elif self._start == CHUNK_BYTES:
            self._spare, self._start = self._chunks.popleft(), 0

    def clear(self) -> None:
        """Nothing waits, and no memory is held."""
        self._chunks.clear()
        self._spare = None
        self.size = self._start = self._end = 0
