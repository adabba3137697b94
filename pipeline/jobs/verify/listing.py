"""The files of an export as its readers find them: those in its folder, or those of its table.

The manifest is no source here: another program may have added, compacted or deleted files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa

from ....storage.io.files import SharedFiles
from ...backend import ReadError
from ..export import layout
from ..export.commit import Settings
from ..export.iceberg import own_table
from ..export.manifest import ExportError, exported_files
from ..iceberg_catalog import CatalogTable, as_error, data_files

_EPOCH = date(1970, 1, 1)


class TableFile(NamedTuple):
    """A file with rows of one partition and day (`layout.NO_DAY`: none). `first` and `last` are bounds of its offsets,
    None if unknown."""

    path: str
    topic: str
    partition: int
    day: int
    first: int | None
    last: int | None

    def may_have(self, start: int, end: int) -> bool:
        return (self.first is None or self.first < end) and (self.last is None or self.last >= start)


def listed(root: str, settings: Settings, catalog: CatalogTable | None = None) -> list[TableFile]:
    """Returns the files of the export in a folder. `catalog` has its Iceberg table, if that is not in its own catalog.
    Raises ReadError; MissingExtra."""
    if settings.format == "delta":
        return list(_of_delta(root))
    if settings.format == "iceberg":
        of = catalog or own_table(root, settings.table)
        if of is None:
            raise ExportError(f"{root} has the table {settings.table}: give the catalog")
        return list(_of_iceberg(of))
    return list(_of_folder(root))


def problems(root: str, settings: Settings, files: Iterable[TableFile]) -> Iterator[str]:
    """Yields the differences between the manifest and the files. Those of a table may be others than in the manifest,
    with the same rows."""
    there = {os.path.relpath(file.path, root) for file in files}
    if settings.format != "parquet":
        for path in sorted(there):
            if not os.path.exists(os.path.join(root, path)):
                yield f"{path} is missing"
        return
    recorded = {file.path: file for _, file in exported_files(SharedFiles(), root)}
    for path in sorted(recorded.keys() | there):
        if path not in there:
            yield f"{path} is missing"
        elif path not in recorded:
            yield f"{path} is not in the manifest"
        elif (size := os.path.getsize(os.path.join(root, path))) != recorded[path].bytes:
            yield f"{path} has {size:,} bytes, but was written with {recorded[path].bytes:,}"


def _of_folder(root: str) -> Iterator[TableFile]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        place = layout.place(os.path.relpath(folder, root))
        for name in sorted(names):
            if name.startswith(("_", ".")) or not name.endswith(".parquet"):
                continue
            if place is None:
                raise ExportError(f"{folder}/{name} is not a file of an export")
            of = layout.file_name(name)
            yield TableFile(os.path.join(folder, name), *place, *((of.first, of.last) if of else (None, None)))


def _of_delta(root: str) -> Iterator[TableFile]:
    from ...extras import needed

    with needed():
        import deltalake
    with as_error(ReadError, f"the Delta table in {root} cannot be read"):
        table = deltalake.DeltaTable(root)
        actions: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for action in actions:
        if action.get("deletionVector.storageType") is not None:
            raise ReadError(f"the Delta table in {root} has deleted rows in deletion vectors: purge them first")
        yield TableFile(
            os.path.join(root, action["path"]),
            action["partition.topic"],
            int(action["partition.partition"]),
            _day(action["partition.date"]),
            action.get("min.offset"),
            action.get("max.offset"),
        )


def _of_iceberg(of: CatalogTable) -> Iterator[TableFile]:
    for file in data_files(of)[1]:
        if not file.values.keys() >= set(layout.PARTITIONING.names):
            names = ", ".join(layout.PARTITIONING.names)
            raise ReadError(f"the Iceberg table {of.table} is not partitioned by {names}")
        topic, partition, day = (file.values[name] for name in layout.PARTITIONING.names)
        yield TableFile(file.path, topic, partition, layout.NO_DAY if day is None else day, file.first, file.last)


def _day(value: Any) -> int:
    if value is None:
        return layout.NO_DAY
    return ((value if isinstance(value, date) else date.fromisoformat(value)) - _EPOCH).days
