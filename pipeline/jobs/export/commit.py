"""Makes written files part of an export atomically, and recovers an interrupted export.

A group of pieces is committed in this order: `_ottla/pending.json` lists the planned changes; the files are renamed,
durably; a Delta table adds the files in one transaction with the number of the document; `pending.json` is renamed into
the manifest. Recovery from a `pending.json` removes the files that it names, unless the table has that transaction:
then it completes the commit. So a row is in the export at most once, and a document never names a missing file.
`ObjectCommitter` does this in an object store.

Owns the folder while it is open, by a lock. All access goes through `storage.io.files.Files`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ....storage.io.files import Files, Lock, SharedFiles, write_atomically
from ...objects.places import Place, files_of
from ..iceberg_catalog import CatalogTable
from . import layout
from .delta import DeltaTable
from .iceberg import IcebergTable, catalog_of
from .manifest import Commit, Exported, ExportError, Manifest, document_name, exported_files, parse, paths
from .tasks import Form, Format, Work, Written

if TYPE_CHECKING:
    from ...objects.files import ObjectFiles

GROUP_PIECES = 64
GROUP_FILES = 1000
GROUP_SECONDS = 10.0
"""A group is committed with so many pieces or files, or at this age: an interruption repeats at most one group."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that all runs into a folder share. `decoding` and `key_decoding` describe the decoding of values and
    keys, None without; `table` a table in a catalog. `adds_columns` is of one run: its decodings may replace those of
    the folder."""

    format: Format = "parquet"
    isolation: str = "read_committed"
    decoding: dict[str, str | None] | None = None
    table: str | None = None
    key_decoding: dict[str, str | None] | None = None
    adds_columns: bool = field(default=False, compare=False)

    def to_json(self) -> bytes:
        read = {"version": 1, "format": self.format, "isolation": self.isolation, "decoding": self.decoding}
        more = {"table": self.table, "key_decoding": self.key_decoding}
        read |= {name: value for name, value in more.items() if value is not None}
        return json.dumps(read, indent=1).encode() + b"\n"

    def check(self, there: Settings, root: str) -> None:
        """Compares with the settings of a folder. Raises ExportError if they differ."""
        for name in ("format", "isolation", "decoding", "table", "key_decoding"):
            old, new = getattr(there, name), getattr(self, name)
            is_addition = self.adds_columns and name in ("decoding", "key_decoding")
            if old != new and not (is_addition and _may_follow(old or {}, new or {})):
                raise ExportError(
                    f"{root} has an export with {name.replace('_', ' ')} {_shown(old)}, not {_shown(new)}:"
                    " use the same or another folder"
                )


def _may_follow(old: dict[str, str | None], new: dict[str, str | None]) -> bool:
    """Returns whether a decoding may replace another; the table decides on their columns."""
    return not old or (old.get("kind") == new.get("kind") and set(old) <= set(new))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(one) for one in value.values() if one is not None)
    return "none" if value is None else str(value)


Table = DeltaTable | IcebergTable
"""A table with its own list of files. `version()` is the number of the last document whose files it has, or None; `add`
adds the files of a document with its number, in one transaction; `extend` adds the columns that the files have and it
lacks, and raises ExportError if others differ."""


class Committer:
    """An export folder until `close`; a context manager. Locks the folder, creates it if necessary, and completes or
    undoes an interrupted commit.

    `manifest` is the record of earlier exports. Raises ExportError for a folder in an invalid state, OSError.
    """

    def __init__(
        self, root: str, settings: Settings, *, files: Files | None = None, table: Callable[[], Table] | None = None
    ) -> None:
        self.root = root
        self.manifest = Manifest()
        self.table: Table | None = None
        self._files = files if files is not None else SharedFiles()
        self._waiting: list[tuple[Exported, tuple[str, ...]]] = []
        self._since_s: float | None = None
        self._is_broken = False
        self._durable_folders: set[str] = set()
        check(root, settings, self._files)
        for folder in (layout.MANIFEST, layout.UNFINISHED):
            self._files.make_directory(self._path(folder))
        try:
            self._lock: Lock | None = self._files.lock(self._path(layout.LOCK))
        except BlockingIOError as error:
            raise ExportError(f"{root} is in use by another export: {error.strerror}") from error
        try:
            place, before = self._path(layout.SETTINGS), _stored(root, self._files)
            if before is not None:  # it may have been created since the check
                settings.check(before, root)
            else:
                self._write(place, settings.to_json())
            for folder in (self._path(layout.OWN), root, os.path.dirname(os.path.abspath(root))):
                self._files.sync_directory(folder)
            self.table = table() if table is not None else None
            self._recover()
            if before not in (None, settings) and self.table is not None:
                self.table.extend()
                write_atomically(self._files, place, settings.to_json())
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Committer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the folder. Uncommitted files are removed."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._sweep()
            self._release()

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        try:
            if self.table is not None:
                self.table.close()
        finally:
            if lock is not None:
                lock.release()

    def _write(self, path: str, data: bytes) -> None:
        """Writes a small file as a whole, durably."""
        write_atomically(self._files, path, data)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def _document(self, number: int) -> str:
        return self._path(f"{layout.MANIFEST}/{document_name(number)}")

    # -- recovery

    def _recover(self) -> None:
        self._sweep()
        self.manifest = Manifest.read(self._files, self.root)
        place, done = self._path(layout.PENDING), self.table.version() if self.table is not None else None
        if self._files.exists(place):
            pending = parse(self._files.read_bytes(place), place)
            if not self._may_follow(pending.number):
                raise ExportError(f"{place} does not follow document {document_name(self.manifest.number)}")
            self._settle(pending, is_in_table=done is not None and done >= pending.number)
        if done is not None and done > self.manifest.number:
            raise ExportError(f"{self.root} lacks manifest documents up to {document_name(done)}, which its table has")

    def _may_follow(self, number: int) -> bool:
        """Returns whether an interrupted commit may have this number."""
        return number == self.manifest.number + 1

    def _settle(self, pending: Commit, *, is_in_table: bool) -> None:
        """Completes an interrupted commit, or undoes it."""
        if is_in_table:
            self._end(pending)
            return
        folders = set()
        for path in map(self._path, paths(pending.exported)):
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(path)
                folders.add(os.path.dirname(path))
        for folder in folders:
            self._files.sync_directory(folder)
        self._files.remove(self._path(layout.PENDING))
        self._files.sync_directory(self._path(layout.OWN))

    def _sweep(self) -> None:
        """Removes the uncommitted files of tasks."""
        folder = self._path(layout.UNFINISHED)
        for name in self._files.list(folder):
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(os.path.join(folder, name))

    # -- committing

    def skip(self, gone: Sequence[Exported]) -> None:
        """Records offsets that no longer exist."""
        self._waiting += [(one, ()) for one in gone]

    def add(self, work: Work, written: Written, topic_id: str | None) -> Exported:
        """Adds a finished piece of work. It is committed in a group with others."""
        exported = Exported(
            topic=work.topic,
            topic_id=topic_id,
            generation=work.generation,
            partition=work.partition,
            start=work.start,
            end=work.end,
            records=written.records,
            undecoded=written.undecoded,
            lost=written.lost,
            files=tuple(file for _, file in written.files),
        )
        self._waiting.append((exported, tuple(name for name, _ in written.files)))
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        many = sum(len(names) for _, names in self._waiting) >= GROUP_FILES
        if many or len(self._waiting) >= GROUP_PIECES or now_s - self._since_s >= GROUP_SECONDS:
            self.commit()
        return exported

    def commit(self) -> None:
        """Commits everything that was added. After a failure, only opening the folder again can continue."""
        waiting, self._waiting, self._since_s = self._waiting, [], None
        if not waiting or self._is_broken:
            return
        self._is_broken = True  # until the commit succeeds: another one would overwrite the pending document
        commit = Commit(self.manifest.number + 1, tuple(one for one, _ in waiting))
        self._write(self._path(layout.PENDING), commit.to_json())
        self._publish(
            [
                (name, self._path(file.path))
                for exported, names in waiting
                for name, file in zip(names, exported.files, strict=True)
            ]
        )
        if self.table is not None:
            self.table.add(commit)
        self._end(commit)
        self._is_broken = False

    def _publish(self, named: Sequence[tuple[str, str]]) -> None:
        """Gives the tasks' files their paths, durably."""
        changed: dict[str, None] = {}
        for name, target in named:
            self._make(os.path.dirname(target))
            try:
                self._files.replace(self._path(f"{layout.UNFINISHED}/{name}"), target)
            except FileNotFoundError as error:
                raise ExportError(
                    f"a task wrote {layout.UNFINISHED}/{name}, but it is missing in {self.root}: the folder must be "
                    "mounted at the same path on the workers"
                ) from error
            changed[os.path.dirname(target)] = None
        for folder in changed:
            self._files.sync_directory(folder)

    def _end(self, commit: Commit) -> None:
        self._files.replace(self._path(layout.PENDING), self._document(commit.number))
        for folder in (layout.MANIFEST, layout.OWN):
            self._files.sync_directory(self._path(folder))
        self.manifest.take(commit)

    def _make(self, folder: str) -> None:
        """Creates a folder and its parents, durably."""
        if folder not in self._durable_folders:
            self._files.make_directory(folder)
        while folder != self.root and folder not in self._durable_folders:
            self._durable_folders.add(folder)
            folder = os.path.dirname(folder)
            self._files.sync_directory(folder)


class ObjectCommitter(Committer):
    """An export in an object store, which has no renames: a document decides by its creation.

    A group of pieces is committed in this order: `_ottla/pending.json` is created, which must not exist; the lock is
    renewed, which fails if another process took it over; the tasks' objects are copied to their names in the store,
    several at the same time; a table adds them; the document of the manifest is created, which must not exist; the
    tasks' objects and `pending.json` are deleted together. These are four requests, and one for each object.

    Recovery from a `pending.json` first deletes the tasks' objects, so that a late process can copy none. Then it
    creates the document without files: if that succeeds, the commit can no longer happen, and its objects are deleted;
    if the document exists, the commit has happened. So both hold that hold for folders: a row is in the export at most
    once, and a document never names a missing object, even if a process that lost its lock continues. A table has its
    own log: there such a process is stopped by the time of its lock alone.
    """

    _sources: Sequence[str] = ()

    @property
    def _objects(self) -> ObjectFiles:
        return cast("ObjectFiles", self._files)

    def _write(self, path: str, data: bytes) -> None:
        try:
            self._objects.create(path, data)
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


def opened(
    root: str, settings: Settings, form: Form, catalog: CatalogTable | None = None, place: Place | None = None
) -> Committer:
    """Opens an export in a folder, or in a place of objects, with its table. Raises ExportError; MissingExtra."""
    kind = Committer if place is None else ObjectCommitter
    return kind(root, settings, files=files_of(place), table=opener(root, form, catalog, place))


def opener(
    root: str, form: Form, catalog: CatalogTable | None = None, place: Place | None = None
) -> Callable[[], Table] | None:
    """Returns the function that opens or creates the table in a folder or a place; None for plain Parquet."""
    if form.format == "delta":
        return partial(DeltaTable, root, form.schema, place)
    if form.format == "iceberg":
        return partial(IcebergTable, root, form.schema, catalog or catalog_of(root), place)
    return None


def with_columns(form: Form, table: Table | None) -> Form:
    """Returns the form of the files for a table that is open."""
    return replace(form, columns=table.schema) if isinstance(table, IcebergTable) else form


def stored(root: str, place: Place | None = None) -> Settings | None:
    """Returns the settings of an earlier export into a folder, None without one. Raises ExportError, OSError."""
    return _stored(root, files_of(place))


def _stored(root: str, files: Files) -> Settings | None:
    path = os.path.join(root, layout.SETTINGS)
    if not files.exists(path):
        return None
    try:
        read = json.loads(files.read_bytes(path))
        version, more = read["version"], (read.get("table"), read.get("key_decoding"))
        there = Settings(read["format"], read["isolation"], read["decoding"], *more)
    except (ValueError, TypeError, KeyError) as error:
        raise ExportError(f"{path} is not a valid settings file: {error}") from error
    if version != 1:
        raise ExportError(f"{path} has version {version}, this release supports 1")
    return there


def check(root: str, settings: Settings, files: Files) -> None:
    """Checks that a folder can be exported to with these settings; changes nothing. Raises ExportError, OSError."""
    try:
        names = set(files.list(root))
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise ExportError(f"{root} is not a folder") from error
    if layout.OWN not in names and names:
        raise ExportError(f"{root} is not empty, and is not an export: name another folder")
    if (there := _stored(root, files)) is not None:
        settings.check(there, root)
    elif names - {layout.OWN}:
        raise ExportError(f"{root} has files, but no {layout.SETTINGS}: it is not a complete export")
