"""An export as a Delta table: the tasks' files are added to its log, a group of pieces in one transaction.

The transaction has the number of the manifest's document as the version of an application transaction (`txn`, app id
`ottla-export`), so that table and manifest stay consistent, and the offset ranges in its commit info, under
`ottla.offsets`. Needs the extra `delta`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ...extras import needed
from ...objects.places import Place
from ...objects.web import SCHEMES
from . import layout
from .manifest import Commit, Exported, ExportedFile, ExportError
from .new_columns import added

APP_ID = "ottla-export"


class DeltaTable:
    """The table in a folder or a place of objects, created if missing. Raises ExportError; MissingExtra."""

    def __init__(self, root: str, schema: pa.Schema, place: Place | None = None) -> None:
        with needed():
            import deltalake
        self._root, self._place = root, place
        self._schema = pa.schema([*schema, *layout.PARTITIONING])
        self._lake: Any = deltalake
        options = None if place is None else place.options()
        with _as_export_error(f"the Delta table in {root} cannot be opened", *[OSError] * (place is not None)):
            if deltalake.DeltaTable.is_deltatable(root, storage_options=options):
                self._table = deltalake.DeltaTable(root, storage_options=options)
            else:
                self._table = deltalake.DeltaTable.create(
                    root,
                    self._schema,
                    partition_by=list(layout.PARTITIONING.names),
                    name=os.path.basename(root),
                    storage_options=options,
                )

    def close(self) -> None:
        pass

    def version(self) -> int | None:
        return self._table.transaction_version(APP_ID)

    def extend(self) -> None:
        """Adds columns and fields of structs, by a transaction without rows."""
        with _as_export_error(f"the Delta table in {self._root} cannot be changed"):
            if added(pa.schema(self._table.schema().to_arrow()), self._schema):
                empty = self._schema.empty_table()
                self._lake.write_deltalake(self._table, empty, mode="append", schema_mode="merge")
                self._table.update_incremental()

    def _action(self, exported: Exported, file: ExportedFile) -> Any:
        from deltalake.transaction import AddAction

        place = layout.place(os.path.dirname(file.path))
        assert place is not None
        if self._place is not None:
            modified_ns = time.time_ns()  # they were just copied: no request for each of them
        else:
            modified_ns = os.stat(os.path.join(self._root, file.path)).st_mtime_ns
        low, high = ({"offset": offset} for offset in (file.first_offset, file.last_offset))
        return AddAction(
            path=file.path,
            size=file.bytes,
            partition_values={"topic": exported.topic, "partition": str(exported.partition), "date": place.date},
            modification_time=modified_ns // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high}),
        )

    def add(self, commit: Commit) -> None:
        """Adds the files of a document. Concurrent writes to the table do no harm."""
        actions = [self._action(exported, file) for exported in commit.exported for file in exported.files]
        properties = self._lake.CommitProperties(
            custom_metadata={"ottla.offsets": commit.offsets_json()},
            app_transactions=[self._lake.Transaction(APP_ID, commit.number)],
        )
        with _as_export_error(f"the Delta table in {self._root} cannot be written"):
            self._table.update_incremental()
            if (self.version() or 0) >= commit.number:
                raise ExportError(f"the Delta table in {self._root} has document {commit.number} of another export")
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._schema,
                partition_by=list(layout.PARTITIONING.names),
                commit_properties=properties,
            )

    # -- small files

    def merge_files(self, topic: str, file_bytes: int, codec: str) -> None:
        """Merges the small files of each day of a topic's partitions to files of about this size, in one transaction
        that changes no rows. Concurrent appends do no harm."""
        properties = self._lake.WriterProperties(compression=_CODECS.get(codec, codec.upper()))
        with _as_export_error(f"the files of {topic} in {self._root} cannot be merged"):
            self._table.update_incremental()
            self._table.optimize.compact([("topic", "=", topic)], file_bytes, writer_properties=properties)

    def delete_old(self, hours: int) -> int:
        """Deletes the files that no version of these last hours has, also of killed writers. Returns how many."""
        with _as_export_error(f"old files in {self._root} cannot be deleted"):
            return len(self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))


_CODECS = {"lz4": "LZ4_RAW", "none": "UNCOMPRESSED"}

FileSizes = dict[str, dict[tuple[Any, Any], list[int]]]


def actions(root: str, options: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Returns what the newest version of a table has of each file: `path`, `size_bytes`, values of partitions such as
    `partition.topic`, and bounds such as `min.offset`. Raises ExportError, also if a file has other rows or columns
    than the table; MissingExtra without deltalake."""
    if root.lower().startswith(SCHEMES):
        raise ExportError(f"{root} is a Delta table: it can be read in a folder or in objects, not on a web server")
    with needed():
        import deltalake
    with _as_export_error(f"the Delta table in {root} cannot be read", pa.ArrowException, OSError, ValueError):
        table = deltalake.DeltaTable(root, storage_options=options)
        features = table.protocol().reader_features or ()
        # Older releases of deltalake do not show the vectors: then the feature of the table decides.
        vectors = getattr(table, "deletion_vectors", None) if "deletionVectors" in features else lambda: ()
        has_vectors = vectors is None or any(some.num_rows for some in vectors())
        found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    if "columnMapping" in features:
        raise ExportError(f"the Delta table in {root} has columns under other names in its files (columnMapping)")
    if has_vectors:
        raise ExportError(f"the Delta table in {root} has deleted rows in deletion vectors: purge them first")
    return found


def file_sizes(root: str, options: dict[str, str] | None = None) -> FileSizes:
    """Returns the sizes of a table's files by topic, and by partition and date. Raises the errors of `actions`."""
    found: FileSizes = {}
    for one in actions(root, options):
        day = (one["partition.partition"], one["partition.date"])
        found.setdefault(one["partition.topic"], {}).setdefault(day, []).append(one["size_bytes"])
    return found


@contextmanager
def _as_export_error(what: str, *more: type[Exception]) -> Iterator[None]:
    """Turns the errors of deltalake, and these classes, into ExportError: one line, which begins with `what`, without
    the queries of URLs, which may have signatures."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, *more) as error:
        line = " ".join(re.sub(r"\x1b\[[0-9;]*m|\?[^\s]*", "", str(error)).split())[:300]
        raise ExportError(f"{what}: {line}") from error
