"""A disk for tests: it keeps what a program sees ("live") apart from what a power loss leaves ("durable").

Models a file system that orders its directory operations (as journalling ones do): names are durable at once, bytes
only by a sync. It can fail at the n-th operation that changes something, and be killed there.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable

Bytes = bytes | bytearray | memoryview


class Killed(BaseException):
    """The process ended here. No `except Exception` and no `except OSError` may see it."""


class Content:
    """One file's bytes, whatever its name."""

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = b""
        self.modified_ns = 0


class SimulatedFile:
    def __init__(self, files: SimulatedFiles, path: str, content: Content):
        self._files, self._path, self._content, self._open = files, path, content, True

    def _check(self) -> None:
        assert self._open, f"{self._path} is closed"

    def size(self) -> int:
        self._check()
        return len(self._content.live)

    def read(self, position: int, length: int) -> bytes:
        self._check()
        data = bytes(self._content.live[position : position + length])
        if len(data) != length:
            raise OSError(errno.EIO, "file ends early", self._path)
        return data

    def write(self, position: int, data: Bytes) -> None:
        self._check()
        live = self._content.live
        if position > len(live):
            live.extend(bytes(position - len(live)))

        def partly(portion: float) -> None:
            some = bytes(data[: int(len(data) * portion)])
            live[position : position + len(some)] = some

        self._files.step("write", self._path, partly)
        grown = max(position + len(data) - len(live), 0)
        if self._files.used() + grown > self._files.capacity:
            room = max(self._files.capacity - self._files.used(), 0)
            live[position : position + room] = bytes(data[:room])
            raise OSError(errno.ENOSPC, "no space", self._path)
        live[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        self._check()
        self._files.step("truncate", self._path)
        live = self._content.live
        del live[size:]
        live.extend(bytes(size - len(live)))

    def sync(self) -> None:
        self._check()
        self._files.step("sync", self._path)
        self._content.durable = bytes(self._content.live)

    def close(self) -> None:
        self._open = False


class SimulatedLock:
    def __init__(self, files: SimulatedFiles, path: str):
        self._files, self._path = files, path

    def release(self) -> None:
        self._files.locked.discard(self._path)


class SimulatedFiles:
    """`fail_at` is the number of the changing operation (from 0) that fails; `killing` makes it the last one ever."""

    def __init__(self) -> None:
        self.contents: dict[str, Content] = {}
        self.directories: set[str] = {"/"}
        self.locked: set[str] = set()
        self.steps = 0
        self.log: list[str] = []
        self.fail_at: int | None = None
        self.killing = False
        self.portion = 0.5
        self.capacity = 1 << 40
        self.failing: Callable[[str, str], bool] = lambda operation, path: False
        """Operations that fail with EIO without any effect, by name and path."""

    def step(self, operation: str, path: str, partly: Callable[[float], None] | None = None) -> None:
        """Counts an operation that changes something, and fails it if it is its turn."""
        number, self.steps = self.steps, self.steps + 1
        self.log.append(f"{operation} {path}")
        if self.killing and self.fail_at is not None and number > self.fail_at:
            raise Killed
        if number == self.fail_at:
            if partly is not None:
                partly(self.portion)
            if self.killing:
                raise Killed
            raise OSError(errno.EIO, f"injected at step {number}", path)
        if self.failing(operation, path):
            raise OSError(errno.EIO, f"injected into {operation}", path)

    def used(self) -> int:
        return sum(len(content.live) for content in self.contents.values())

    def restart(self) -> None:
        """The process is started again after a kill: all written bytes are there, no lock is held."""
        self.fail_at, self.killing, self.steps, self.log = None, False, 0, []
        self.locked.clear()

    def lose_power(self, keep: Callable[[str, int, int], int], garbage: bytes = b"") -> None:
        """Every file keeps its durable bytes and `keep(path, durable size, live size)` bytes of what it was; `garbage`
        (as of blocks that were allocated but not written) stands behind where the file was cut."""
        self.restart()
        for path, content in self.contents.items():
            live, durable = bytes(content.live), content.durable
            if live == durable:
                continue
            size = keep(path, len(durable), len(live))
            kept = live[:size] if live.startswith(durable) and size >= len(durable) else durable
            content.live = bytearray(kept + garbage[: max(len(live) - len(kept), 0)])
            content.durable = bytes(content.live)

    # -- Files

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if path not in self.contents:
            if not create or posixpath.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            self.contents[path] = Content()
        return SimulatedFile(self, path, self.contents[path])

    def read_bytes(self, path: str) -> bytes:
        if path not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(self.contents[path].live)

    def size(self, path: str) -> int:
        return len(self.read_bytes(path))

    def exists(self, path: str) -> bool:
        return path in self.contents or path in self.directories

    def modified_ns(self, path: str) -> int:
        return self.contents[path].modified_ns

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.step("touch", path)
        self.contents[path].modified_ns = modified_ns

    def list(self, path: str) -> list[str]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        everything = [*self.contents, *self.directories]
        return [posixpath.basename(name) for name in everything if posixpath.dirname(name) == path and name != path]

    def make_directory(self, path: str) -> None:
        if path not in self.directories:
            self.make_directory(posixpath.dirname(path))
            self.step("mkdir", path)
            self.directories.add(path)

    def replace(self, source: str, target: str) -> None:
        self.step("rename", source)
        if source in self.directories:
            for names in (self.contents, self.directories):
                for name in [name for name in names if name == source or name.startswith(source + "/")]:
                    renamed = target + name.removeprefix(source)
                    if isinstance(names, set):
                        names.discard(name)
                        names.add(renamed)
                    else:
                        names[renamed] = names.pop(name)
            return
        if source not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.contents[target] = self.contents.pop(source)

    def remove(self, path: str) -> None:
        if path not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.step("remove", path)
        del self.contents[path]

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self.step("rmdir", path)
        self.directories.discard(path)

    def sync_directory(self, path: str) -> None:
        self.step("syncdir", path)

    def lock(self, path: str) -> SimulatedLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.locked.add(path)
        return SimulatedLock(self, path)
