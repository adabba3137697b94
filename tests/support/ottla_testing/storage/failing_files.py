"""The real disk, with injected errors: every operation of `Files` may be made to fail, by its name, its path or its
number.

For tests that need real folders (a broker, several data directories). `simulated_files.py` is the disk that can lose
power.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection
from pathlib import Path

from ottla.storage.io.files import DiskFiles, DiskLock, File

Bytes = bytes | bytearray | memoryview
CHANGES = frozenset(
    ("create", "write", "truncate", "sync", "touch", "mode", "mkdir", "replace", "remove", "rmdir", "syncdir")
)
LOOKS = frozenset(("open", "read", "read_bytes", "size", "list", "modified"))
EVERYTHING = CHANGES | LOOKS | {"lock"}


class FailingFile:
    def __init__(self, files: FailingFiles, path: str, file: File) -> None:
        self._files, self._path, self._file = files, path, file

    def size(self) -> int:
        self._files.step("size", self._path)
        return self._file.size()

    def read(self, position: int, length: int) -> bytes | memoryview:
        self._files.step("read", self._path)
        return self._file.read(position, length)

    def write(self, position: int, data: Bytes) -> None:
        def half() -> None:
            self._file.write(position, bytes(data[: len(data) // 2]))

        self._files.step("write", self._path, half)
        self._file.write(position, data)

    def truncate(self, size: int) -> None:
        self._files.step("truncate", self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        self._files.step("sync", self._path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class FailingFiles(DiskFiles):
    """`fails(operation, path)` is the errno of a failure, 0 for none. A failing write has written one half."""

    def __init__(self) -> None:
        self.fails: Callable[[str, str], int] = lambda operation, path: 0
        self.failed: list[tuple[str, str]] = []

    def break_down(self, folder: Path, code: int = errno.EIO, operations: Collection[str] = EVERYTHING) -> None:
        """Makes these operations fail in a folder and below it, from here on."""
        top = str(folder)
        self.fails = lambda operation, path: (
            code if operation in operations and (path == top or path.startswith(top + os.sep)) else 0
        )

    def fail_once(self, folder: Path, code: int, operation: str, name: str = "", nth: int = 0) -> None:
        """Makes only the n-th such operation (from 0) fail on a path below the folder that ends so."""
        top, left = str(folder) + os.sep, nth

        def fails(found: str, path: str) -> int:
            nonlocal left
            if found != operation or not path.startswith(top) or not path.endswith(name):
                return 0
            left -= 1
            return code if left == -1 else 0

        self.fails = fails

    def repair(self) -> None:
        """Makes no operation fail any more."""
        self.fails = lambda operation, path: 0

    def step(self, operation: str, path: str, partly: Callable[[], None] | None = None) -> None:
        """Fails the operation if its number is reached."""
        code = self.fails(operation, path)
        if code:
            self.failed.append((operation, path))
            if partly is not None:
                partly()
            raise OSError(code, os.strerror(code), path)

    def open(self, path: str, *, create: bool = False) -> FailingFile:
        self.step("create" if create and not os.path.exists(path) else "open", path)
        return FailingFile(self, path, super().open(path, create=create))

    def read_bytes(self, path: str) -> bytes:
        self.step("read_bytes", path)
        return super().read_bytes(path)

    def size(self, path: str) -> int:
        self.step("size", path)
        return super().size(path)

    def modified_ns(self, path: str) -> int:
        self.step("modified", path)
        return super().modified_ns(path)

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        self.step("touch", path)
        super().set_modified_ns(path, modified_ns)

    def copy_mode(self, source: str, target: str) -> bool:
        self.step("mode", target)
        return super().copy_mode(source, target)

    def list(self, path: str) -> list[str]:
        self.step("list", path)
        return super().list(path)

    def make_directory(self, path: str) -> None:
        if not os.path.isdir(path):
            self.step("mkdir", path)
        super().make_directory(path)

    def replace(self, source: str, target: str) -> None:
        self.step("replace", source)
        super().replace(source, target)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        super().remove(path)

    def remove_directory(self, path: str) -> None:
        self.step("rmdir", path)
        super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.step("syncdir", path)
        super().sync_directory(path)

    def lock(self, path: str) -> DiskLock:
        self.step("lock", path)
        return super().lock(path)
