"""Records to Parquet or Delta with Spark: pieces of logs are written in tasks, and committed by the driver.

    export(spark, "/var/lib/kafka", "/lake/kafka", ExportSettings(topics=["orders"]))
    export(spark, {"bootstrap.servers": "broker:9092"}, "/lake/kafka")

Owns the handing out; see `tasks.py` for what is written. The logs are only read. The folder must be mounted
at the same path where the tasks run and here. A second run adds what is new, and goes on where the first one stopped.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...readers.files import FileBackend
from .. import spark_tasks
from ..spark_tasks import Say
from . import arguments
from .commit import Committer, check
from .delta import DeltaTable
from .manifest import ExportError
from .plan import Plan, Source, plan
from .report import ExportReport
from .settings import ExportSettings
from .tasks import Work, write
from .value_columns import Decoding

__all__ = ["ExportReport", "ExportSettings", "export", "json_schema"]


def export(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    to: str,
    settings: ExportSettings | None = None,
    *,
    dry_run: bool = False,
    tell: Callable[[str], object] | None = None,
    say: Say | None = None,
) -> ExportReport:
    """Exports records that are not in the folder `to` yet; see `pipeline/jobs/export/layout.py` for what is in it then.

    `source`: log directories and partition folders, or the `kafka.*` options of running brokers without their prefix.
    `dry_run` only tells the plan. Raises ExportError and other ReadErrors, JobError, OSError. What was done before an
    error stays, and is not done again.
    """
    began = time.monotonic()
    settings = settings or ExportSettings()
    form, of_folder, request = settings.form(), settings.of_folder(), settings.request()
    root = arguments.folder(to)
    paths = () if isinstance(source, Mapping) else [source] if isinstance(source, str) else source
    arguments.check_folder(root, settings.format, paths)
    with _backend(source, settings.file_bytes) as backend:
        if dry_run:
            made = plan(backend, check(root, of_folder), request, root, form)
            _tell_plan(spark, made, root, tell, every_topic=True)
            return ExportReport(root, settings.format, made)
        table = partial(DeltaTable, root, form.schema) if form.for_delta else None
        with _telling(root), Committer.open(root, of_folder, table=table) as committer:
            made = plan(backend, committer.manifest, request, root, form)
            _tell_plan(spark, made, root, tell)
            report = ExportReport(root, settings.format, made)
            _export(spark, made, committer, report, say)
    report.seconds = time.monotonic() - began
    return report


@contextlib.contextmanager
def _telling(root: str) -> Iterator[None]:
    """What the disk says names the folder, where it names no file: a write to a full one does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.strerror is None:
            raise
        raise ExportError(f"cannot export to {root}: {error.strerror}") from error


def _export(spark: SparkSession, made: Plan, committer: Committer, report: ExportReport, say: Say | None) -> None:
    try:
        for work, written in spark_tasks.run(
            spark, made.works, write, bytes_of=_bytes_of, say=say, name="ottla export"
        ):
            report.add(committer.add(work, written, made.topics[work.topic].topic_id), written)
        committer.skip(made.gone)  # noted when there is a report that tells it
    finally:
        committer.commit()


def json_schema(ddl: str) -> Decoding:
    """How JSON is decoded to the columns of a schema as Spark writes it: `id BIGINT, name STRING`. ExportError."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        schema: Any = StructType.fromDDL(ddl)
    except Exception as error:
        raise ExportError(f"it is no schema of Spark: {str(error).partition(chr(10))[0]}") from error
    return Decoding.json(to_arrow_schema(schema, timezone="UTC"))


def _backend(source: str | Sequence[str] | Mapping[str, str], file_bytes: int) -> Source:
    if isinstance(source, Mapping):
        from ...readers.wire import WireBackend

        return WireBackend(source)
    # What a file holds of Arrow is more than the log has of it.
    return FileBackend([source] if isinstance(source, str) else source, part_bytes=max(1, file_bytes // 2))


def _tell_plan(
    spark: SparkSession,
    made: Plan,
    root: str,
    tell: Callable[[str], object] | None,
    *,
    every_topic: bool = False,
) -> None:
    if tell is None:
        return
    if every_topic:
        for topic in made.topics.values():
            offsets = sum(one.size for of in topic.todo.values() for one in of)
            there = sum(topic.skipped.values())
            tell(f"{topic.topic}: {topic.partitions} partitions, {offsets:,} offsets, {there:,} are there already")
    if gone := sum(one.end - one.start for one in made.gone):
        tell(f"{gone:,} offsets were deleted before they were exported")
    tasks = spark_tasks.tasks(spark, made.works, bytes_of=_bytes_of)
    told = size_text(sum(map(_bytes_of, made.works)))
    tell(
        f"{len(made.topics)} topics, {made.offsets:,} offsets to {root}, about {told}: {len(made.works)} pieces in "
        f"{tasks} tasks; {made.skipped:,} offsets are there already"
    )


def _bytes_of(work: Work) -> int:
    return work.size_bytes
