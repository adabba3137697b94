"""An export as an Apache Iceberg table: the tasks' files are added to it, a group of pieces in one snapshot.

The snapshot has the number of the manifest's document in its summary (`ottla.number`), and its offset ranges
(`ottla.offsets`). The same transaction sets the number as a property of the table, which remains when snapshots expire:
table and manifest stay consistent. The files have the table's field ids and, for readers that take no values from
partitions, its partition columns. Needs the extra `iceberg`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from ...objects.places import Place, files_of
from ..iceberg_catalog import CatalogTable, as_error, in_folder, loaded, location_of, of_objects
from . import layout
from .manifest import Commit, Exported, ExportedFile, ExportError, commits
from .new_columns import added

NUMBER = "ottla.number"
OFFSETS = "ottla.offsets"
FOLDER = "ottla.folder"
TABLE = "ottla.export"
"""The default name of the table."""

_OWN = ", own catalog"
_FIELD_ID = b"PARQUET:field_id"


def catalog_of(root: str, table: str | None = None, properties: Mapping[str, str] | None = None) -> CatalogTable:
    """Returns the table of an export: by default in a catalog in its folder."""
    own = in_folder(root, f"{root}/{layout.CATALOG}")
    return CatalogTable(table or TABLE, {"warehouse": location_of(root), **properties} if properties else own)


def described(of: CatalogTable, is_own: bool) -> str:
    """Returns the table for the settings of a folder, without the properties; `own_table` is the inverse."""
    return f"{of.table}{_OWN}" if is_own else f"{of.table}, {of.kind} catalog"


def own_table(root: str, description: str | None) -> CatalogTable | None:
    """Returns the table of an export in the catalog in its folder; None for one in another catalog."""
    if description is None:
        return catalog_of(root)
    return catalog_of(root, description.removesuffix(_OWN)) if description.endswith(_OWN) else None


class IcebergTable:
    """The table in a folder or a place of objects, created if the export is new. Raises ExportError; MissingExtra."""

    def __init__(self, root: str, schema: pa.Schema, of: CatalogTable, place: Place | None = None) -> None:
        self._root, self._place = root, place
        self._of = of if place is None else of_objects(of, dict(place.conf))
        self._location = location_of(root)
        self._columns = pa.schema([*schema, *layout.PARTITIONING])
        self._catalog: Any = None
        try:
            with self._as_export_error("cannot be opened"):
                self._catalog = loaded(self._of)
                self._table = self._opened()
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The columns of the files, with the field ids of the table. Raises ExportError for one that it lacks."""

        def identified(one: pa.Field, path: str) -> pa.Field:
            try:
                return _with_id(one, self._table.schema().find_field(path).field_id)
            except ValueError:
                raise ExportError(f"the Iceberg table has no column {path}") from None

        return pa.schema([_changed(one, identified, one.name) for one in self._columns])

    def extend(self) -> None:
        """Adds columns and fields of structs."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        with self._as_export_error("cannot be changed"):
            new = {path.partition(".")[0] for path in added(schema_to_pyarrow(self._table.schema()), self._columns)}
            if new:
                with self._table.update_schema() as update:
                    update.union_by_name(_numbered([one for one in self._columns if one.name in new]))

    def close(self) -> None:
        """Closes the connection to the catalog."""
        if self._catalog is not None:
            self._catalog.close()

    def _as_export_error(self, failed: str) -> Any:
        return as_error(ExportError, f"the Iceberg table {self._of.table} {failed}")

    def _opened(self) -> Any:
        if self._catalog.table_exists(self._of.table):
            table = self._catalog.load_table(self._of.table)
            self._check(table)  # its ValueError continues the message of ExportError
            return table
        if next(commits(files_of(self._place), self._root), None) is not None:
            raise ValueError(f"the catalog does not have it, but {self._root} has documents of an export")
        from pyiceberg.io.pyarrow import pyarrow_to_schema
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import IdentityTransform

        # The catalog assigns other numbers, and changes those of the partitioning with them.
        made = pyarrow_to_schema(_numbered(self._columns))
        by = [
            PartitionField(made.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
            for number, name in enumerate(layout.PARTITIONING.names)
        ]
        self._catalog.create_namespace_if_not_exists(self._of.table.rpartition(".")[0])
        return self._catalog.create_table(
            self._of.table,
            schema=made,
            location=self._location,
            partition_spec=PartitionSpec(*by),
            properties={FOLDER: self._location},
        )

    def _check(self, table: Any) -> None:
        """Checks that a table is that of this export, and that files can be added to it."""
        folder = table.properties.get(FOLDER)
        if folder != self._location:
            other = f"of the export in {folder}" if folder else "not of an export"
            raise ValueError(f"it is {other}, and this one is in {self._location}")
        schema, spec = table.schema(), table.spec()
        if [(schema.find_column_name(one.source_id), str(one.transform)) for one in spec.fields] != [
            (name, "identity") for name in layout.PARTITIONING.names
        ]:
            raise ValueError(f"its partitioning was changed: it must be {', '.join(layout.PARTITIONING.names)}")

    # -- the table of a commit

    def version(self) -> int | None:
        places: list[Any] = [self._table.properties, *(one.summary or {} for one in self._table.snapshots())]
        texts = [place.get(NUMBER) for place in places]
        return max((int(text) for text in texts if text is not None and text.isdecimal()), default=None)

    def add(self, commit: Commit) -> None:
        """Adds the files of a document, in one snapshot. Concurrent writes to the table do no harm."""
        with self._as_export_error("cannot be written"):
            files = [self._data_file(one, file) for one in commit.exported for file in one.files]
            properties = {NUMBER: str(commit.number), OFFSETS: commit.offsets_json()}
            try:
                with self._table.transaction() as transaction:
                    with transaction.update_snapshot(snapshot_properties=properties).fast_append() as append:
                        for file in files:
                            append.append_data_file(file)
                    transaction.set_properties({NUMBER: str(commit.number)})
            except Exception:
                # The catalog may have made the commit although its response was lost.
                self._table.refresh()
                if self.version() != commit.number:
                    raise

    def _data_file(self, exported: Exported, file: ExportedFile) -> Any:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        place = layout.place(file.path.rpartition("/")[0])
        assert place is not None
        day = None if place.day == layout.NO_DAY else place.day
        schema = self._table.schema()

        def bounds(offset: int, time_ms: int | None) -> dict[int, bytes]:
            values = {"offset": offset} if time_ms is None else {"offset": offset, "timestamp": time_ms * 1000}
            known = [(schema.find_field(name), value) for name, value in values.items()]
            return {column.field_id: to_bytes(column.field_type, value) for column, value in known}

        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(exported.topic, exported.partition, day),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds=bounds(file.first_offset, file.min_timestamp),
            upper_bounds=bounds(file.last_offset, file.max_timestamp),
            spec_id=self._table.spec().spec_id,
        )


# -- types


def widened(kind: pa.DataType) -> pa.DataType:
    """Returns the Arrow type of a decoded column in Iceberg, whose integers have at least 32 bits."""

    def wide(one: pa.Field, path: str) -> pa.Field:
        return one.with_type(pa.int32()) if pa.types.is_int8(one.type) or pa.types.is_int16(one.type) else one

    return _changed(pa.field("", kind), wide, "").type


def _numbered(columns: Iterable[pa.Field]) -> pa.Schema:
    """Returns the columns with ids, as a conversion to a schema of Iceberg needs them."""
    numbers = count(1)
    return pa.schema([_changed(one, lambda of, _: _with_id(of, next(numbers)), one.name) for one in columns])


def _with_id(of: pa.Field, number: int) -> pa.Field:
    return of.with_metadata({_FIELD_ID: str(number).encode()})


def _changed(of: pa.Field, change: Callable[[pa.Field, str], pa.Field], path: str) -> pa.Field:
    """Returns a field after `change`, to which first the fields in it are passed, all with their paths."""

    def inner(one: pa.Field, name: str) -> pa.Field:
        return _changed(one, change, f"{path}.{name}")

    kind = of.type
    if pa.types.is_struct(kind):
        kind = pa.struct([inner(one, one.name) for one in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(inner(kind.value_field, "element"))
    elif pa.types.is_map(kind):
        kind = pa.map_(inner(kind.key_field, "key"), inner(kind.item_field, "value"))
    return change(of.with_type(kind), path)
