"""A file system with an undo journal: before bytes are removed, they are saved in a backup with their position.

Every byte that code removes, cuts or overwrites through `SavingFiles` is saved and synced before the change. The
backup's folder is outside the data directory, where no start looks.

    manifest.jsonl                a JSON object per line: first the directory, then each change, synced before it
    <folder>/<file>.<from>-<to>   the bytes that were there, from one position up to another

    does      created | removed | replaced | renamed (to) | cut | written | rewritten | folder removed
    file, from, to, saved, why; size and modified_ns as they were

`put_back` undoes the changes of a manifest, newest first; also those of an interrupted repair.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

from ..errors import StorageError, storage_errors
from .files import File, Files
from .folder_copies import copy_bytes

MANIFEST = "manifest.jsonl"
VERSION = 1
TEMPORARY = ".tmp"  # removed by a start on the directory
_COPY_BYTES = 1 << 20

Part = tuple[int, int] | bytes
"""A part of a rewritten file: a range of the old one, or new bytes."""


class Backup:
    """The backup folder of one repair, made when the first change is saved. Raises OSError."""

    def __init__(self, files: Files, path: str, root: str) -> None:
        self.path = path
        self._files = files
        self._root = root
        self._manifest: File | None = None
        self._end = 0
        self._is_broken = False
        self._names: set[str] = set()
        self.saved_bytes = 0

    def name_for(self, file: str, start: int, end: int) -> str:
        """Returns an unused name in the folder."""
        name = wanted = f"{file}.{start}-{end}"
        number = 1
        while name in self._names:
            number += 1
            name = f"{wanted}.{number}"
        self._names.add(name)
        return name

    @contextlib.contextmanager
    def _made(self) -> Generator[File]:
        """Yields the manifest, made on first use. After an error the backup accepts nothing more, so that no unsaved
        change is made: its contents up to there are valid."""
        if self._is_broken:
            raise OSError(errno.EIO, "an error ended this backup", self.path)
        try:
            if self._manifest is None:
                self._files.make_directory(self.path)
                self._files.sync_directory(os.path.dirname(self.path))
                self._manifest = self._files.open(os.path.join(self.path, MANIFEST), create=True)
                self._append(self._manifest, {"version": VERSION, "directory": self._root})
                self._files.sync_directory(self.path)
            yield self._manifest
        except OSError:
            self._is_broken = True
            raise

    def _append(self, manifest: File, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        manifest.write(self._end, data)
        manifest.sync()
        self._end += len(data)

    def note(self, line: dict[str, Any]) -> None:
        """Writes a line of the manifest, durably."""
        with self._made() as manifest:
            self._append(manifest, line)

    def save(self, source: File, name: str, start: int, end: int) -> None:
        """Copies a part of a file into the folder, durably."""
        target = os.path.join(self.path, name)
        with self._made():
            self._files.make_directory(os.path.dirname(target))
            with contextlib.closing(self._files.open(target, create=True)) as copy:
                copy.truncate(0)
                copy_bytes(source, start, end, copy, 0)
                copy.sync()
            self._files.sync_directory(os.path.dirname(target))
            self._files.sync_directory(self.path)
        self.saved_bytes += end - start

    def take(self, path: str, name: str) -> None:
        """Moves a whole file into the folder, durably."""
        target = os.path.join(self.path, name)
        with contextlib.closing(self._files.open(path)) as file:
            size = file.size()
            with self._made():
                file.sync()
                self._files.make_directory(os.path.dirname(target))
                self._files.sync_directory(self.path)
            try:
                self._files.replace(path, target)
                self.saved_bytes += size
            except OSError as error:
                if error.errno != errno.EXDEV:  # otherwise the backup is on another disk
                    raise
                self.save(file, name, 0, size)
                self._files.remove(path)
        self._files.sync_directory(os.path.dirname(target))
        self._files.sync_directory(os.path.dirname(path))

    def close(self) -> None:
        if self._manifest is not None:
            self._manifest.close()
            self._manifest = None


class NoBackup(Backup):
    """Counts the bytes that would be saved; for a run on an `Overlay`."""

    def note(self, line: dict[str, Any]) -> None:
        pass

    def save(self, source: File, name: str, start: int, end: int) -> None:
        self.saved_bytes += end - start

    def take(self, path: str, name: str) -> None:
        self.saved_bytes += self._files.size(path)
        self._files.remove(path)


class _SavingFile:
    """An open file; see `files.File`."""

    def __init__(self, saving: SavingFiles, path: str, file: File) -> None:
        self._saving, self._path, self._file = saving, path, file
        self.size, self.read, self.sync, self.close = file.size, file.read, file.sync, file.close

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if not self._saving.is_own(self._path):
            size = self._file.size()
            end = min(position + len(data), size)
            if end == position + len(data) and bytes(self._file.read(position, len(data))) == bytes(data):
                return
            self._saving.save_range(self._path, self._file, "written", min(position, size), max(position, end))
        self._file.write(position, data)

    def truncate(self, size: int) -> None:
        if not self._saving.is_own(self._path):
            was = self._file.size()
            if size != was:
                self._saving.save_range(self._path, self._file, "cut", min(size, was), was)
        self._file.truncate(size)


class SavingFiles:
    """A `Files` that saves changed bytes. `why` is recorded in the manifest with a change; `before_first` is called
    once, before the first change."""

    def __init__(
        self, files: Files, root: str, backup: Backup, before_first: Callable[[], None] = lambda: None
    ) -> None:
        self.backup = backup
        self.why = ""
        self._files = files
        self._root = root
        self._own: set[str] = set()
        self._touched: list[str] = []
        self._settled = 0
        self._before_first: Callable[[], None] | None = before_first
        # These change no bytes that would have to be saved.
        self.read_bytes, self.size, self.exists, self.list = files.read_bytes, files.size, files.exists, files.list
        self.modified_ns, self.set_modified_ns = files.modified_ns, files.set_modified_ns
        self.copy_mode, self.make_directory = files.copy_mode, files.make_directory
        self.sync_directory, self.lock = files.sync_directory, files.lock

    # -- saving

    def is_own(self, path: str) -> bool:
        """Returns whether the whole file was made here: none of its bytes need to be saved."""
        return path in self._own

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._root)

    def _begin(self, path: str) -> None:
        if self._before_first is not None:
            first, self._before_first = self._before_first, None
            first()
        self._touched.append(path)

    def _note(self, does: str, path: str, **more: Any) -> None:
        self.backup.note({"does": does, "file": self._relative(path), **more, "why": self.why})

    def save_range(self, path: str, file: File, does: str, start: int, end: int) -> None:
        """Saves the bytes that a change of a file removes, and records the change."""
        self._begin(path)
        saved = None
        if end > start:
            saved = self.backup.name_for(self._relative(path), start, end)
            self.backup.save(file, saved, start, end)
        times = {"size": file.size(), "modified_ns": self._files.modified_ns(path)}
        self._note(does, path, **{"from": start, "to": end, "saved": saved, **times})

    def _save_whole(self, path: str, does: str) -> None:
        with contextlib.closing(self._files.open(path)) as file:
            self.save_range(path, file, does, 0, file.size())

    def rewrite(self, path: str, parts: Sequence[Part]) -> None:
        """Replaces a file by parts of itself and new bytes, atomically and durably. Only the omitted parts are
        saved."""
        self._begin(path)
        with contextlib.closing(self._files.open(path)) as file:
            modified_ns = self._files.modified_ns(path)
            file.sync()  # the recorded state must be valid after a power loss
            if self._files.exists(path + TEMPORARY):
                self.remove(path + TEMPORARY)
            self._note("created", path + TEMPORARY)
            if path in self._own:
                _write_parts(self._files, path, [(file, part) for part in parts], modified_ns)
                return
            size, at = file.size(), 0
            dropped: list[list[int | str]] = []
            for start, end in [*(part for part in parts if isinstance(part, tuple)), (file.size(), file.size())]:
                if start > at:
                    saved = self.backup.name_for(self._relative(path), at, start)
                    self.backup.save(file, saved, at, start)
                    dropped.append([at, start, saved])
                at = max(at, end)
            recorded = [list(part) if isinstance(part, tuple) else len(part) for part in parts]
            self._note("rewritten", path, parts=recorded, dropped=dropped, size=size, modified_ns=modified_ns)
            _write_parts(self._files, path, [(file, part) for part in parts], modified_ns)

    def settle(self) -> None:
        """Makes all changes durable, and records sizes and times of the changed files in the manifest. Raises
        OSError."""
        if self._settled == len(self._touched):
            return
        folders: set[str] = set()
        states: dict[str, list[int]] = {}
        for path in sorted(set(self._touched)):
            folders.add(os.path.dirname(path))
            if self._files.exists(path):
                with contextlib.closing(self._files.open(path)) as file:
                    file.sync()
                    states[self._relative(path)] = [file.size(), self._files.modified_ns(path)]
        for folder in sorted(folders):
            if self._files.exists(folder):
                self._files.sync_directory(folder)
        self.backup.note({"does": "ends", "files": states})
        self._settled = len(self._touched)

    # -- Files

    def open(self, path: str, *, create: bool = False) -> File:
        if create and not self._files.exists(path):
            self._begin(path)
            self._note("created", path)
            self._own.add(path)
        return _SavingFile(self, path, self._files.open(path, create=create))

    def replace(self, source: str, target: str) -> None:
        self._files.size(source)  # FileNotFoundError, before anything is recorded
        if self._files.exists(target):
            self._save_whole(target, "replaced")
        elif source in self._own:
            self._begin(target)
            self._note("created", target)
        is_own = source in self._own
        if not is_own:
            self._begin(source)
            self._note("renamed", source, to_file=self._relative(target))
        self._own.discard(source)
        (self._own.add if is_own else self._own.discard)(target)
        self._touched.append(target)
        self._files.replace(source, target)
        # otherwise, after a power loss, a file made later under the old name would be taken for this one
        if not is_own:
            for folder in {os.path.dirname(source), os.path.dirname(target)}:
                self._files.sync_directory(folder)

    def remove(self, path: str) -> None:
        if path in self._own:
            self._own.discard(path)
            self._files.remove(path)
            return
        size = self._files.size(path)  # FileNotFoundError, before anything is recorded
        self._begin(path)
        saved = self.backup.name_for(self._relative(path), 0, size)
        times = {"size": size, "modified_ns": self._files.modified_ns(path)}
        self._note("removed", path, **{"from": 0, "to": size, "saved": saved, **times})
        self.backup.take(path, saved)

    def remove_directory(self, path: str) -> None:
        self._begin(path)
        self._note("folder removed", path)
        self._files.remove_directory(path)


def _write_parts(files: Files, path: str, parts: Sequence[tuple[File, Part]], modified_ns: int) -> None:
    """Replaces a file by another, atomically and durably."""
    temporary = path + TEMPORARY
    at = 0
    with contextlib.closing(files.open(temporary, create=True)) as target:
        target.truncate(0)
        for source, part in parts:
            if isinstance(part, tuple):
                copy_bytes(source, *part, target, at)
                at += part[1] - part[0]
            else:
                target.write(at, part)
                at += len(part)
        if files.exists(path):
            files.copy_mode(path, temporary)
        target.sync()
    files.set_modified_ns(temporary, modified_ns)
    files.replace(temporary, path)
    files.sync_directory(os.path.dirname(path))


# -- undoing


def read_manifest(files: Files, backup: str) -> list[dict[str, Any]]:
    """Returns the lines of a backup's manifest, up to one that was incomplete at a power loss: its change was not made.
    Raises StorageError."""
    path = os.path.join(backup, MANIFEST)
    lines: list[dict[str, Any]] = []
    try:
        for line in files.read_bytes(path).splitlines(keepends=True):
            parsed: Any = json.loads(line) if line.endswith(b"\n") else None
            if not isinstance(parsed, dict):
                break
            lines.append(cast("dict[str, Any]", parsed))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    except ValueError:
        pass
    if not lines or lines[0].get("version") != VERSION:
        raise StorageError(f"{path} is not the manifest of a repair")
    return lines


def put_back(files: Files, root: str, backup: str) -> int:
    """Undoes the changes of a manifest, newest first, and returns their number.

    May be interrupted and run again. Raises StorageError if a file has changed since the repair: the later changes
    would be lost.
    """
    lines = read_manifest(files, backup)
    if os.path.realpath(lines[0]["directory"]) != os.path.realpath(root):
        raise StorageError(f"{backup} belongs to {lines[0]['directory']}, not to {root}")
    undone = [line["change"] for line in lines if line.get("does") == "undone"]
    changes = [line for line in lines[1:] if line["does"] not in ("ends", "undone")]
    left = min(undone, default=len(changes))
    with storage_errors(f"cannot put back {backup}"):
        if lines[-1].get("does") == "ends":
            _check_unchanged(files, root, lines[-1]["files"])
        with contextlib.closing(files.open(os.path.join(backup, MANIFEST))) as manifest:
            end = sum(len(json.dumps(line)) + 1 for line in lines)
            for number in reversed(range(left)):
                path = os.path.join(root, changes[number]["file"])
                _undo(files, path, changes[number], root, backup)
                if files.exists(os.path.dirname(path)):
                    files.sync_directory(os.path.dirname(path))
                # Each change can be undone twice, but not two of them in turn: the progress is recorded.
                data = json.dumps({"does": "undone", "change": number}).encode() + b"\n"
                manifest.truncate(end)
                manifest.write(end, data)
                manifest.sync()
                end += len(data)
    return len(changes)


def _check_unchanged(files: Files, root: str, states: dict[str, list[int]]) -> None:
    for name, (size, modified_ns) in states.items():
        path = os.path.join(root, name)
        if not files.exists(path) or files.size(path) != size or files.modified_ns(path) != modified_ns:
            raise StorageError(f"{name} was changed since the repair: it is not put back")


def _undo(files: Files, path: str, line: dict[str, Any], root: str, backup: str) -> None:
    does = line["does"]
    if does == "created":
        with contextlib.suppress(FileNotFoundError):
            files.remove(path)
    elif does == "folder removed":
        files.make_directory(path)
    elif does == "renamed":
        if not files.exists(path):
            files.replace(os.path.join(root, line["to_file"]), path)
    elif does == "rewritten":
        _undo_rewrite(files, path, line, backup)
    elif does == "removed" and files.exists(path):
        return  # it was not removed, or is already put back
    elif does in ("removed", "replaced"):
        with contextlib.ExitStack() as stack:
            parts: list[tuple[File, Part]] = []
            if line["saved"]:
                saved = stack.enter_context(contextlib.closing(files.open(os.path.join(backup, line["saved"]))))
                parts.append((saved, (0, line["size"])))
            files.make_directory(os.path.dirname(path))
            _write_parts(files, path, parts, line["modified_ns"])
    elif does in ("cut", "written"):
        with contextlib.closing(files.open(path)) as file:
            if line["saved"]:
                with contextlib.closing(files.open(os.path.join(backup, line["saved"]))) as saved:
                    copy_bytes(saved, 0, line["to"] - line["from"], file, line["from"])
            if file.size() != line["size"]:
                file.truncate(line["size"])
            file.sync()
        files.set_modified_ns(path, line["modified_ns"])
    else:
        raise StorageError(f"{backup}: {does!r} is an unknown kind of change")


def _undo_rewrite(files: Files, path: str, line: dict[str, Any], backup: str) -> None:
    """Restores the omitted parts between the kept ones."""
    new_size = sum(part if isinstance(part, int) else part[1] - part[0] for part in line["parts"])
    with contextlib.ExitStack() as stack:

        def opened(name: str) -> File:
            return stack.enter_context(contextlib.closing(files.open(name)))

        file = opened(path)
        saved = [(start, end, opened(os.path.join(backup, name))) for start, end, name in line["dropped"]]
        is_old = file.size() == line["size"] and all(_same(file, start, end, of) for start, end, of in saved)
        if is_old and (saved or file.size() != new_size):
            return  # it was not rewritten, or is already put back
        if file.size() != new_size:
            raise OSError(errno.EIO, f"{file.size()} bytes where the repair left {new_size}", path)
        pieces: list[tuple[int, File, tuple[int, int]]] = [(start, of, (0, end - start)) for start, end, of in saved]
        at = 0
        for part in line["parts"]:
            if isinstance(part, int):
                at += part
            else:
                pieces.append((part[0], file, (at, at + part[1] - part[0])))
                at += part[1] - part[0]
        pieces.sort(key=lambda piece: piece[0])
        _write_parts(files, path, [(of, span) for _, of, span in pieces], line["modified_ns"])


def _same(file: File, start: int, end: int, saved: File) -> bool:
    for at in range(start, end, _COPY_BYTES):
        length = min(_COPY_BYTES, end - at)
        if bytes(file.read(at, length)) != bytes(saved.read(at - start, length)):
            return False
    return True
