"""Exports records to Parquet, Delta or Iceberg with Spark: tasks write pieces of logs, and the driver commits them.

    export(spark, "/var/lib/kafka", "/lake/kafka", ExportSettings(topics=["orders"]))
    export(spark, {"bootstrap.servers": "broker:9092"}, "/lake/kafka")

Owns the distribution of tasks; `tasks.py` has their work. The logs are only read. The folder must be mounted at the
same path here and on the workers, or be the URL of objects, with credentials in the environment of all processes. A
second run adds new records, and continues after an interruption.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ....protocol.text import size as size_text
from ...backend import Backend, OnCorrupt, Selection
from ...objects.places import files_of
from ...offsets import Limit
from ...readers.files import FileBackend
from ...spark_api import arrow_schema
from .. import spark_tasks
from ..iceberg_catalog import CatalogTable
from ..spark_tasks import ProgressCallback, size_of
from . import arguments
from .commit import Settings as FolderSettings
from .commit import check, opened, with_columns
from .iceberg import catalog_of, described, widened
from .manifest import ExportError, Manifest
from .plan import FROM_START, TO_END, Plan, Request, plan
from .report import ExportReport
from .tasks import CODECS, FILE_BYTES, Form, Format, OnUndecodable, write
from .value_columns import Decoding, Kind

ISOLATIONS = ("read_committed", "read_uncommitted")
_CHOICES = {
    "format": ("parquet", "delta", "iceberg"),
    "codec": CODECS,
    "on_undecodable": ("null", "fail", "dead-letter"),
    "isolation": ISOLATIONS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The records that an export reads, and the files that it writes.

    `topics` lists the topics; `like` is a regular expression that full names must match. With neither: all but internal
    topics. `starting` and `ending` are "earliest", "latest", a time, or offsets (`arguments.limit`); a later run can
    add the rest. Aborted transactions and records from the last stable offset on are exported only if `isolation` is
    "read_uncommitted".

    `format`: "parquet", or "delta" or "iceberg" for a table. An Iceberg table is in the catalog with pyiceberg's
    properties `catalog` and is named `table`; by default the catalog is a SQLite file in the folder. `decoding`
    adds the column `decoded`, `key_decoding` the column `decodedKey`; a value or key that does not decode is null and
    counted, or fails the export (`on_undecodable="fail"`), or is null and also in the column `deadLetter` or
    `deadLetterKey`, with the problem ("dead-letter"). All runs into a folder have the same format, isolation and
    decoding. With `add_columns` a decoding may follow that
    has new fields: the table gets them, and older rows have null there. `codec` and sizes may differ: a file is
    closed after `rows_per_file` rows, or after `file_bytes` uncompressed bytes. `on_corrupt`: "skip" skips damaged
    batches, and logs them.

    A topic that was deleted and created again since its last export is refused; with `new_generation` it is exported
    next to the old one. The report counts records that were deleted before their export; `fail_on_loss` raises DataLoss
    for them. `store_conf` are settings of an object store, such as `endpoint` and `region`; credentials are none of
    them.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    starting: str | Limit = FROM_START
    ending: str | Limit = TO_END
    isolation: str = "read_committed"
    format: Format = "parquet"
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    codec: str = "zstd"
    rows_per_file: int | None = None
    file_bytes: int = FILE_BYTES
    decoding: Decoding | None = None
    key_decoding: Decoding | None = None
    on_undecodable: OnUndecodable = "null"
    add_columns: bool = False
    on_corrupt: OnCorrupt = "fail"
    new_generation: bool = False
    fail_on_loss: bool = False
    store_conf: Mapping[str, str] | None = None

    def form(self) -> Form:
        """Returns the form of the files that tasks write. Raises ExportError."""
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ExportError(f"{name} is {value!r}: it must be {', '.join(choices[:-1])} or {choices[-1]}")
        if self.file_bytes < 1 or (self.rows_per_file is not None and self.rows_per_file < 1):
            raise ExportError("file_bytes and rows_per_file must be 1 or more")
        if self.format != "iceberg" and (self.table is not None or self.catalog is not None):
            raise ExportError(f"table and catalog are for the format iceberg, not {self.format}")
        if self.add_columns and self.format == "parquet":
            raise ExportError("add_columns is for tables: files of Parquet have no common schema")
        values, keys = (
            replace(one, type=widened(one.type)) if one is not None and self.format == "iceberg" else one
            for one in (self.decoding, self.key_decoding)
        )
        sizes = (self.codec, self.rows_per_file, self.file_bytes)
        return Form(*sizes, self.format, values, self.on_undecodable, key_decoding=keys)

    def of_folder(self) -> FolderSettings:
        """Returns the settings that all runs into one folder share."""
        values, keys = self._described(self.decoding), self._described(self.key_decoding)
        table = described(self.catalog_table(""), not self.catalog) if self.format == "iceberg" else None
        return FolderSettings(self.format, self.isolation, values, table, keys, adds_columns=self.add_columns)

    def _described(self, decoding: Decoding | None) -> dict[str, str | None] | None:
        """Returns a decoding for the settings of a folder."""
        if decoding is None:
            return None
        more = {"undecodable": "dead-letter"} if self.on_undecodable == "dead-letter" else {}
        return {"kind": decoding.kind, "schema": decoding.schema, **more}

    def catalog_table(self, root: str) -> CatalogTable:
        """Returns the Iceberg table of the export in this folder."""
        return catalog_of(root, self.table, self.catalog)

    def request(self) -> Request:
        """Returns the scope of the export. Raises ReadError, OptionError."""
        return Request(
            selection=Selection.named(self.topics, self.like),
            starting=arguments.limit(self.starting, "starting"),
            ending=arguments.limit(self.ending, "ending"),
            committed=self.isolation == "read_committed",
            on_corrupt=self.on_corrupt,
            new_generation=self.new_generation,
            fail_on_loss=self.fail_on_loss,
        )


def export(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    to: str,
    settings: ExportSettings | None = None,
    *,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> ExportReport:
    """Exports the records that the folder `to` does not have yet; `pipeline/jobs/export/layout.py` describes the
    folder, which may be the URL of objects.

    `source`: log directories and partition folders, or the `kafka.*` options of running brokers without their prefix.
    `dry_run` only makes the plan. `on_plan` receives the plan line by line, `on_progress` the progress. Raises
    ExportError and other ReadErrors, JobError, OSError. Pieces committed before an error stay, and are not exported
    again.
    """
    began = time.monotonic()
    settings = settings or ExportSettings()
    form, of_folder, request = settings.form(), settings.of_folder(), settings.request()
    root = arguments.folder(to)
    paths = paths_of(source)
    place = arguments.objects(root, settings.store_conf or {}, settings.file_bytes, paths)
    arguments.check_folder(root, settings.format, paths, has_catalog=bool(settings.catalog))
    with backend_of(source, settings.file_bytes, settings.store_conf) as backend:
        if dry_run:
            files = files_of(place)
            check(root, of_folder, files)
            made = plan(backend, Manifest.read(files, root), request, root, form)
            _report_plan(spark, made, root, on_plan, every_topic=True)
            return ExportReport(root, settings.format, made)
        catalog = settings.catalog_table(root)
        with _naming_folder(root), opened(root, of_folder, form, catalog, place) as committer:
            made = plan(backend, committer.manifest, request, root, with_columns(form, committer.table))
            made.works[:] = [replace(work, place=place) for work in made.works]
            _report_plan(spark, made, root, on_plan)
            report = ExportReport(root, settings.format, made)
            try:
                name = "ottla export"
                for work, written in spark_tasks.run(spark, made.works, write, on_progress=on_progress, name=name):
                    report.add(committer.add(work, written, made.topics[work.topic].topic_id), written)
                committer.skip(made.gone)  # committed only after every task has succeeded
            finally:
                committer.commit()
    report.seconds = time.monotonic() - began
    return report


@contextlib.contextmanager
def _naming_folder(root: str) -> Iterator[None]:
    """Adds the folder to an OSError without a file name, such as that of a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.strerror is None:
            raise
        raise ExportError(f"cannot export to {root}: {error.strerror}") from error


def json_schema(ddl: str, kind: Kind = "json") -> Decoding:
    """Returns the decoding of JSON by a Spark schema, such as `id BIGINT, name STRING`. Raises ExportError."""
    try:
        schema: Any = StructType.fromDDL(ddl)
    except Exception as error:
        raise ExportError(f"it is not a schema in Spark's DDL form: {str(error).partition(chr(10))[0]}") from error
    return Decoding.json(arrow_schema(schema), kind)


def paths_of(source: str | Sequence[str] | Mapping[str, str]) -> Sequence[str]:
    """Returns the paths of a source; none of brokers."""
    return () if isinstance(source, Mapping) else [source] if isinstance(source, str) else source


def backend_of(
    source: str | Sequence[str] | Mapping[str, str], file_bytes: int, store_conf: Mapping[str, str] | None = None
) -> Backend:
    """Returns the logs in these paths, or with `kafka.*` options those of brokers, in pieces for files of this size."""
    if isinstance(source, Mapping):
        from ...readers.wire import WireBackend

        return WireBackend(source)
    # Records take more space in Arrow than in the log.
    return FileBackend(paths_of(source), part_bytes=max(1, file_bytes // 2), store_conf=store_conf)


def _report_plan(
    spark: SparkSession, made: Plan, root: str, on_plan: Callable[[str], object] | None, *, every_topic: bool = False
) -> None:
    if on_plan is None:
        return
    if every_topic:
        for topic in made.topics.values():
            offsets = sum(one.size for of in topic.todo.values() for one in of)
            partitions, there = len(topic.skipped), sum(topic.skipped.values())
            on_plan(f"{topic.topic}: {partitions} partitions, {offsets:,} offsets, {there:,} exported before")
    if gone := sum(one.range.size for one in made.gone):
        on_plan(f"{gone:,} offsets were deleted before they were exported")
    tasks = spark_tasks.tasks(spark, made.works)
    size = size_text(sum(map(size_of, made.works)))
    on_plan(
        f"{len(made.topics)} topics, {made.offsets:,} offsets to {root}, about {size}: {len(made.works)} pieces in "
        f"{tasks} tasks; {made.skipped:,} offsets exported before"
    )
