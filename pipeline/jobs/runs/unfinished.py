"""Finds what jobs left when they were interrupted, and removes it.

Some jobs write to a place of their own first: an export to `_ottla/unfinished` of its folder, an import to a folder
beside the data directory, `upgrade` and `compact` to files beside the segments. The next run of the same job continues
from there, so nothing has to be removed; it is for jobs that are not run again.

In an object store there are exports alone.

Owns the recognition of these places, and what may be removed: never that of a running job, and never the only copy of a
record.

The document of the report's `to_json`: {"runs": [{kind, path, what, files, bytes, changed (epoch ms or null), state,
problem}]}, where the state is left, removed or kept; the problem of a kept one is a sentence, else null.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....protocol.text import moment, plural
from ....protocol.text import size as size_text
from ....storage import inspect
from ....storage.format.file_names import LOCK
from ....storage.io.files import DiskFiles
from ...backend import ReadError, as_read_error
from ...objects.places import Place, is_url
from ...readers.files.broker_lock import is_locked
from ..export import commit, layout
from ..export.iceberg import own_table
from ..export.tasks import Form
from ..import_ import staging_folder
from ..in_place.directory_hold import OWN_SUFFIXES, held
from ..report import Report

EXPORT, IMPORT, IN_PLACE = "export", "import", "upgrade or compact"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What one run left in `path`: files, their bytes, and when the last of them changed (epoch ms, None without
    files). `kept`: why it cannot be removed, or empty. `place`: of an object store."""

    kind: str
    path: str
    what: str
    files: int
    bytes: int
    changed_ms: int | None
    kept: str = ""
    place: Place | None = None


@dataclass(slots=True)
class RunsReport(Report):
    """What was found in these paths; `removed` by its path, `problems` of what was not."""

    paths: list[str]
    found: list[Unfinished]
    removed: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Returns a line for each run, and its problem."""
        if not self.found:
            yield f"{', '.join(self.paths)}: no job has left anything"
        for one in self.found:
            done = "removed: " if one.path in self.removed else ""
            when = f", last changed {moment(one.changed_ms)} UTC" if one.changed_ms is not None else ""
            amount = f"{plural(one.files, 'file')}, {size_text(one.bytes)}"
            yield f"{one.path}: {done}{one.kind}: {one.what}; {amount}{when}"
            if problem := self._problem(one):
                yield f"  kept: {problem}"

    def _problem(self, one: Unfinished) -> str:
        return "" if one.path in self.removed else self.problems.get(one.path, one.kept)

    def to_dict(self) -> dict[str, Any]:
        runs = []
        for one in self.found:
            document = {name: getattr(one, name) for name in ("kind", "path", "what", "files", "bytes")}
            problem = self._problem(one)
            state = "removed" if one.path in self.removed else "kept" if problem else "left"
            runs.append({**document, "changed": one.changed_ms, "state": state, "problem": problem or None})
        return {"runs": runs}


def unfinished(paths: Sequence[str], store_conf: Mapping[str, str] | None = None) -> list[Unfinished]:
    """Returns what was left in these folders, in the folders directly in them, and beside them if they are data
    directories; in object stores, with the settings `store_conf`, what exports left. Raises ReadError, MissingExtra."""
    found: dict[tuple[str, str], Unfinished] = {}
    if store_conf and not any(map(is_url, paths)):
        raise ReadError("settings of an object store need the URL of one")
    for path in paths:
        if is_url(path):
            for one in _in_store(Place.of(path, store_conf or {}, writes=True)):
                found.setdefault((one.kind, one.path), one)
            continue
        path = os.path.abspath(path)
        with as_read_error(f"cannot read {path}"):
            names = sorted(os.listdir(path))
        inner = [os.path.join(path, name) for name in names]
        for place in (path, staging_folder.staging_path(path), *filter(os.path.isdir, inner)):
            for one in filter(None, (look(place) for look in (_export, _import, _in_place))):
                found.setdefault((one.kind, one.path), one)
    return list(found.values())


def _in_store(place: Place) -> Iterator[Unfinished]:
    files = place.files()
    with as_read_error(f"cannot read {place.url}"):
        try:
            names = files.entries(files.root)
        except FileNotFoundError:
            raise ReadError(f"there is no object in {place.url}") from None
        inner = [f"{files.root}/{name}" for name, size in names.items() if size is None and name != layout.OWN]
        for root in (files.root, *inner):
            own = {one.path.removeprefix(f"{root}/"): one for one in files.below(f"{root}/{layout.OWN}")}
            left = [one for name, one in own.items() if name.startswith((f"{layout.UNFINISHED}/", layout.PENDING))]
            if not left:
                continue
            is_pending = layout.PENDING in own
            what = _of_export(len(left) > is_pending, is_pending)
            what += ", with a lock: it runs, or was killed" * (layout.LOCK in own)
            size, changed = sum(one.size_bytes for one in left), max(one.modified_ms for one in left)
            yield Unfinished(EXPORT, root, what, len(left), size, changed, place=place)


def _of_export(has_pieces: bool, is_pending: bool) -> str:
    words = ["files of pieces that are not in the export"] * has_pieces + ["an interrupted commit"] * is_pending
    return " and ".join(words)


def _amounts(paths: Sequence[str]) -> tuple[int, int, int | None]:
    """Returns number, bytes and last change of the files at and below these paths. Files may vanish meanwhile."""
    count = size = 0
    changed: int | None = None
    for path in paths:
        below = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        for file in below if os.path.isdir(path) else [path]:
            try:
                status = os.stat(file)
            except OSError:
                continue
            count, size = count + 1, size + status.st_size
            changed = max(changed or 0, status.st_mtime_ns // 1_000_000)
    return count, size, changed


def _inside(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    except OSError:
        return []


def _export(place: str) -> Unfinished | None:
    if not os.path.isdir(os.path.join(place, layout.OWN)):
        return None
    pieces = _inside(os.path.join(place, layout.UNFINISHED))
    pending = os.path.join(place, layout.PENDING)
    is_pending = os.path.exists(pending)
    if not pieces and not is_pending:
        return None
    what = _of_export(bool(pieces), is_pending)
    kept = "it is running" if is_locked(os.path.join(place, layout.LOCK)) else ""
    return Unfinished(EXPORT, place, what, *_amounts([*pieces, *[pending] * is_pending]), kept)


def _import(place: str) -> Unfinished | None:
    name = os.path.basename(place)
    if not (name.startswith(".") and name.endswith(staging_folder.SUFFIX) and os.path.isdir(place)):
        return None
    target = os.path.join(os.path.dirname(place), name[1:].removesuffix(staging_folder.SUFFIX))
    kept = ""
    if is_locked(os.path.join(place, LOCK)):
        kept = "it is running"
    elif os.path.exists(os.path.join(place, staging_folder.ADDING)):
        kept = f"it has begun to add its topics to {target}: run that import again"
    return Unfinished(IMPORT, place, f"partitions for {target}", *_amounts([place]), kept)


def _in_place(place: str) -> Unfinished | None:
    left = [
        file
        for folder in _inside(place)
        if inspect.partition_of(os.path.basename(folder)) is not None and os.path.isdir(folder)
        for file in _inside(folder)
        if file.endswith(OWN_SUFFIXES)
    ]
    if not left:
        return None
    kept = "a job or a broker uses the directory" if is_locked(os.path.join(place, LOCK)) else ""
    return Unfinished(IN_PLACE, place, "new segments that were not put in place", *_amounts(left), kept)


def remove(one: Unfinished) -> None:
    """Removes what was left, as the next run of the job would. Raises ReadError, MissingExtra."""
    if one.kept:
        raise ReadError(f"{one.path} is kept: {one.kept}")
    if one.kind == EXPORT:
        _remove_export(one.path, one.place)
    elif one.kind == IMPORT:
        _remove_import(one.path)
    else:
        with held(one.path):
            pass  # holding a directory completes or undoes what a job left


def _remove_export(path: str, place: Place | None) -> None:
    """In an object store the lock decides whether the export runs: this waits until its owner renews it, or has not
    for the time of a lease."""
    within = None if place is None else replace(place, url=path)
    settings = commit.stored(path, within)
    if settings is None:
        raise ReadError(f"{path} is kept: it has no {layout.SETTINGS}, so it is no complete export")
    own = own_table(path, settings.table)
    if settings.table is not None and own is None:
        raise ReadError(f"{path} is kept: its table is {settings.table}: run that export again")
    commit.opened(path, settings, Form(format=settings.format), own, within).close()


def _remove_import(path: str) -> None:
    files = DiskFiles()
    try:
        lock = files.lock(os.path.join(path, LOCK))
    except BlockingIOError:
        raise ReadError(f"{path} is kept: it is running") from None
    try:
        if os.path.exists(os.path.join(path, staging_folder.ADDING)):
            raise ReadError(f"{path} is kept: it has begun to add its topics")
        with as_read_error(f"cannot remove {path}"):
            staging_folder.Staging(files, path, {}).remove()
    finally:
        lock.release()
