"""Reads segment files window by window, by position.

Owns descriptors and buffers. Never maps a file: a read of a file truncated meanwhile returns less, whereas access to a
mapped page would kill the process. Raises ReadError; `Gone` if the file does not exist (any more).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from ....protocol.records import formats
from ....protocol.records.batch import HEADER_BYTES, BatchHeader
from ....protocol.records.errors import CorruptRecords
from ....protocol.records.formats import MIN_ENTRY_BYTES
from ....protocol.records.layout import LENGTH_AT
from ....storage.inspect import ENTRY_BYTES_MAX
from ...backend import ReadError
from ...objects.logs import files_of
from ...objects.places import is_url
from .headers import PREFIX_BYTES, Table, walk

WINDOW_BYTES = 4 << 20
"""Bytes per read: one chunk of the decoder. Larger windows are not faster, as they do not stay in the CPU cache."""

_HOP_BYTES = 64 << 10  # bytes per read if only headers are wanted,
_LARGE_ENTRY_BYTES = 16 << 10  # or header by header if entries are larger than this on average
_HEADERS_EACH = 4096  # headers per table
_TRIES = 20

T = TypeVar("T")


class Gone(Exception):
    """A file or folder does not exist (any more)."""


def retried(look: Callable[[], T]) -> T:
    """Returns the result of `look`, retried while files disappear during it. Raises `Gone` if they stay away."""
    for _ in range(_TRIES):
        try:
            return look()
        except Gone:
            continue
    return look()


class Stop(NamedTuple):
    """The end of reading a file: its end, or a position without a whole entry; then `problem` is the reason."""

    position: int
    problem: str | None
    left_bytes: int


class Window(NamedTuple):
    """Consecutive whole entries. The next window overwrites `data` and the buffer of the table."""

    table: Table
    data: memoryview
    start: int

    def entry(self, index: int) -> memoryview:
        place = int(self.table.places[index])
        return self.data[place : place + int(self.table.sizes[index])]


class LogFile:
    """A `.log`, a file or an object, opened for reading; a context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd, self._object = -1, None
        try:
            if is_url(path):
                self._object = files_of(path).open(path)
            else:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise unreadable(path, error) from error

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._object is not None:
            self._object.close()
        else:
            os.close(self._fd)

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size if self._object is None else self._object.size()
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _of_object(self, position: int, length: int) -> bytes:
        """Returns the bytes from a position to the end of the object, at most `length`."""
        assert self._object is not None
        length = min(length, self._object.size() - position)
        return bytes(self._object.read(position, length)) if length > 0 else b""

    def fill(self, buffer: memoryview, position: int) -> int:
        """Reads from a position into the buffer and returns the number of bytes."""
        done = 0
        try:
            if self._object is not None:
                data = self._of_object(position, len(buffer))
                buffer[: len(data)] = data
                return len(data)
            while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], position + done)):
                done += count
        except OSError as error:
            raise unreadable(self.path, error) from error
        return done

    def read(self, position: int, length: int) -> bytes:
        """Reads `length` bytes, fewer only at the end of the file."""
        try:
            if self._object is not None:
                return self._of_object(position, length)
            data = os.pread(self._fd, length, position)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if len(data) == length or not data:
            return data
        rest = bytearray(length)
        return bytes(rest[: self.fill(memoryview(rest), position)])

    def header(self, position: int) -> BatchHeader | None:
        """Returns the header at a position, with size and format checked, or None."""
        data = self.read(position, HEADER_BYTES)
        try:
            return formats.read_header(data, whole=False)
        except CorruptRecords:
            return None

    def is_whole(self, position: int, header: BatchHeader) -> bool:
        """Returns whether the entry is complete and matches its CRC."""
        if header.size_bytes > min(ENTRY_BYTES_MAX, self.size() - position):
            return False
        data = self.read(position, header.size_bytes)
        return len(data) == header.size_bytes and formats.crc_matches(data, 0, header)

    def is_zeros(self, position: int) -> bool:
        """Returns whether only zeros follow a position, as in a preallocated file."""
        while data := self.read(position, _HOP_BYTES):
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True


def file_bytes(path: str) -> bytes:
    """Returns the bytes of a small file, such as an index."""
    try:
        return files_of(path).read_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from error


class Windows:
    """The entries of a file from the start of an entry on, in windows; `stop` is where they ended."""

    def __init__(self, file: LogFile, position: int, window_bytes: int = WINDOW_BYTES) -> None:
        self._file = file
        self._position = position
        self._window_bytes = max(window_bytes, HEADER_BYTES)
        self.stop = Stop(position, None, 0)

    def __iter__(self) -> Iterator[Window]:
        file, position = self._file, self._position
        view = memoryview(bytearray(min(self._window_bytes, max(file.size() - position, HEADER_BYTES) + 1)))
        while True:
            count = file.fill(view, position)
            found = walk(view, 0, count)
            if found.positions:
                yield Window(Table.of(view, found.positions, position), view, position)
            position += found.end
            left = count - found.end
            if found.problem is not None or (count < len(view) and left == 0):
                break
            if count < len(view):
                self.stop = Stop(position, f"the file ends {left} bytes after the start of an entry", left)
                return
            if found.positions:
                continue
            large = self._large(position, view)
            if isinstance(large, str):
                self.stop = Stop(position, large, file.size() - position)
                return
            yield large
            position += len(large.data)
        self.stop = Stop(position, found.problem, file.size() - position if found.problem else 0)

    def _large(self, position: int, view: memoryview) -> Window | str:
        """Returns an entry that is larger than a window, or the reason if it cannot be read."""
        size = PREFIX_BYTES + int.from_bytes(view[LENGTH_AT:PREFIX_BYTES], "big", signed=True)
        if size > ENTRY_BYTES_MAX:
            return f"an entry of {size} bytes, more than the limit of {ENTRY_BYTES_MAX}"
        left = self._file.size() - position
        if size > left:
            return f"the file ends {left} bytes after the start of an entry of {size} bytes"
        data = memoryview(bytearray(size))
        if self._file.fill(data, position) < size:
            return f"the file became shorter than an entry of {size} bytes"
        return Window(Table.of(data, [0], position), data, position)


class Hops:
    """The headers of a file's entries from a position on, as tables; `stop` is where they ended. Of large entries only
    the headers are read."""

    def __init__(self, file: LogFile, position: int) -> None:
        self._file = file
        self._position = position
        self.stop = Stop(position, None, 0)

    def __iter__(self) -> Iterator[Table]:
        position = self._position
        size = self._file.size()
        view = memoryview(bytearray(min(_HOP_BYTES, max(size - position, HEADER_BYTES) + 1)))
        while size - position >= MIN_ENTRY_BYTES:
            count = min(self._file.fill(view, position), size - position)
            found = walk(view, 0, count)
            if found.positions:
                yield Table.of(view, found.positions, position)
            position += found.end
            if found.problem is not None:
                self.stop = Stop(position, found.problem, size - position)
                return
            if found.end <= len(found.positions) * _LARGE_ENTRY_BYTES and found.positions:
                continue
            alone = self._alone(position, size)
            if alone is not None:
                yield alone
                position = int(alone.positions[-1] + alone.sizes[-1])
            elif not found.positions:
                break
        left = size - position
        self.stop = Stop(position, f"the file ends {left} bytes after the start of an entry", left)
        if left <= 0:
            self.stop = Stop(position, None, 0)

    def _alone(self, position: int, size: int) -> Table | None:
        """Returns headers that are read one by one, until entries become small; None if no whole entry begins here."""
        headers = bytearray()
        positions: list[int] = []
        start = position
        while len(positions) < _HEADERS_EACH:
            data = self._file.read(position, HEADER_BYTES)
            entry_bytes = _whole_size(data, size - position)
            if entry_bytes is None:
                break
            headers += data.ljust(HEADER_BYTES, b"\0")
            positions.append(position)
            position += entry_bytes
            if position - start < len(positions) * _LARGE_ENTRY_BYTES:
                break
        if not positions:
            return None
        places = np.arange(len(positions)) * HEADER_BYTES
        return Table(np.frombuffer(headers, np.uint8), places, np.array(positions, np.int64))


def _whole_size(data: bytes, left: int) -> int | None:
    """Returns the size of the whole entry that begins with these bytes, with `left` bytes to the end of the file, or
    None."""
    if len(data) < MIN_ENTRY_BYTES:
        return None
    size = PREFIX_BYTES + int.from_bytes(data[LENGTH_AT:PREFIX_BYTES], "big", signed=True)
    if size > left or walk(data, 0, len(data)).problem is not None:
        return None
    return size


def unreadable(path: str, error: OSError) -> ReadError | Gone:
    """Returns the exception for an error of a file or folder: `Gone` if it does not exist (any more)."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Gone(path)
    return ReadError(f"cannot read {path}: {error.strerror or error}")
