"""A simulated disk: it keeps the state that a program sees ("live") apart from the state after a power loss
("durable").

Its failures, and the states after a power loss:

* Bytes. Only a sync of a file makes its bytes durable. Of later writes any may survive: none, all, some whole, some in
  part, torn at any byte, or only some of their blocks; missing bytes below the end of the file are zeros or stray
  bytes, and so may be bytes after it. Files are independent of each other. Only cuts (truncate) stay in order with the
  writes of the same file: a write after a cut does not survive without the cut.
* Names. Creations, renames and removals, of files and directories, become durable in their order (as on journalling
  file systems): a power loss leaves a beginning of them. A sync of a directory makes all durable up to its own last
  one; a sync of a file does not make its name durable. Names and bytes are independent: a rename may be durable when
  the bytes of the file are not, and the reverse.
* Calls. The n-th changing call fails, with any errno and with any part of a write done, or the process ends there; or
  the n-th reading call fails. Every call can be observed, and the disk forked at any step.

`lose_power` is the milder kind, in which all names are durable at once and a file keeps a beginning of its live bytes.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable
from typing import NamedTuple

Bytes = bytes | bytearray | memoryview


class Killed(BaseException):
    """The process ended here. No `except Exception` and no `except OSError` may catch it."""


class Change(NamedTuple):
    """A write of `data` at a position; or without data a cut (or growth) to that size."""

    position: int
    data: bytes | None


class Content:
    """One file's bytes, whatever its name. `changes` are those since the last sync, oldest first."""

    __slots__ = ("changes", "durable", "durable_modified_ns", "live", "modified_ns")

    def __init__(self) -> None:
        self.live = bytearray()
        self.durable = b""
        self.changes: list[Change] = []
        self.modified_ns = 0
        self.durable_modified_ns = 0

    def copy(self) -> Content:
        made = Content()
        made.live, made.durable, made.changes = bytearray(self.live), self.durable, list(self.changes)
        made.modified_ns, made.durable_modified_ns = self.modified_ns, self.durable_modified_ns
        return made

    def change(self, position: int, data: bytes | None) -> None:
        """Writes, or cuts."""
        self.changes.append(Change(position, data))
        _apply(self.live, position, data)

    def sync(self) -> None:
        self.durable, self.changes = bytes(self.live), []
        self.durable_modified_ns = self.modified_ns

    def settle(self, live: bytes | bytearray) -> None:
        """Makes these its bytes, durably."""
        self.live, self.durable, self.changes = bytearray(live), bytes(live), []
        self.durable_modified_ns = self.modified_ns

    def lose_power(self, rng: random.Random) -> None:
        """Leaves one of the states described in the module."""
        if rng.random() < 0.5:
            self.modified_ns = self.durable_modified_ns
        if not self.changes:
            return
        chance = rng.random()
        if chance < 0.25:
            self.settle(self.durable)
        elif chance < 0.4:
            self.settle(self.live)
        else:
            self.settle(self._mixture(rng))

    def _mixture(self, rng: random.Random) -> bytearray:
        size = len(self.live)
        cuts = [number for number, change in enumerate(self.changes) if change.data is None]
        end = rng.choice([*cuts, len(self.changes), len(self.changes)])  # the first cut that is not durable
        found = bytearray(self.durable)
        kept = rng.choice((0.5, 0.9, 1.0))  # of the writes
        first_lost = rng.randint(0, end) if rng.random() < 0.5 else end  # everything after a beginning is lost
        block = rng.choice((1, 16, 64, 512))
        stray = (lambda n: bytes(n)) if rng.random() < 0.5 else rng.randbytes
        for number, (position, data) in enumerate(self.changes[:end]):
            if data is None:
                _apply(found, position, None)
                continue
            if number > first_lost or rng.random() > kept:
                continue
            if number == first_lost:
                data = data[: rng.randint(0, len(data))]
            if position > len(found):
                found += stray(position - len(found))
            if rng.random() < 0.7:
                _apply(found, position, data)
            else:
                _write_blocks(found, position, data, block, rng, stray)
        if size > len(found) and rng.random() < 0.4:
            found += stray(rng.randint(0, size - len(found)))
        return found


def _apply(live: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        del live[position:]
        live.extend(bytes(position - len(live)))
    elif data:  # an empty write changes no size
        if position > len(live):
            live.extend(bytes(position - len(live)))
        live[position : position + len(data)] = data


def _write_blocks(
    found: bytearray, position: int, data: bytes, block: int, rng: random.Random, stray: Callable[[int], bytes]
) -> None:
    """Writes some of the blocks of a file, whose borders are multiples of the block size."""
    at, end = position, position + len(data)
    while at < end:
        until = min(at - at % block + block, end)
        if rng.random() < 0.6:
            if at > len(found):
                found += stray(at - len(found))
            found[at:until] = data[at - position : until - position]
        at = until


class SimulatedFile:
    def __init__(self, files: SimulatedFiles, path: str, content: Content):
        self._files, self._path, self._content, self._open = files, path, content, True

    def _check(self) -> None:
        assert self._open, f"{self._path} is closed"

    def size(self) -> int:
        self._check()
        self._files.look("size", self._path)
        return len(self._content.live)

    def read(self, position: int, length: int) -> bytes:
        self._check()
        self._files.look("read", self._path)
        data = bytes(self._content.live[position : position + length])
        if len(data) != length:
            raise OSError(errno.EIO, "file ends early", self._path)
        return data

    def write(self, position: int, data: Bytes) -> None:
        self._check()
        content = self._content
        self._files.step("write", self._path, content, Change(position, bytes(data)))
        lacking = self._files.lacking(max(position + len(data) - len(content.live), 0))
        content.modified_ns = self._files.now_ns
        if lacking:
            content.change(position, bytes(data[:-lacking]))
            raise OSError(errno.ENOSPC, "no space", self._path)
        content.change(position, bytes(data))

    def truncate(self, size: int) -> None:
        self._check()
        self._files.step("truncate", self._path)
        self._content.modified_ns = self._files.now_ns
        self._content.change(size, None)

    def sync(self) -> None:
        if not self._open:  # by another thread, in the meantime
            raise OSError(errno.EBADF, "closed", self._path)
        self._files.step("sync", self._path)
        self._content.sync()

    def close(self) -> None:
        self._open = False


class SimulatedLock:
    def __init__(self, files: SimulatedFiles, path: str):
        self._files, self._path = files, path

    def release(self) -> None:
        self._files.locked.discard(self._path)


class Naming(NamedTuple):
    """One directory operation: create, remove, mkdir or rmdir of `path`, or a rename of it to `target`."""

    operation: str
    path: str
    target: str = ""
    content: Content | None = None

    def touches(self, directory: str) -> bool:
        return directory in (posixpath.dirname(self.path), posixpath.dirname(self.target))


class Names:
    """A tree of names."""

    def __init__(self) -> None:
        self.contents: dict[str, Content] = {}
        self.directories: set[str] = {"/"}

    def apply(self, naming: Naming) -> None:
        operation, path, target, content = naming
        if operation == "create":
            assert content is not None
            self.contents[path] = content
        elif operation == "remove":
            del self.contents[path]
        elif operation == "mkdir":
            self.directories.add(path)
        elif operation == "rmdir":
            self.directories.discard(path)
        elif path in self.directories:
            for name in [name for name in self.contents if name.startswith(path + "/")]:
                self.contents[target + name.removeprefix(path)] = self.contents.pop(name)
            for name in sorted(name for name in self.directories if name == path or name.startswith(path + "/")):
                self.directories.discard(name)
                self.directories.add(target + name.removeprefix(path))
        else:
            self.contents[target] = self.contents.pop(path)

    def copy(self, copies: dict[int, Content]) -> Names:
        made = Names()
        made.directories = set(self.directories)
        for path, content in self.contents.items():
            if id(content) not in copies:
                copies[id(content)] = content.copy()
            made.contents[path] = copies[id(content)]
        return made


class Step(NamedTuple):
    """The next operation that changes files; `number` counts them from 0. A write has its `content` and `change`."""

    number: int
    operation: str
    path: str
    content: Content | None = None
    change: Change | None = None


class SimulatedFiles:
    """A simulated disk with injected errors.

    The changing call number `fail_at` (from 0) fails with `fail_with`; a write fails after `portion` of its bytes. With
    `killing` no later call succeeds. `fail_look_at` is the number of the reading call that fails.
    """

    def __init__(self) -> None:
        self._names = Names()
        self._durable = Names()
        self._journal: list[Naming] = []  # directory operations that are not durable, oldest first
        self.locked: set[str] = set()
        self.steps = 0
        self.looks = 0
        self.log: list[str] = []
        self.fail_at: int | None = None
        self.fail_look_at: int | None = None
        self.fail_with = errno.EIO
        self.killing = False
        self.portion = 0.5
        self.capacity = 1 << 40
        self.now_ns = 0
        """The modification time for changed files."""
        self.on_step: Callable[[Step], None] | None = None
        """Called before each changing operation; it may fork the disk."""
        self.failing: Callable[[str, str], bool] = lambda operation, path: False
        """Operations that fail without any effect, by name and path."""

    @property
    def contents(self) -> dict[str, Content]:
        return self._names.contents

    @property
    def directories(self) -> set[str]:
        return self._names.directories

    def step(self, operation: str, path: str, content: Content | None = None, change: Change | None = None) -> None:
        """Counts a changing operation, and fails it if its number is reached."""
        number, self.steps = self.steps, self.steps + 1
        self.log.append(f"{operation} {path}")
        if self.on_step is not None:
            self.on_step(Step(number, operation, path, content, change))
        if self.killing and self.fail_at is not None and number > self.fail_at:
            raise Killed
        if number == self.fail_at:
            if content is not None and change is not None and change.data is not None:
                content.change(change.position, change.data[: int(len(change.data) * self.portion)])
            if self.killing:
                raise Killed
            raise OSError(self.fail_with, f"injected at step {number}", path)
        if self.failing(operation, path):
            raise OSError(self.fail_with, f"injected into {operation}", path)

    def look(self, operation: str, path: str) -> None:
        """Counts a reading call, and fails it if its number is reached."""
        number, self.looks = self.looks, self.looks + 1
        if number == self.fail_look_at:
            raise OSError(self.fail_with, f"injected into {operation}", path)

    def used(self) -> int:
        return sum(len(content.live) for content in self.contents.values())

    def lacking(self, grown: int) -> int:
        """Returns the bytes by which a file is to grow that have no room."""
        return 0 if self.capacity >= 1 << 40 else min(max(self.used() + grown - self.capacity, 0), grown)

    # -- interruptions

    def fork(self, stopped: Step | None = None, done_bytes: int = 0) -> SimulatedFiles:
        """Returns the current disk, for another process to continue with; of the next write this part is done."""
        copies: dict[int, Content] = {}
        made = SimulatedFiles()
        made._durable = self._durable.copy(copies)
        made._names = self._names.copy(copies)
        made.capacity, made.now_ns = self.capacity, self.now_ns
        for naming in self._journal:
            if naming.content is not None and id(naming.content) not in copies:
                copies[id(naming.content)] = naming.content.copy()
            content = None if naming.content is None else copies[id(naming.content)]
            made._journal.append(naming._replace(content=content))
        if stopped is not None and stopped.change is not None and stopped.change.data is not None and done_bytes:
            content = copies.get(id(stopped.content))  # None if it has no name any more
            if content is not None:
                content.change(stopped.change.position, stopped.change.data[:done_bytes])
        return made

    def restart(self) -> None:
        """Restarts the process after a kill: all written bytes are there, no lock is held."""
        self.fail_at, self.fail_look_at, self.killing = None, None, False
        self.steps, self.looks, self.log = 0, 0, []
        self.on_step = None
        self.locked.clear()

    def crash(self, rng: random.Random) -> None:
        """Simulates a power loss: leaves one of the states described in the module, chosen by `rng`."""
        self.restart()
        length = len(self._journal)
        done = rng.choice((0, length, rng.randint(0, length)))
        for naming in self._journal[:done]:
            self._durable.apply(naming)
        self._journal = []
        for content in {id(content): content for content in self._durable.contents.values()}.values():
            content.lose_power(rng)
        self._names = self._durable
        self._durable = self._names.copy({id(content): content for content in self.contents.values()})

    def lose_power(self, keep: Callable[[str, int, int], int], garbage: bytes = b"") -> None:
        """Keeps of every file its durable bytes and `keep(path, durable size, live size)` bytes of the live ones;
        `garbage` (as of blocks that were allocated but not written) follows where the file was cut."""
        self.restart()
        for path, content in self.contents.items():
            live, durable = bytes(content.live), content.durable
            if live == durable:
                continue
            size = keep(path, len(durable), len(live))
            kept = live[:size] if live.startswith(durable) and size >= len(durable) else durable
            content.settle(kept + garbage[: max(len(live) - len(kept), 0)])
        self._journal = []
        self._durable = self._names.copy({id(content): content for content in self.contents.values()})

    def _name(self, operation: str, path: str, target: str = "", content: Content | None = None) -> None:
        naming = Naming(operation, path, target, content)
        self._names.apply(naming)
        self._journal.append(naming)

    # -- Files

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        if path not in self.contents:
            if not create or posixpath.dirname(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            self._name("create", path, content=Content())
            self.contents[path].modified_ns = self.now_ns
        else:
            self.look("open", path)
        return SimulatedFile(self, path, self.contents[path])

    def read_bytes(self, path: str) -> bytes:
        self._check_file(path)
        self.look("read", path)
        return bytes(self.contents[path].live)

    def size(self, path: str) -> int:
        self._check_file(path)
        self.look("size", path)
        return len(self.contents[path].live)

    def _check_file(self, path: str) -> None:
        if path not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)

    def exists(self, path: str) -> bool:
        return path in self.contents or path in self.directories

    def modified_ns(self, path: str) -> int:
        self._check_file(path)
        self.look("stat", path)
        return self.contents[path].modified_ns

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.step("touch", path)
        self.contents[path].modified_ns = modified_ns

    def copy_mode(self, source: str, target: str) -> bool:
        return False

    def list(self, path: str) -> list[str]:
        if path in self.contents:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.look("list", path)
        front = path.rstrip("/") + "/"
        below = [name[len(front) :] for name in (*self.contents, *self.directories) if name.startswith(front)]
        return sorted(name for name in below if name and "/" not in name)

    def make_directory(self, path: str) -> None:
        if path not in self.directories:
            self.make_directory(posixpath.dirname(path))
            self.step("mkdir", path)
            self._name("mkdir", path)

    def replace(self, source: str, target: str) -> None:
        self.step("rename", source)
        if source not in self.contents and source not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target in self.directories and self.list(target):
            raise OSError(errno.ENOTEMPTY, "not empty", target)
        self._name("rename", source, target)

    def remove(self, path: str) -> None:
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self._check_file(path)
        self.step("remove", path)
        self._name("remove", path)

    def remove_directory(self, path: str) -> None:
        if self.list(path):
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self.step("rmdir", path)
        self._name("rmdir", path)

    def sync_directory(self, path: str) -> None:
        self.step("syncdir", path)
        own = [number for number, naming in enumerate(self._journal, 1) if naming.touches(path)]
        for naming in self._journal[: own[-1] if own else 0]:
            self._durable.apply(naming)
        del self._journal[: own[-1] if own else 0]

    def lock(self, path: str) -> SimulatedLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self.locked.add(path)
        return SimulatedLock(self, path)
