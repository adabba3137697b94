"""Copies of data directories in the system's folder for temporary files, and the disk space that they need."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence

from ...storage import restore
from ...storage.io import folder_copies
from ...storage.io.files import Files
from ...storage.io.folder_copies import Entry
from ...storage.restore import DirectoryCopy, Staged
from .views import OperationError

_SPARE_BYTES = 1 << 20  # for the folders themselves, and for writes of a running broker during the copy


class SnapshotFolders:
    """Copies of data directories on the disk; they are removed with this object."""

    def __init__(self, files: Files, paths: Sequence[str]) -> None:
        """Copies the directories, which must not change meanwhile. Raises OSError, StorageError, OperationError."""
        self._entries = [restore.entries(files, path) for path in paths]
        self._clean = [False] * len(paths)
        check_room([(tempfile.gettempdir(), entries) for entries in self._entries])
        self.root = tempfile.mkdtemp(prefix="ottla-snapshot-")
        self._remove = weakref.finalize(self, shutil.rmtree, self.root, ignore_errors=True)
        try:
            for number, path in enumerate(paths):
                copy = os.path.join(self.root, str(number))
                files.make_directory(copy)
                folder_copies.copy(files, path, copy, self._entries[number])
        except BaseException:
            self._remove()
            raise

    def mark(self, number: int) -> None:
        """Notes that a directory was in the state of a cleanly closed one."""
        self._clean[number] = True

    def stage(self, files: Files, paths: Sequence[str], first: str) -> Staged:
        """Copies everything into the data directories, durably and without changing their contents; the decision will
        be written to the directory `first`. Raises OSError, StorageError, OperationError; then the copies are
        removed."""
        for path in paths:
            _check_mounts(path)
        check_room([(path, entries) for path, entries in zip(paths, self._entries, strict=True)])
        copies = [
            DirectoryCopy(path, os.path.join(self.root, str(number)), self._entries[number], self._clean[number])
            for number, path in enumerate(paths)
        ]
        return restore.stage(files, sorted(copies, key=lambda one: one.target != first))


def check_room(needs: Sequence[tuple[str, Sequence[Entry]]]) -> None:
    """Raises OperationError if a file system has no room for copies of these entries below these paths."""
    needed: dict[int, int] = {}
    for path, entries in needs:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        device, free = os.stat(path).st_dev, free_bytes(path)
        needed[device] = needed.get(device, _SPARE_BYTES) + folder_copies.room_for(entries)
        if needed[device] > free:
            raise OperationError(
                f"no room for the copy: {path} needs {needed[device]} bytes on its file system, which has {free} free"
            )


def free_bytes(path: str) -> int:
    """Returns the bytes that this process may still write to the file system of a path."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_bavail


def _check_mounts(path: str) -> None:
    """Raises OperationError if an entry of a data directory is a mount point, which cannot be renamed."""
    for name in sorted(os.listdir(path) if os.path.isdir(path) else ()):
        if name not in restore.LEFT_ALONE and os.path.ismount(os.path.join(path, name)):
            raise OperationError(f"{os.path.join(path, name)} is a mount point, which a restore cannot replace")
