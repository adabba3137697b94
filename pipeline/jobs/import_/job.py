"""Imports Parquet with Spark: to topics of running brokers, or to segments for a broker that is stopped.

    import_records(spark, "/lake/kafka", bootstrap="broker:9092")
    import_records(spark, "/lake/kafka", data_dir="/var/lib/ottla")

Owns the distribution of tasks; `adoption.py` and `produce.py` have the steps. In both cases a second run of the same
import continues after an interruption, and adds no record twice. The files, and with `data_dir` the staging folder
beside it, must be mounted at the same paths here and on the workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from .adoption import Target, fill
from .plan import PIECE_BYTES, Plan
from .plan import plan as planned_import
from .produce import BY_KEY, Delivery
from .report import Imported, ImportReport
from .tasks import Layout, Work, Written

LOOK_HERE_FILES, LOOK_HERE_BYTES = 32, 32 << 20


CODECS = tuple(codec.name.lower() for codec in Codec)
MIN_SEGMENT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """The records that an import reads from Parquet files, and how it writes them.

    `topics` lists the topics; `like` is a regular expression that full names must match. With neither: all but internal
    topics. `to_topic` is the target if one topic is imported, or if the files name none. Batches are compressed with
    `codec`.

    `catalog` are pyiceberg's properties of the catalog that has the Iceberg table `table`, if the rows are in one.

    To brokers: a topic that is created has `partitions`, or more if the rows need more; `config` are configs of Kafka's
    producer. To a data directory: segments roll at `segment_bytes`.

    `store_conf` are settings of the object store that has the files, such as `endpoint` and `region`; credentials are
    none of them.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    to_topic: str | None = None
    partitions: int | None = None
    codec: str | None = None
    segment_bytes: int = tasks.SEGMENT_BYTES
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    config: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    store_conf: Mapping[str, str] | None = None

    def check(self) -> None:
        """Raises ReadError for an invalid value."""
        if self.codec is not None and self.codec not in CODECS:
            raise ReadError(f"codec is {self.codec!r}: it must be one of {', '.join(CODECS)}")
        if self.partitions is not None and self.partitions < 1:
            raise ReadError(f"partitions is {self.partitions}: it must be 1 or more")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise ReadError(f"segment_bytes is {self.segment_bytes}: it must be {MIN_SEGMENT_BYTES} or more")


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
            there = produce.counts(options, sorted(plan.partitions))
            produce.check_wide(there, plan.partitions)
            new = [topic for topic in plan.partitions if topic not in there]
            _report_plan(plan, on_plan, f"brokers at {bootstrap}", new)
        if dry_run:
            return _planned(plan, source, bootstrap)
        identity = files.identity(found, *chosen)
        deliver = _delivering(spark, plan, on_progress)
        report = produce.bring(plan, source, options, identity, deliver, partitions=settings.partitions)
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
            plain_bytes = attrgetter("piece.plain_bytes")
            return spark_tasks.run(
                spark, works, tasks.write, bytes_of=plain_bytes, on_progress=on_progress, name="ottla import"
            )

        report = fill(plan, source, target, identity, layout, run, now_ms=time.time_ns() // 1_000_000)
    report.seconds = time.monotonic() - began
    return report


def _inspected(spark: SparkSession, listed: Sequence[files.ParquetFile]) -> list[files.Found]:
    """Returns the contents of each of the files. A few small ones are inspected here, faster than Spark would start."""
    if len(listed) <= LOOK_HERE_FILES and sum(file.size_bytes for file in listed) <= LOOK_HERE_BYTES:
        return [files.look(file) for file in listed]
    found = spark_tasks.run(spark, listed, files.look, name="ottla import: inspect files")
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


def _delivering(spark: SparkSession, plan: Plan, on_progress: ProgressCallback | None) -> produce.Run:
    """Returns a function that runs the tasks of one transaction after the other, with their common progress."""
    began, plan_bytes = time.monotonic(), plan.plain_bytes
    items = size = 0

    def listen(progress: Progress) -> None:
        if on_progress is not None:
            done = size + progress.bytes
            all_items = max(len(plan.pieces), items + progress.all_items)
            all_bytes = max(plan_bytes, size + progress.all_bytes)
            has_ended = progress.ended and done >= plan_bytes
            seconds = time.monotonic() - began
            on_progress(Progress(items + progress.items, all_items, done, all_bytes, seconds, has_ended))

    def run(works: Sequence[Delivery]) -> Iterator[tuple[Delivery, Sent]]:
        nonlocal items, size
        # Tasks of rows by key read the same files, and each counts their full size.
        yield from spark_tasks.run(
            spark, works, produce.deliver, bytes_of=attrgetter("plain_bytes"), on_progress=listen, name="ottla import"
        )
        items += len(works)
        size += sum(work.plain_bytes for work in works)

    return run
