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
from typing import Any

import pyarrow as pa

from ....storage.io.files import Files, SharedFiles
from ...extras import needed
from ...objects.web import SCHEMES
from . import layout
from .manifest import Commit, Exported, ExportedFile, ExportError
from .new_columns import added
from .ranges import Range, merged

APP_ID = "ottla-export"


class DeltaTable:
    """The table in a folder, or with `options` of a store at a URL, created if missing. Raises ExportError;
    MissingExtra without deltalake."""

    def __init__(
        self, root: str, schema: pa.Schema, files: Files | None = None, options: dict[str, str] | None = None
    ) -> None:
        with needed():
            import deltalake
            from deltalake.exceptions import DeltaError
        self._root = root
        self._is_remote = options is not None
        self._files = files if files is not None else SharedFiles()
        self._schema = pa.schema([*schema, *layout.PARTITIONING])
        self._lake: Any = deltalake
        self._error = DeltaError
        try:
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
        except (DeltaError, OSError) as error:
            if options is None and isinstance(error, OSError):
                raise
            raise ExportError(f"the Delta table in {root} cannot be opened: {_line(error)}") from error

    def close(self) -> None:
        pass

    def version(self) -> int | None:
        """Returns the number of the last document whose files the table has, or None."""
        return self._table.transaction_version(APP_ID)

    def extend(self) -> None:
        """Adds columns and fields of structs, by a transaction without rows."""
        try:
            if added(pa.schema(self._table.schema().to_arrow()), self._schema):
                empty = self._schema.empty_table()
                self._lake.write_deltalake(self._table, empty, mode="append", schema_mode="merge")
                self._table.update_incremental()
        except self._error as error:
            raise ExportError(f"the Delta table in {self._root} cannot be changed: {_line(error)}") from error

    def _modified_ms(self, file: ExportedFile) -> int:
        if self._is_remote:
            return time.time_ns() // 1_000_000  # they were just copied: no request for each of them
        return self._files.modified_ns(os.path.join(self._root, file.path)) // 1_000_000

    def add(self, commit: Commit) -> None:
        """Adds the files of a document. Concurrent writes to the table do no harm."""
        from deltalake.transaction import AddAction

        actions: list[Any] = [
            AddAction(
                path=file.path,
                size=file.bytes,
                partition_values=_partition_values(exported, file),
                modification_time=self._modified_ms(file),
                data_change=True,
                stats=_stats(file),
            )
            for exported in commit.exported
            for file in exported.files
        ]
        properties = self._lake.CommitProperties(
            custom_metadata={"ottla.offsets": offsets_json(commit)},
            app_transactions=[self._lake.Transaction(APP_ID, commit.number)],
        )
        try:
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
        except self._error as error:
            raise ExportError(f"the Delta table in {self._root} cannot be written: {_line(error)}") from error

    # -- small files

    def merge_files(self, topic: str, file_bytes: int, codec: str) -> None:
        """Merges the small files of each day of a topic's partitions to files of about this size, in one transaction
        that changes no rows. Concurrent appends do no harm."""
        properties = self._lake.WriterProperties(compression=_CODECS.get(codec, codec.upper()))
        try:
            self._table.update_incremental()
            self._table.optimize.compact([("topic", "=", topic)], file_bytes, writer_properties=properties)
        except self._error as error:
            raise ExportError(f"the files of {topic} in {self._root} cannot be merged: {_line(error)}") from error

    def delete_old(self, hours: int) -> int:
        """Deletes the files that no version of these last hours has, those of killed writers, too. Returns their
        number."""
        try:
            return len(self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))
        except self._error as error:
            raise ExportError(f"old files in {self._root} cannot be deleted: {_line(error)}") from error


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
        from deltalake.exceptions import DeltaError
    try:
        table = deltalake.DeltaTable(root, storage_options=options)
        features = table.protocol().reader_features or ()
        # Older releases of deltalake do not show the vectors: then the feature of the table decides.
        vectors = getattr(table, "deletion_vectors", None) if "deletionVectors" in features else lambda: ()
        has_vectors = vectors is None or any(some.num_rows for some in vectors())
        found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
        raise ExportError(f"the Delta table in {root} cannot be read: {_line(error)}") from error
    if "columnMapping" in features:
        raise ExportError(f"the Delta table in {root} has columns under other names in its files (columnMapping)")
    if has_vectors:
        raise ExportError(f"the Delta table in {root} has deleted rows in deletion vectors: purge them first")
    return found


def file_sizes(root: str, options: dict[str, str] | None = None) -> FileSizes:
    """Returns the sizes of the files in the newest version of a table: by topic, and by partition and date. Raises the
    errors of `actions`."""
    found: FileSizes = {}
    for one in actions(root, options):
        day = (one["partition.partition"], one["partition.date"])
        found.setdefault(one["partition.topic"], {}).setdefault(day, []).append(one["size_bytes"])
    return found


def _line(error: Exception) -> str:
    """Returns the message in one line, without the queries of URLs, which may have signatures."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|\?[^\s]*", "", str(error)).split())[:300]


def _partition_values(exported: Exported, file: ExportedFile) -> dict[str, str | None]:
    place = layout.place(os.path.dirname(file.path))
    assert place is not None
    return {"topic": exported.topic, "partition": str(exported.partition), "date": place.date}


def _stats(file: ExportedFile) -> str:
    low: dict[str, Any] = {"offset": file.first_offset}
    high: dict[str, Any] = {"offset": file.last_offset}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high})


def offsets_json(commit: Commit) -> str:
    """Returns the offset ranges of a document, {topic: {partition: [[start, end], ...]}}, as JSON."""
    found: dict[str, dict[str, list[Range]]] = {}
    for one in commit.exported:
        found.setdefault(one.topic, {}).setdefault(str(one.partition), []).append(one.range)
    return json.dumps({topic: {key: merged(of) for key, of in parts.items()} for topic, parts in found.items()})
