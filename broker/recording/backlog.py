"""Bytes that wait for a pipe with room, in the order in which they came.

Owns the copies of what could not be written from where it lay. They are plain objects of their own: memory that the
allocator had before costs a fraction of memory that is new to the process, whatever its pages.
"""

from __future__ import annotations

from collections import deque


class Backlog:
    """First in, first out. `size` is how many bytes wait; whoever puts them bounds it."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[memoryview] = deque()

    def put(self, data: bytes | memoryview) -> None:
        """A copy of these waits, too."""
        self._pieces.append(memoryview(bytes(data)))
        self.size += len(data)

    def first(self) -> memoryview:
        """What is next, as far as it lies together. There has to be something."""
        return self._pieces[0]

    def taken(self, count: int) -> None:
        """So much of `first` does not wait any more."""
        self.size -= count
        left = self._pieces[0][count:]
        if len(left):
            self._pieces[0] = left
        else:
            self._pieces.popleft()

    def clear(self) -> None:
        """Nothing waits."""
        self._pieces.clear()
        self.size = 0
