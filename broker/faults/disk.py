"""A disk with faults: `FaultyFiles` wraps any `Files` and raises errors where a rule fires, also while logs are open.

Owns which operations read, which write and which need space, and which partition a path belongs to. A failed operation
does not reach the disk; only a write without space writes one half. Operations may come from any thread. The cleaner,
otherwise a process of its own over `DiskFiles`, runs in this process over these files, so rules apply to it too.
"""

from __future__ import annotations

import errno
import os
import re
from fnmatch import fnmatchcase

from ...storage.io.files import File, Files, Lock
from ..message_parts import Place
from .rule_set import Faults

# The folder of a partition: topic, dash, number; a folder that is deleted, moved or put aside has a suffix.
_FOLDER = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]+-(?:delete|future|stray))?")
READ, WRITE = "read", "write"


def place_of(path: str) -> Place:
    """Returns the partition that a file or a folder belongs to, or (None, None)."""
    folder, name = os.path.split(path)
    for part in (name, os.path.basename(folder)):
        found = _FOLDER.fullmatch(part)
        if found is not None:
            return Place(found[1], int(found[2]))
    return Place(None, None)


class FaultyFile:
    """An open file whose operations may fail."""

    __slots__ = ("_file", "_files", "_path")

    def __init__(self, files: FaultyFiles, path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def read(self, position: int, length: int) -> bytes | memoryview:
        self._files.check(READ, self._path)
        return self._file.read(position, length)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        try:
            self._files.check(WRITE, self._path, needs_room=True)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # a real disk becomes full in the middle of a write
                self._file.write(position, memoryview(data)[: len(data) // 2])
            raise
        self._file.write(position, data)

    def truncate(self, size: int) -> None:
        self._files.check(WRITE, self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._files.check(WRITE, self._path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FaultyFiles:
    """`inner` with the disk rules of `faults`. Checks for existence and locks never fail."""

    def __init__(self, inner: Files, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults

    def check(self, kind: str, path: str, *, needs_room: bool = False) -> None:
        """Raises the OSError of the first rule that fires for an operation; `kind` is READ or WRITE."""
        rules = self.faults.disk
        if not rules:
            return
        place = place_of(path)
        for standing in rules:
            action = standing.rule.action
            full = action.name == "disk_full"
            if not (needs_room if full else action.on in (kind, "both")):
                continue
            if not standing.rule.matches_place(place) or not (action.path is None or fnmatchcase(path, action.path)):
                continue
            if standing.take():
                code = errno.ENOSPC if full else errno.EIO
                raise OSError(code, os.strerror(code), path)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if create and not self.inner.exists(path):
            self.check(WRITE, path, needs_room=True)
        elif not create:
            self.check(READ, path)
        return FaultyFile(self, path, self.inner.open(path, create=create))

    def read_bytes(self, path: str) -> bytes:
        self.check(READ, path)
        return self.inner.read_bytes(path)

    def size(self, path: str) -> int:
        self.check(READ, path)
        return self.inner.size(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def modified_ns(self, path: str) -> int:
        self.check(READ, path)
        return self.inner.modified_ns(path)

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.check(WRITE, path)
        self.inner.set_modified_ns(path, modified_ns)

    def copy_mode(self, source: str, target: str) -> bool:
        return self.inner.copy_mode(source, target)

    def list(self, path: str) -> list[str]:
        self.check(READ, path)
        return self.inner.list(path)

    def make_directory(self, path: str) -> None:
        if not self.inner.exists(path):
            self.check(WRITE, path, needs_room=True)
        self.inner.make_directory(path)

    def replace(self, source: str, target: str) -> None:
        self.check(WRITE, target)
        self.inner.replace(source, target)

    def remove(self, path: str) -> None:
        self.check(WRITE, path)
        self.inner.remove(path)

    def remove_directory(self, path: str) -> None:
        self.check(WRITE, path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.check(WRITE, path)
        self.inner.sync_directory(path)

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)
