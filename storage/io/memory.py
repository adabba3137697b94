"""A file system in memory with the interface of `files.py`: for brokers without a disk, and for saved states.

Behaves like `DiskFiles` on Linux, errors included, so that the same storage engine runs on it. All writes are durable
at once: syncs only check that the file exists.

`fork` copies a whole file system in the time that copying its names takes: both share the same bytes until one of them
writes. The bytes of a file are in one buffer that grows by doubling; the file that has filled it up to its end may
append there, since the others never read past their own end. All other writes first copy the buffer.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final

from .files import MAP_BYTES

_FIRST_BYTES: Final = 256


class _Buffer:
    """Bytes that several files may share. Up to `filled` a file uses them."""

    __slots__ = ("data", "filled", "is_shared")

    def __init__(self, data: bytearray, filled: int) -> None:
        self.data = data
        self.filled = filled
        self.is_shared = False


class _Content:
    """The contents of one file, whatever its name."""

    __slots__ = ("buffer", "is_locked", "modified_ns", "size")

    def __init__(self, modified_ns: int) -> None:
        self.buffer = _Buffer(bytearray(), 0)
        self.size = 0
        self.modified_ns = modified_ns
        self.is_locked = False

    def fork(self) -> _Content:
        made = _Content(self.modified_ns)
        self.buffer.is_shared = True
        made.buffer, made.size = self.buffer, self.size
        return made

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        end = position + len(data)
        buffer, size = self.buffer, self.size
        # overwrites shared bytes, or those appended by another file
        if buffer.is_shared and (position < size or buffer.filled != size):
            buffer = self._renewed(max(end, size))
        if end > len(buffer.data):
            buffer = self._renewed(end)
        if position > size:  # a truncation may have left bytes there
            buffer.data[size:position] = bytes(position - size)
        buffer.data[position:end] = data
        if end > size:
            buffer.filled = self.size = end

    def truncate(self, size: int) -> None:
        buffer = self.buffer
        if size > self.size:
            grown = size - self.size
            self.write(self.size, bytes(grown))
            return
        if not buffer.is_shared:
            buffer.filled = size
        self.size = size

    def _renewed(self, needed: int) -> _Buffer:
        """Replaces the buffer by one of its own with room for `needed` bytes. Slices of the old one stay valid."""
        size = self.size
        data = bytearray(max(needed, _FIRST_BYTES) if needed <= _FIRST_BYTES else max(needed, 2 * size))
        data[:size] = memoryview(self.buffer.data)[:size]
        made = self.buffer = _Buffer(data, size)
        return made


class _Directory:
    """Names of files and directories."""

    __slots__ = ("entries", "modified_ns")

    def __init__(self, modified_ns: int) -> None:
        self.entries: dict[str, _Content | _Directory] = {}
        self.modified_ns = modified_ns

    def fork(self) -> _Directory:
        made = _Directory(self.modified_ns)
        made.entries = {name: entry.fork() for name, entry in self.entries.items()}
        return made

    def holds(self, other: _Directory) -> bool:
        """Returns whether the other directory is within this one, or is it."""
        if other is self:
            return True
        return any(entry.holds(other) for entry in self.entries.values() if isinstance(entry, _Directory))


class MemoryFile:
    """An open file; see `files.File`. It stays usable when its name is removed, as on a disk."""

    __slots__ = ("_content", "_files", "_path")

    def __init__(self, files: MemoryFiles, path: str, content: _Content) -> None:
        self._files = files
        self._path = path
        self._content: _Content | None = content

    def _opened(self) -> _Content:
        if self._content is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._content

    def size(self) -> int:
        return self._opened().size

    def read(self, position: int, length: int) -> bytes | memoryview:
        """Returns a copy, or from MAP_BYTES on a view, which later appends do not change."""
        content = self._opened()
        end = position + length
        if position < 0 or length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        if length and end > content.size:
            early = length - max(content.size - position, 0)
            raise OSError(errno.EIO, f"file ends {early} bytes early", self._path)
        if length < MAP_BYTES:
            return bytes(memoryview(content.buffer.data)[position:end])
        return memoryview(content.buffer.data)[position:end].toreadonly()

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        content = self._opened()
        if len(data):
            with self._files.changing:
                content.write(position, data)
                content.modified_ns = self._files.now_ns()

    def truncate(self, size: int) -> None:
        if size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        content = self._opened()
        with self._files.changing:
            content.truncate(size)
            content.modified_ns = self._files.now_ns()

    def sync(self) -> None:
        self._opened()

    def close(self) -> None:
        self._content = None


class MemoryLock:
    """A held lock of a file."""

    def __init__(self, content: _Content) -> None:
        content.is_locked = True
        self._content: _Content | None = content

    def release(self) -> None:
        if self._content is not None:
            content, self._content = self._content, None
            content.is_locked = False


class MemoryFiles:
    """The file system; may be used by several threads. `now_ns` returns the modification time for changed files, in ns
    since 1970."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.changing = threading.Lock()
        """Held while names or bytes are changed."""
        self._root = _Directory(0)

    def fork(self) -> MemoryFiles:
        """Returns another, independent file system with the same names and bytes; none of its files is locked."""
        made = MemoryFiles(self.now_ns)
        with self.changing:
            made._root = self._root.fork()
        return made

    def size_bytes(self) -> int:
        """Returns the total size of all files in bytes."""
        with self.changing:
            left: list[_Content | _Directory] = [self._root]
            total = 0
            while left:
                entry = left.pop()
                if isinstance(entry, _Directory):
                    left.extend(entry.entries.values())
                else:
                    total += entry.size
        return total

    # Finding

    @staticmethod
    def _error(number: int, path: str) -> OSError:
        return OSError(number, os.strerror(number), path)

    def _find(self, path: str) -> _Content | _Directory:
        found: _Content | _Directory = self._root
        for name in path.split("/"):
            if not name:
                continue
            if not isinstance(found, _Directory):
                raise self._error(errno.ENOTDIR, path)
            entry = found.entries.get(name)
            if entry is None:
                raise self._error(errno.ENOENT, path)
            found = entry
        return found

    def _parent(self, path: str) -> tuple[_Directory, str]:
        """Returns the directory of a path, and its name there."""
        folder, _, name = path.rstrip("/").rpartition("/")
        found = self._find(folder)
        if not isinstance(found, _Directory):
            raise self._error(errno.ENOTDIR, path)
        return found, name

    def _file(self, path: str) -> _Content:
        found = self._find(path)
        if isinstance(found, _Directory):
            raise self._error(errno.EISDIR, path)
        return found

    def _directory(self, path: str) -> _Directory:
        found = self._find(path)
        if not isinstance(found, _Directory):
            raise self._error(errno.ENOTDIR, path)
        return found

    def _created(self, path: str) -> _Content:
        """Returns the file of that name, which is made if it is missing."""
        with self.changing:
            folder, name = self._parent(path)
            found = folder.entries.get(name, folder if not name else None)
            if isinstance(found, _Directory):
                raise self._error(errno.EISDIR, path)
            if found is None:
                now_ns = self.now_ns()
                found = folder.entries[name] = _Content(now_ns)
                folder.modified_ns = now_ns
            return found

    # Files

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        return MemoryFile(self, path, self._created(path) if create else self._file(path))

    def read_bytes(self, path: str) -> bytes:
        content = self._file(path)
        return bytes(memoryview(content.buffer.data)[: content.size])

    def size(self, path: str) -> int:
        found = self._find(path)
        return 0 if isinstance(found, _Directory) else found.size

    def exists(self, path: str) -> bool:
        found: _Content | _Directory | None = self._root
        for name in path.split("/"):
            if name and found is not None:
                found = found.entries.get(name) if isinstance(found, _Directory) else None
        return found is not None

    def modified_ns(self, path: str) -> int:
        return self._find(path).modified_ns

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self._find(path).modified_ns = modified_ns

    def copy_mode(self, source: str, target: str) -> bool:
        self._find(source)
        self._find(target)
        return False

    def list(self, path: str) -> list[str]:
        with self.changing:
            return [*self._directory(path).entries]

    def make_directory(self, path: str) -> None:
        with self.changing:
            found: _Content | _Directory = self._root
            names = [name for name in path.split("/") if name]
            for index, name in enumerate(names, 1):
                assert isinstance(found, _Directory)
                entry = found.entries.get(name)
                if entry is None:
                    entry = found.entries[name] = _Directory(self.now_ns())
                if not isinstance(entry, _Directory):
                    raise self._error(errno.EEXIST if index == len(names) else errno.ENOTDIR, path)
                found = entry

    def replace(self, source: str, target: str) -> None:
        with self.changing:
            source_folder, source_name = self._parent(source)
            target_folder, target_name = self._parent(target)
            moved = source_folder.entries.get(source_name)
            replaced = target_folder.entries.get(target_name)
            if moved is None:
                raise self._error(errno.ENOENT, source)
            if isinstance(moved, _Directory) and moved.holds(target_folder):
                raise self._error(errno.EINVAL, source)
            if isinstance(replaced, _Directory) and replaced.holds(source_folder):
                raise self._error(errno.ENOTEMPTY, source)
            if isinstance(replaced, _Directory) and not isinstance(moved, _Directory):
                raise self._error(errno.EISDIR, source)
            if isinstance(moved, _Directory) and replaced is not None and not isinstance(replaced, _Directory):
                raise self._error(errno.ENOTDIR, source)
            if isinstance(replaced, _Directory) and replaced is not moved and replaced.entries:
                raise self._error(errno.ENOTEMPTY, source)
            del source_folder.entries[source_name]
            target_folder.entries[target_name] = moved

    def remove(self, path: str) -> None:
        with self.changing:
            folder, name = self._parent(path)
            if isinstance(self._find(path), _Directory):
                raise self._error(errno.EISDIR, path)
            del folder.entries[name]

    def remove_directory(self, path: str) -> None:
        with self.changing:
            folder, name = self._parent(path)
            if self._directory(path).entries:
                raise self._error(errno.ENOTEMPTY, path)
            del folder.entries[name]

    def sync_directory(self, path: str) -> None:
        self._directory(path)

    def lock(self, path: str) -> MemoryLock:
        content = self._created(path)
        with self.changing:
            if content.is_locked:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
            return MemoryLock(content)
