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
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...readers.files import FileBackend
from .. import spark_tasks
from ..spark_tasks import ProgressCallback
from . import arguments
from .commit import Committer, check
from .committers import committer_of
from .manifest import ExportError
from .plan import Plan, Source, plan
from .report import ExportReport
from .settings import ExportSettings
from .tables import opener, with_columns
from .tasks import Work, write
from .value_columns import Decoding, Kind

__all__ = ["ExportReport", "ExportSettings", "export", "json_schema"]


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
    files = None if place is None else place.files()
    arguments.check_folder(root, settings.format, paths, has_catalog=bool(settings.catalog))
    with backend_of(source, settings.file_bytes, settings.store_conf) as backend:
        if dry_run:
            made = plan(backend, check(root, of_folder, files), request, root, form)
            _report_plan(spark, made, root, on_plan, every_topic=True)
            return ExportReport(root, settings.format, made)
        table = opener(root, form, settings.catalog_table(root), place)
        with _naming_folder(root), committer_of(place).open(root, of_folder, files=files, table=table) as committer:
            made = plan(backend, committer.manifest, request, root, with_columns(form, committer.table))
            made.works[:] = [replace(work, place=place) for work in made.works]
            _report_plan(spark, made, root, on_plan)
            report = ExportReport(root, settings.format, made)
            _export(spark, made, committer, report, on_progress)
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


def _export(
    spark: SparkSession, made: Plan, committer: Committer, report: ExportReport, on_progress: ProgressCallback | None
) -> None:
    try:
        for work, written in spark_tasks.run(
            spark, made.works, write, bytes_of=_bytes_of, on_progress=on_progress, name="ottla export"
        ):
            report.add(committer.add(work, written, made.topics[work.topic].topic_id), written)
        committer.skip(made.gone)  # committed only after every task has succeeded
    finally:
        committer.commit()


def json_schema(ddl: str, kind: Kind = "json") -> Decoding:
    """Returns the decoding of JSON to the columns of a Spark schema, such as `id BIGINT, name STRING`. Raises
    ExportError."""
    from pyspark.sql.types import StructType

    from ...spark_api import arrow_schema

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
) -> Source:
    """Returns the logs in these paths, or with `kafka.*` options those of brokers, in pieces for files of this size."""
    if isinstance(source, Mapping):
        from ...readers.wire import WireBackend

        return WireBackend(source)
    # Records take more space in Arrow than in the log.
    return FileBackend(paths_of(source), part_bytes=max(1, file_bytes // 2), store_conf=store_conf)


def _report_plan(
    spark: SparkSession,
    made: Plan,
    root: str,
    on_plan: Callable[[str], object] | None,
    *,
    every_topic: bool = False,
) -> None:
    if on_plan is None:
        return
    if every_topic:
        for topic in made.topics.values():
            offsets = sum(one.size for of in topic.todo.values() for one in of)
            there = sum(topic.skipped.values())
            on_plan(f"{topic.topic}: {topic.partitions} partitions, {offsets:,} offsets, {there:,} exported before")
    if gone := sum(one.end - one.start for one in made.gone):
        on_plan(f"{gone:,} offsets were deleted before they were exported")
    tasks = spark_tasks.tasks(spark, made.works, bytes_of=_bytes_of)
    size = size_text(sum(map(_bytes_of, made.works)))
    on_plan(
        f"{len(made.topics)} topics, {made.offsets:,} offsets to {root}, about {size}: {len(made.works)} pieces in "
        f"{tasks} tasks; {made.skipped:,} offsets exported before"
    )


def _bytes_of(work: Work) -> int:
    return work.size_bytes
