"""Makes written files part of an export atomically, and recovers an interrupted export.

A group of pieces is committed in this order: `_ottla/pending.json` lists the planned changes; the files are renamed,
durably; a Delta table adds the files in one transaction with the number of the document; `pending.json` is renamed into
the manifest. Recovery from a `pending.json` removes the files that it names, unless the table has that transaction:
then it completes the commit. So a row is in the export at most once, and a document never names a missing file.

Owns the folder while it is open, by a lock. All access goes through `storage.io.files.Files`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....storage.io.files import Files, Lock, SharedFiles, write_atomically
from ...objects.places import Place, files_of
from . import layout
from .manifest import Commit, Exported, ExportError, Manifest, document_name, parse, paths
from .tasks import Format, Work, Written

GROUP_PIECES = 64
GROUP_FILES = 1000
GROUP_SECONDS = 10.0
"""A group is committed with this number of pieces or files, or at this age: an interruption repeats at most one
group."""


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
        read: dict[str, Any] = {"version": 1, "format": self.format, "isolation": self.isolation}
        read["decoding"] = self.decoding
        more = {"table": self.table, "key_decoding": self.key_decoding}
        read |= {name: value for name, value in more.items() if value is not None}
        return json.dumps(read, indent=1).encode() + b"\n"

    @classmethod
    def parse(cls, data: bytes, root: str) -> Settings:
        """Parses the settings of a folder. Raises ExportError."""
        try:
            read = json.loads(data)
            version = read["version"]
            more = (read.get("table"), read.get("key_decoding"))
            there = cls(read["format"], read["isolation"], read["decoding"], *more)
        except (ValueError, TypeError, KeyError) as error:
            raise ExportError(f"{root}/{layout.SETTINGS} is not a valid settings file: {error}") from error
        if version != 1:
            raise ExportError(f"{root}/{layout.SETTINGS} has version {version}, this release supports 1")
        return there

    def check(self, data: bytes, root: str) -> None:
        """Compares with the settings of a folder. Raises ExportError if they differ."""
        there = Settings.parse(data, root)
        for name in ("format", "isolation", "decoding", "table", "key_decoding"):
            old, new = getattr(there, name), getattr(self, name)
            if old != new and not (name in _DECODINGS and self.adds_columns and _may_follow(old or {}, new or {})):
                raise ExportError(
                    f"{root} has an export with {name.replace('_', ' ')} {_shown(old)}, not {_shown(new)}:"
                    " use the same or another folder"
                )


_DECODINGS = ("decoding", "key_decoding")


def _may_follow(old: dict[str, str | None], new: dict[str, str | None]) -> bool:
    """Returns whether a decoding may replace another; the table decides on their columns."""
    return not old or (old.get("kind") == new.get("kind") and set(old) <= set(new))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(one) for one in value.values() if one is not None)
    return "none" if value is None else str(value)


class Table(Protocol):
    """A table with its own list of files."""

    def version(self) -> int | None:
        """Returns the number of the last document whose files the table has, or None."""
        ...

    def add(self, commit: Commit) -> None:
        """Adds the files of a document with its number, in one transaction."""
        ...

    def extend(self) -> None:
        """Adds the columns that the files have and the table lacks. Raises ExportError if others differ."""
        ...

    def close(self) -> None:
        """Releases what the table holds open."""
        ...


class Committer:
    """An export folder from `open` to `close`; a context manager.

    `manifest` is the record of earlier exports. Raises ExportError for a folder in an invalid state, OSError.
    """

    def __init__(self, files: Files, root: str, lock: Lock, table: Table | None) -> None:
        self.root = root
        self.manifest = Manifest()
        self._files = files
        self._lock: Lock | None = lock
        self.table = table
        self._waiting: list[tuple[Exported, tuple[str, ...]]] = []
        self._since_s: float | None = None
        self._is_broken = False
        self._durable_folders: set[str] = set()

    @classmethod
    def open(
        cls,
        root: str,
        settings: Settings,
        *,
        files: Files | None = None,
        table: Callable[[], Table] | None = None,
    ) -> Committer:
        """Locks the folder, creates it if necessary, and completes or undoes an interrupted commit."""
        disk = files if files is not None else SharedFiles()
        _check(root, settings, disk)
        own = os.path.join(root, layout.OWN)
        for folder in (layout.MANIFEST, layout.UNFINISHED):
            disk.make_directory(os.path.join(root, folder))
        try:
            lock = disk.lock(os.path.join(root, layout.LOCK))
        except BlockingIOError as error:
            raise ExportError(f"{root} is in use by another export: {error.strerror}") from error
        try:
            place = os.path.join(root, layout.SETTINGS)
            before = settings
            if disk.exists(place):  # it may have been created since the check
                data = disk.read_bytes(place)
                settings.check(data, root)
                before = Settings.parse(data, root)
            else:
                cls._write(disk, place, settings.to_json())
            for folder in (own, root, os.path.dirname(os.path.abspath(root))):
                disk.sync_directory(folder)
            made = cls(disk, root, lock, table() if table is not None else None)
        except BaseException:
            lock.release()
            raise
        try:
            made._recover()
            if before != settings and made.table is not None:
                made.table.extend()
                write_atomically(disk, place, settings.to_json())
        except BaseException:
            made._release()
            raise
        return made

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

    @staticmethod
    def _write(files: Files, path: str, data: bytes) -> None:
        """Writes a small file as a whole, durably."""
        write_atomically(files, path, data)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name)

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
        self._write(self._files, self._path(layout.PENDING), commit.to_json())
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
        folder = self._path(layout.MANIFEST)
        place = os.path.join(folder, document_name(commit.number))
        self._files.replace(self._path(layout.PENDING), place)
        self._files.sync_directory(folder)
        self._files.sync_directory(self._path(layout.OWN))
        self.manifest.take(commit)

    def _make(self, folder: str) -> None:
        """Creates a folder and its parents, durably."""
        if folder not in self._durable_folders:
            self._files.make_directory(folder)
        while folder != self.root and folder not in self._durable_folders:
            self._durable_folders.add(folder)
            folder = os.path.dirname(folder)
            self._files.sync_directory(folder)


def stored(root: str, place: Place | None = None) -> Settings | None:
    """Returns the settings of an earlier export into a folder, None without one. Raises ExportError, OSError."""
    files, path = files_of(place), os.path.join(root, layout.SETTINGS)
    return Settings.parse(files.read_bytes(path), root) if files.exists(path) else None


def check(root: str, settings: Settings, files: Files | None = None) -> Manifest:
    """Checks that a folder can be exported to with these settings, without changing anything, and returns its manifest.
    Raises ExportError, OSError."""
    disk = files if files is not None else SharedFiles()
    _check(root, settings, disk)
    return Manifest.read(disk, root)


def _check(root: str, settings: Settings, disk: Files) -> None:
    try:
        names = disk.list(root)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise ExportError(f"{root} is not a folder") from error
    if layout.OWN not in names and names:
        raise ExportError(f"{root} is not empty, and is not an export: name another folder")
    place = os.path.join(root, layout.SETTINGS)
    if disk.exists(place):
        settings.check(disk.read_bytes(place), root)
    elif set(names) - {layout.OWN}:
        raise ExportError(f"{root} has files, but no {layout.SETTINGS}: it is not a complete export")
