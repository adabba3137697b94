"""The files of an export as its readers find them: those in its folder, or those of its table.

The manifest is no source here: another program may have added, compacted or deleted files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...backend import ReadError
from ...objects.places import Place, files_of
from ..export import layout
from ..export.commit import Settings
from ..export.delta import actions
from ..export.iceberg import own_table
from ..export.manifest import ExportError, exported_files
from ..iceberg_catalog import CatalogTable, data_files, of_objects


class TableFile(NamedTuple):
    """A file with rows of one partition and day (`layout.NO_DAY`: none), and bounds of its offsets, None if unknown."""

    path: str
    topic: str
    partition: int
    day: int
    first: int | None
    last: int | None

    def may_have(self, start: int, end: int) -> bool:
        return (self.first is None or self.first < end) and (self.last is None or self.last >= start)


def listed(
    root: str, settings: Settings, catalog: CatalogTable | None = None, place: Place | None = None
) -> list[TableFile]:
    """Returns the files of the export in a folder; `place`: in an object store. `catalog` has its Iceberg table, if
    that is not in its own catalog. Raises ReadError; MissingExtra."""
    if settings.format == "delta":
        return list(_of_delta(root, None if place is None else place.options()))
    if settings.format == "iceberg":
        of = catalog or own_table(root, settings.table)
        if of is None:
            raise ExportError(f"{root} has the table {settings.table}: give the catalog")
        return list(_of_iceberg(of if place is None else of_objects(of, dict(place.conf))))
    names = _of_folder(root) if place is None else (name for name, _ in _objects(root, place))
    return list(_parquet(root, names))


def problems(root: str, settings: Settings, files: Iterable[TableFile], place: Place | None = None) -> Iterator[str]:
    """Yields differences between the manifest and the files; those of a table may be others, with the same rows."""
    there = {file.path.removeprefix(f"{root}/") for file in files}
    sizes = _sizes(root, there) if place is None else dict(_objects(root, place))
    if settings.format != "parquet":
        for path in sorted(there):
            if path not in sizes:
                yield f"{path} is missing"
        return
    recorded = {file.path: file for _, file in exported_files(files_of(place), root)}
    for path in sorted(recorded.keys() | there):
        if path not in there:
            yield f"{path} is missing"
        elif path not in recorded:
            yield f"{path} is not in the manifest"
        elif sizes[path] != recorded[path].bytes:
            yield f"{path} has {sizes[path]:,} bytes, but was written with {recorded[path].bytes:,}"


def _sizes(root: str, names: Iterable[str]) -> dict[str, int]:
    """Returns the sizes of the files that there are."""
    paths = {name: os.path.join(root, name) for name in names}
    return {name: os.path.getsize(path) for name, path in paths.items() if os.path.exists(path)}


def _objects(root: str, place: Place) -> Iterator[tuple[str, int]]:
    """Yields the names and the sizes of the objects below a root."""
    for one in place.files().below(root):
        yield one.path.removeprefix(f"{root}/"), one.size_bytes


def _of_folder(root: str) -> Iterator[str]:
    """Yields the names of the files below a folder, but those of hidden folders."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in sorted(names))


def _parquet(root: str, names: Iterable[str]) -> Iterator[TableFile]:
    for name in names:
        *folders, file = name.split("/")
        if not file.endswith(".parquet") or any(part.startswith(("_", ".")) for part in (*folders, file)):
            continue
        place, of, path = layout.place("/".join(folders)), layout.file_name(file), os.path.join(root, name)
        if place is None:
            raise ExportError(f"{path} is not a file of an export")
        yield TableFile(path, *place, *((of.first, of.last) if of else (None, None)))


def _of_delta(root: str, options: dict[str, str] | None) -> Iterator[TableFile]:
    for one in actions(root, options):
        yield TableFile(
            os.path.join(root, one["path"]),
            one["partition.topic"],
            int(one["partition.partition"]),
            layout.day_of(one["partition.date"]),
            one.get("min.offset"),
            one.get("max.offset"),
        )


def _of_iceberg(of: CatalogTable) -> Iterator[TableFile]:
    for file in data_files(of)[1]:
        if not file.values.keys() >= set(layout.PARTITIONING.names):
            names = ", ".join(layout.PARTITIONING.names)
            raise ReadError(f"the Iceberg table {of.table} is not partitioned by {names}")
        topic, partition, day = (file.values[name] for name in layout.PARTITIONING.names)
        yield TableFile(file.path, topic, partition, layout.NO_DAY if day is None else day, file.first, file.last)
