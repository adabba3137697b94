"""Imports Parquet with Spark: to topics of running brokers, or to segments for a broker that is stopped.

    import_records(spark, "/lake/kafka", bootstrap="broker:9092")
    import_records(spark, "/lake/kafka", data_dir="/var/lib/ottla")

Owns the distribution of tasks; `steps.py` and `produce.py` have the steps. In both cases a second run of the same
import continues after an interruption, and adds no record twice. The files, and with `data_dir` the staging folder
beside it, must be mounted at the same paths here and on the workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from pyspark.sql import SparkSession

from ....protocol.records.compression import Codec
from ....protocol.text import size as size_text
from ...backend import ReadError, pattern
from ...sink.task_writer import Sent
from .. import spark_tasks
from ..in_place.directory_hold import check_on_disk
from ..spark_tasks import Progress, ProgressCallback
from . import files, produce, sources, tasks
from .adoption import Target
from .plan import PIECE_BYTES, Plan
from .plan import plan as planned_import
from .produce import BY_KEY, Delivery
from .report import Imported, ImportReport
from .settings import ImportSettings
from .steps import fill
from .tasks import Layout, Work, Written
from .topics import check_wide, counts

__all__ = ["ImportReport", "ImportSettings", "import_records"]

LOOK_HERE_FILES, LOOK_HERE_BYTES = 32, 32 << 20


def import_records(
    spark: SparkSession,
    folder: str | os.PathLike[str] | None,
    settings: ImportSettings | None = None,
    *,
    bootstrap: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> ImportReport:
    """Imports the records of Parquet files or objects: an export, a table of Delta or Iceberg, or any with a column
    `value`. `folder` is None for an Iceberg table that `settings` name. `key`, `headers`, `timestamp`, `topic`,
    `partition` and `offset` are used if present.

    `bootstrap`: to brokers, each record once, in the order of the offsets; missing topics are created. Rows without a
    partition go to the partition of their key. Or `data_dir`: as segments of format v2, with their offsets, into a data
    directory that is not in use; an existing topic is refused. Keys, values, headers and timestamps are kept in both
    cases; a record without a timestamp stays without.

    With `dry_run` nothing is changed, and the report is the plan. `on_plan` receives the plan line by line,
    `on_progress` the progress. Raises ReadError, SinkError, JobError.
    """
    if (bootstrap is None) == (data_dir is None):
        raise ReadError("give either bootstrap or data_dir")
    if data_dir is not None:
        check_on_disk(data_dir)
    settings = settings or ImportSettings()
    settings.check()
    began = time.monotonic()
    origin = sources.listed(folder, settings.table, settings.catalog, settings.store_conf)
    found = _inspected(spark, origin.files)
    plan = planned_import(
        found,
        to_topic=settings.to_topic,
        topics=settings.topics,
        like=pattern(settings.like),
        piece_bytes=PIECE_BYTES if bootstrap is None else produce.PIECE_BYTES,
        no_partition=0 if bootstrap is None else BY_KEY,
    )
    source = origin.name
    topics = settings.topics
    chosen = (settings.to_topic, None if topics is None else sorted(topics), settings.like)
    if bootstrap is not None:
        configs = dict(settings.config or {})
        if settings.codec is not None:
            configs["compression.type"] = settings.codec
        options = produce.options_of(bootstrap, configs)
        if on_plan is not None or dry_run:
            there = counts(options, sorted(plan.partitions))
            check_wide(there, plan.partitions)
            new = [topic for topic in plan.partitions if topic not in there]
            _report_plan(plan, on_plan, f"brokers at {bootstrap}", new)
        if dry_run:
            return _planned(plan, source, bootstrap)
        identity = files.identity(found, *chosen)
        deliveries = _Deliveries(spark, plan, on_progress)
        report = produce.bring(plan, source, options, identity, deliveries, partitions=settings.partitions)
    else:
        assert data_dir is not None
        target = Target(tasks.DiskFiles(), os.fspath(data_dir))
        _report_plan(plan, on_plan, target.describe(), [])
        if dry_run:
            target.check(list(plan.partitions))
            return _planned(plan, source, target.path)
        layout = Layout(codec=Codec[(settings.codec or "none").upper()], segment_bytes=settings.segment_bytes)
        identity = files.identity(found, *chosen, layout)

        def run(works: Sequence[Work]) -> Iterator[tuple[Work, Written]]:
            size_of = attrgetter("piece.plain_bytes")
            return spark_tasks.run(
                spark, works, tasks.write, bytes_of=size_of, on_progress=on_progress, name="ottla import"
            )

        report = fill(plan, source, target, identity, layout, run, now_ms=time.time_ns() // 1_000_000)
    report.seconds = time.monotonic() - began
    return report


def _inspected(spark: SparkSession, listed: Sequence[files.ParquetFile]) -> list[files.Found]:
    """Returns the contents of each of the files. A few small ones are inspected here, faster than Spark would start."""
    if len(listed) <= LOOK_HERE_FILES and sum(file.size_bytes for file in listed) <= LOOK_HERE_BYTES:
        return [files.look(file) for file in listed]
    name, size_of = "ottla import: inspect files", attrgetter("size_bytes")
    found = spark_tasks.run(spark, listed, files.look, bytes_of=size_of, name=name)
    return sorted((of for _, of in found), key=lambda of: of.file.name)


def _report_plan(plan: Plan, on_plan: Callable[[str], object] | None, where: str, new: Sequence[str]) -> None:
    if on_plan is None:
        return
    on_plan(
        f"{plan.files} files, {plan.rows:,} records, {size_text(plan.file_bytes)}"
        f" ({size_text(plan.plain_bytes)} uncompressed),"
        f" {len(plan.keys)} partitions of {len(plan.partitions)} topics to {where}"
    )
    if new:
        on_plan(f"topics to create: {', '.join(new)}")


def _planned(plan: Plan, source: str, target: str) -> ImportReport:
    report = ImportReport(source, target, plan.files, dry_run=True)
    for key in plan.keys:
        some = [piece for piece in plan.pieces if piece.key == key]
        first, end = min(piece.first for piece in some), max(piece.last for piece in some) + 1
        size = sum(piece.plain_bytes for piece in some)
        report.partitions.append(Imported(*key, sum(piece.rows for piece in some), size, first, end))
    return report


class _Deliveries:
    """Runs the tasks of one transaction after the other, with their common progress."""

    def __init__(self, spark: SparkSession, plan: Plan, on_progress: ProgressCallback | None) -> None:
        self._spark = spark
        self._say = on_progress
        self._left_bytes = plan.plain_bytes
        self._left_items = len(plan.pieces)
        self._began = time.monotonic()
        self._items = self._bytes = 0

    def __call__(self, works: Sequence[Delivery]) -> Iterator[tuple[Delivery, Sent]]:
        name = "ottla import"
        # Tasks of rows by key read the same files, and each counts their full size.
        yield from spark_tasks.run(
            self._spark, works, produce.deliver, bytes_of=attrgetter("plain_bytes"), on_progress=self._report, name=name
        )
        self._items += len(works)
        self._bytes += sum(work.plain_bytes for work in works)

    def _report(self, progress: Progress) -> None:
        if self._say is not None:
            done = self._bytes + progress.bytes
            self._say(
                Progress(
                    self._items + progress.items,
                    max(self._left_items, self._items + progress.all_items),
                    done,
                    max(self._left_bytes, self._bytes + progress.all_bytes),
                    time.monotonic() - self._began,
                    progress.ended and done >= self._left_bytes,
                )
            )
