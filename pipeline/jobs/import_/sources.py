"""What an import reads: a folder or file, or the current snapshot of an Apache Iceberg table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from ...backend import ReadError
from ...objects.places import Place, is_url
from ..export.commit import stored
from ..export.iceberg import TABLE, catalog_of, own_table
from ..iceberg_catalog import CatalogTable, data_files, of_objects
from . import files


class SourceFiles(NamedTuple):
    """The files to import, and their origin for the report."""

    name: str
    files: list[files.ParquetFile]


def listed(
    folder: str | os.PathLike[str] | None,
    table: str | None = None,
    catalog: Mapping[str, str] | None = None,
    store_conf: Mapping[str, str] | None = None,
) -> SourceFiles:
    """Returns the Parquet files of a folder; those of the Iceberg table `table` if there is a `catalog`, with
    pyiceberg's properties, or if the folder is the export of such a table; `store_conf` are settings of an object
    store. Raises ReadError; MissingExtra."""
    if folder is None and not catalog:
        raise ReadError("there is nothing to import: give a folder, or the catalog of an Iceberg table")
    name = None if folder is None else os.fspath(folder)
    has_url = name is not None and is_url(name)
    root = None if name is None else name.rstrip("/") if has_url else os.path.abspath(name)
    if catalog:
        if root is None and table is None:
            raise ReadError("an Iceberg table of a catalog needs its name")
        of = CatalogTable(table or TABLE, catalog) if root is None else catalog_of(root, table, catalog)
        return _of_table(of, of.table, store_conf)
    assert folder is not None and root is not None
    if has_url:
        if table is not None:
            raise ReadError(f"the table {table} needs its catalog")
        return SourceFiles(os.fspath(folder), files.listed(folder, store_conf))
    settings = stored(root)
    if settings is not None and settings.format == "iceberg":
        own = own_table(root, settings.table)
        if own is None:
            raise ReadError(f"{root} has the Iceberg table {settings.table}: give its catalog")
        return _of_table(own, root)
    if table is not None:
        raise ReadError(f"the table {table} needs its catalog: {root} is not an export with a catalog")
    return SourceFiles(root, files.listed(folder, store_conf))


def _of_table(of: CatalogTable, name: str, store_conf: Mapping[str, str] | None = None) -> SourceFiles:
    location, found = data_files(of_objects(of, store_conf or {}))
    if not found:
        raise ReadError(f"the Iceberg table {of.table} has no rows")
    place = Place.of(location, store_conf or {}) if is_url(location) else None
    made: list[files.ParquetFile] = []
    for one in found:
        if "://" in one.path and not (place is not None and one.path.startswith(f"{place.url}/")):
            raise ReadError(f"the Iceberg table {of.table} has files elsewhere: {one.path}")
        if not one.path.endswith(files.SUFFIX):
            raise ReadError(f"the Iceberg table {of.table} has files that are not Parquet: {one.path}")
        file = files.of_path(one.path, location)
        topic, partition = one.values.get("topic"), one.values.get("partition")
        made.append(
            file._replace(
                topic=topic if isinstance(topic, str) else file.topic,
                partition=partition if isinstance(partition, int) else file.partition,
                place=place,
                size_bytes=one.bytes,
            )
        )
    return SourceFiles(name, sorted(made, key=lambda file: file.name))
