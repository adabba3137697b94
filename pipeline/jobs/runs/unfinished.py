"""Finds what jobs left when they were interrupted, and removes it.

Some jobs write to a place of their own first: an export to `_ottla/unfinished` of its folder, an import to a folder
beside the data directory, `upgrade` and `compact` to files beside the segments. The next run of the same job continues
from there, so nothing has to be removed; it is for jobs that are not run again.

In an object store there are exports alone.

Owns the recognition of these places, and what may be removed: never that of a running job, and never the only copy of a
record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....storage import inspect
from ....storage.format.file_names import LOCK
from ....storage.io.files import DiskFiles
from ...backend import ReadError
from ...objects.places import Place, is_url
from ...readers.files.broker_lock import is_locked
from ..export import commit, layout
from ..export.committers import committer_of
from ..export.iceberg import own_table
from ..export.tables import opener
from ..export.tasks import Form
from ..import_ import staging_folder
from ..in_place.directory_hold import OWN_SUFFIXES, held

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
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise ReadError(f"cannot read {path}: {error.strerror}") from error
        inner = [os.path.join(path, name) for name in names]
        for place in (path, staging_folder.staging_path(path), *filter(os.path.isdir, inner)):
            for one in _in(place):
                found.setdefault((one.kind, one.path), one)
    return list(found.values())


def _in_store(place: Place) -> Iterator[Unfinished]:
    files = place.files()
    try:
        try:
            names = files.entries(files.root)
        except FileNotFoundError:
            raise ReadError(f"there is no object in {place.url}") from None
        inner = [f"{files.root}/{name}" for name, size in names.items() if size is None and name != layout.OWN]
        for root in (files.root, *inner):
            own = {one.path.removeprefix(f"{root}/"): one for one in files.below(f"{root}/{layout.OWN}")}
            is_pending = layout.PENDING in own
            left = [one for name, one in own.items() if name.startswith((f"{layout.UNFINISHED}/", layout.PENDING))]
            if not left:
                continue
            what = _of_export(len(left) > is_pending, is_pending)
            if layout.LOCK in own:
                what += ", with a lock: it runs, or was killed"
            size, changed = sum(one.size_bytes for one in left), max(one.modified_ms for one in left)
            yield Unfinished(EXPORT, root, what, len(left), size, changed, place=place)
    except OSError as error:
        raise ReadError(f"cannot read {place.url}: {error.strerror}") from error


def _of_export(has_pieces: bool, is_pending: bool) -> str:
    words = ["files of pieces that are not in the export"] * has_pieces + ["an interrupted commit"] * is_pending
    return " and ".join(words)


def _in(place: str) -> Iterator[Unfinished]:
    for look in (_export, _import, _in_place):
        found = look(place)
        if found is not None:
            yield found


def _amounts(paths: Sequence[str]) -> tuple[int, int, int | None]:
    """Returns number, bytes and last change of the files at and below these paths. Files may vanish meanwhile."""
    count = size = 0
    changed: int | None = None
    for path in paths:
        below = (
            [path]
            if not os.path.isdir(path)
            else [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        )
        for file in below:
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
        _remove_in_place(one.path)


def _remove_export(path: str, place: Place | None) -> None:
    """In an object store the lock decides whether the export runs: this waits until its owner renews it, or has not
    for the time of a lease."""
    within = None if place is None else replace(place, url=path)
    files = None if within is None else within.files()
    settings = commit.stored(path, files)
    if settings is None:
        raise ReadError(f"{path} is kept: it has no {layout.SETTINGS}, so it is no complete export")
    own = own_table(path, settings.table)
    if settings.table is not None and own is None:
        raise ReadError(f"{path} is kept: its table is {settings.table}: run that export again")
    table = opener(path, Form(format=settings.format), own, within)
    committer_of(within).open(path, settings, files=files, table=table).close()


def _remove_import(path: str) -> None:
    files = DiskFiles()
    try:
        lock = files.lock(os.path.join(path, LOCK))
    except BlockingIOError:
        raise ReadError(f"{path} is kept: it is running") from None
    try:
        if os.path.exists(os.path.join(path, staging_folder.ADDING)):
            raise ReadError(f"{path} is kept: it has begun to add its topics")
        staging_folder.Staging(files, path, "", {}).remove()
    finally:
        lock.release()


def _remove_in_place(path: str) -> None:
    with held(path):
        pass  # holding a directory completes or undoes what a job left
