"""A disk with faults: `FaultyFiles` wraps any `Files` and raises errors where a rule fires, also while logs are open.

Owns which operations read, which write and which need space, and which partition a path belongs to. A failed operation
does not reach the disk; only a write without space writes one half. Operations may come from any thread. The cleaner,
otherwise a process of its own over `DiskFiles`, runs in this process over these files, so rules apply to it too.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import ParamSpec, TypeVar, cast

from ...storage.io.files import File, Files
from ..message_parts import Place
from .rule_set import Faults

# The folder of a partition: topic, dash, number; a folder that is deleted, moved or put aside has a suffix.
_FOLDER = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]+-(?:delete|future|stray))?")
READ, WRITE = "read", "write"
P = ParamSpec("P")
R = TypeVar("R")


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

    def __init__(self, files: FaultyFiles, path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file
        self.size, self.close = file.size, file.close

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


class FaultyFiles:
    """`inner` with the disk rules of `faults`. Checks for existence and locks never fail."""

    def __init__(self, inner: Files, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults
        self.exists, self.copy_mode, self.lock = inner.exists, inner.copy_mode, inner.lock
        self.read_bytes = self._checked(READ, inner.read_bytes)
        self.size = self._checked(READ, inner.size)
        self.modified_ns = self._checked(READ, inner.modified_ns)
        self.list = self._checked(READ, inner.list)
        self.set_modified_ns = self._checked(WRITE, inner.set_modified_ns)
        self.remove = self._checked(WRITE, inner.remove)
        self.remove_directory = self._checked(WRITE, inner.remove_directory)
        self.sync_directory = self._checked(WRITE, inner.sync_directory)

    def _checked(self, kind: str, operation: Callable[P, R]) -> Callable[P, R]:
        """Returns an operation on the path that is its first argument, which fails where a rule fires for that."""

        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            self.check(kind, cast(str, args[0]))
            return operation(*args, **kwargs)

        return checked

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

    def make_directory(self, path: str) -> None:
        if not self.inner.exists(path):
            self.check(WRITE, path, needs_room=True)
        self.inner.make_directory(path)

    def replace(self, source: str, target: str) -> None:
        self.check(WRITE, target)
        self.inner.replace(source, target)
