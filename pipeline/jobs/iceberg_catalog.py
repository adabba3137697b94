"""Catalogs of Apache Iceberg, by pyiceberg: where a table is found, and its files. Needs the extra `iceberg`.

A catalog is given by pyiceberg's own properties: `type` (sql, rest, hive, glue ...), `uri`, `warehouse`, `token` and so
on, and `name`: a SQL database may have several catalogs, and pyiceberg reads more properties of that name from its
configuration. The properties may have passwords, so no message contains them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..backend import ReadError
from ..extras import SetupError, needed

NAME = "ottla"
"""The default of `name`."""

_STORE = {
    **dict.fromkeys(("endpoint", "aws_endpoint", "endpoint_url", "aws_endpoint_url"), "s3.endpoint"),
    **dict.fromkeys(("region", "aws_region", "default_region", "aws_default_region"), "s3.region"),
    "anonymous": "s3.anonymous",
}
"""Settings of a store in pyiceberg's names."""

_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table, `NAMESPACE.NAME`, and the properties of its catalog."""

    table: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not _TABLE.fullmatch(self.table):
            raise ReadError(f"the table {self.table!r} has no namespace: it must be NAMESPACE.NAME")

    @property
    def kind(self) -> str:
        """The type of the catalog; `by uri` if it follows from that."""
        return self.properties.get("type", "by uri")


def location_of(folder: str) -> str:
    """Returns the URI of a folder; object stores have one already."""
    return folder if re.match(r"[a-z][a-z0-9+.-]*://", folder) else f"file://{os.path.abspath(folder)}"


def path_of(location: str) -> str:
    """Returns the path of a local file, or the URI of another one. Iceberg does not quote characters."""
    path = location.removeprefix("file:")
    return f"/{path.lstrip('/')}" if path != location or location.startswith("/") else location


def in_folder(folder: str, file: str) -> Mapping[str, str]:
    """Returns the properties of a catalog in a SQLite file, for a table in a folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{os.path.abspath(file)}",
        "warehouse": location_of(folder),
        "py-io-impl": f"{__package__}.iceberg_files.SyncedFileIO",
    }


def of_objects(of: CatalogTable, conf: Mapping[str, str]) -> CatalogTable:
    """Returns a table whose files are in an object store with these settings: pyiceberg's follow from them, unless they
    are given. Both read credentials from the environment."""
    found = {_STORE[name]: value for name, value in conf.items() if name in _STORE}
    return replace(of, properties={**found, **of.properties})


@contextmanager
def as_error(make: Callable[[str], Exception], what: str) -> Iterator[None]:
    """Turns the errors of pyiceberg and of the libraries below it, which have no common base, into one of ours: one
    line, which begins with `what`."""
    try:
        yield
    except (ReadError, SetupError):
        raise
    except Exception as error:
        # The next lines of an error of a database have the statement with its parameters.
        reason = error.strerror if isinstance(error, OSError) else None
        text = reason or str(error).strip().partition("\n")[0] or type(error).__name__
        raise make(f"{what}: {' '.join(text.split())[:300]}") from error


def loaded(of: CatalogTable) -> Any:
    """Returns the catalog, for its owner to close. Raises MissingExtra, and errors of pyiceberg."""
    with needed():
        from pyiceberg.catalog import load_catalog

        others = {key: value for key, value in of.properties.items() if key != "name"}
        return load_catalog(of.properties.get("name", NAME), **others)


class DataFile(NamedTuple):
    """A file of the current snapshot. `values` are those of its identity partitions, as Iceberg stores them (a date
    counts from 1970-01-01). `first` and `last` are the bounds of the column `offset`, None without."""

    path: str
    values: Mapping[str, Any]
    rows: int
    bytes: int
    first: int | None
    last: int | None


def data_files(of: CatalogTable) -> tuple[str, list[DataFile]]:
    """Returns the location and the files of a table's current snapshot. Raises ReadError; MissingExtra."""
    with as_error(ReadError, f"the Iceberg table {of.table} cannot be read"), closing(loaded(of)) as catalog:
        table = catalog.load_table(of.table)
        for name in _renamed(table):
            raise ReadError(f"the Iceberg table {of.table} had the column {name} under another name")
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise ReadError(f"the Iceberg table {of.table} has deleted rows in files: rewrite its files first")
        return path_of(table.location()), [_data_file(table, task.file) for task in tasks]


def _renamed(table: Any) -> Iterator[str]:
    """Yields columns whose files may have another name for them."""
    ids = {one.name: one.field_id for one in table.schema().fields}
    for schema in table.schemas().values():
        for one in schema.fields:
            if ids.get(one.name, one.field_id) != one.field_id:
                yield one.name
            yield from (name for name, number in ids.items() if number == one.field_id and name != one.name)


def _data_file(table: Any, file: Any) -> DataFile:
    from pyiceberg.conversions import from_bytes

    spec, schema = table.specs()[file.spec_id], table.schema()
    values = {
        schema.find_column_name(one.source_id): file.partition[number]
        for number, one in enumerate(spec.fields)
        if str(one.transform) == "identity"
    }
    column = next((one for one in schema.fields if one.name == "offset" and str(one.field_type) == "long"), None)
    bounds: list[Any] = [
        from_bytes(column.field_type, of[column.field_id]) if column and of and column.field_id in of else None
        for of in (file.lower_bounds, file.upper_bounds)
    ]
    return DataFile(path_of(file.file_path), values, file.record_count, file.file_size_in_bytes, *bounds)
