"""Commits an export to an object store, which has no renames: a document decides by its creation.

A group of pieces is committed in this order: `_ottla/pending.json` is created, which must not exist; the lock is
renewed, which fails if another process took it over; the tasks' objects are copied to their names in the store, several
at the same time; a table adds them; the document of the manifest is created, which must not exist; the tasks'
objects and `pending.json` are deleted together. These are four requests, and one for each object.

Recovery from a `pending.json` first deletes the tasks' objects, so that a late process can copy none. Then it creates
the document without files: if that succeeds, the commit can no longer happen, and its objects are deleted; if the
document exists, the commit has happened. So both hold that hold for folders: a row is in the export at most once, and a
document never names a missing object, even if a process that lost its lock continues. A table has its own log: there
such a process is stopped by the time of its lock alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ....storage.io.files import Files
from ...objects.files import ObjectFiles
from . import layout
from .commit import Committer
from .manifest import Commit, ExportError, Manifest, document_name, exported_files, parse, paths


class ObjectCommitter(Committer):
    """An export in a store from `open` to `close`; see `Committer`."""

    _sources: Sequence[str] = ()

    @property
    def _objects(self) -> ObjectFiles:
        assert isinstance(self._files, ObjectFiles)
        return self._files

    @staticmethod
    def _write(files: Files, path: str, data: bytes) -> None:
        assert isinstance(files, ObjectFiles)
        try:
            files.create(path, data)
        except FileExistsError as error:
            raise ExportError(f"{path} was written by another export: only one may run at a time") from error

    def _publish(self, named: Sequence[tuple[str, str]]) -> None:
        # The lock is still ours: so a process that takes it over finds `pending.json`.
        self._objects.renew()
        self._sources = [self._path(f"{layout.UNFINISHED}/{name}") for name, _ in named]
        try:
            self._objects.copy_all([(source, target) for source, (_, target) in zip(self._sources, named, strict=True)])
        except FileNotFoundError as error:
            raise ExportError(f"{error.filename}, which a task wrote, is missing: another export removed it") from error
        self._objects.check()  # next, a table may take them

    def _end(self, commit: Commit) -> None:
        if not self._decides(commit):
            raise ExportError(f"{self.root}: another export wrote {document_name(commit.number)} of the manifest")
        self.manifest.take(commit)
        self._objects.remove_all([*self._sources, self._path(layout.PENDING)])
        self._sources = ()

    def _decides(self, commit: Commit) -> bool:
        """Creates the document, or returns False if another one has its number."""
        try:
            self._objects.create(self._document(commit.number), commit.to_json())
        except FileExistsError:
            return False
        return True

    def _sweep(self) -> None:
        folder = self._path(layout.UNFINISHED)
        with contextlib.suppress(FileNotFoundError):
            self._objects.remove_all([f"{folder}/{name}" for name in self._objects.list(folder)])

    # -- recovery

    def _may_follow(self, number: int) -> bool:
        return number <= self.manifest.number + 1

    def _settle(self, pending: Commit, *, is_in_table: bool) -> None:
        number = pending.number
        if number == self.manifest.number + 1:
            self._decides(pending if is_in_table else Commit(number, ()))
            self.manifest = Manifest.read(self._objects, self.root)
        document = self._document(number)
        if parse(self._objects.read_bytes(document), document) != pending:
            named = {file.path for _, file in exported_files(self._objects, self.root)}
            self._objects.remove_all([self._path(path) for path in sorted(paths(pending.exported) - named)])
        with contextlib.suppress(FileNotFoundError):
            self._objects.remove(self._path(layout.PENDING))

    def _document(self, number: int) -> str:
        return self._path(f"{layout.MANIFEST}/{document_name(number)}")
