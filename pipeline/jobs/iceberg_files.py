"""The metadata files of Iceberg tables on local disks: durable before a catalog names them.

pyiceberg does not sync what it writes, but SQLite does: after a loss of power the catalog of an export could name a
file that is not there. Named by `py-io-impl` in the properties of that catalog.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ...storage.io.files import DiskFiles, Files


class SyncedFileIO(PyArrowFileIO):
    """Files as of pyiceberg; a new one is synced when it is closed, and its folder."""

    files: Files = DiskFiles()

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _Stream(super().create(overwrite), self._path)


class _Stream:
    """An output stream of pyiceberg."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def write(self, data: bytes) -> int:
        return self._stream.write(data)

    def tell(self) -> int:  # words: quoted
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        with contextlib.closing(SyncedFileIO.files.open(self._path)) as file:
            file.sync()
        folder = os.path.dirname(self._path)
        for one in (folder, os.path.dirname(folder)):
            SyncedFileIO.files.sync_directory(one)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
