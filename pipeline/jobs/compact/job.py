"""Compacts data directories with Spark, like the broker's cleaner: the last record of each key is kept.

    report = compact(spark, "/var/lib/kafka")
    print(report.to_text())

Owns the distribution of the work: a task for each segment lists the last offset of each of its keys, a shuffle of these
by key hash finds the superseded ones, and a task for each group of segments rewrites it. `compact/steps.py` has the
rules for each partition, and the order in which the driver puts results in place. Only names and offsets are sent to
the workers, which must see the directories at the same paths as the driver.

Memory: a task holds ROWS keys (1 Mi, of 24 bytes) several times, or eight bytes for each record kept in its group; the
shuffle spills to disk. Disk: room for the rewritten segments, and 24 bytes for each key of each segment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ....storage.io.files import DiskFiles
from ...backend import ReadError
from ...cluster import context_of
from .. import spark_tasks
from ..in_place.directory_hold import Held, distinct, held
from ..partitions import topic_configs
from ..spark_tasks import ProgressCallback
from .configs import CompactSettings, Settings, compacted_topics
from .last_offsets import ROWS, Part, keys_of, settle, split, write_settled
from .report import CompactReport, report_of
from .steps import Buckets, Compaction, PartitionPlan, check_space, checkpoints, plan_partition
from .tasks import rewrite_group


def compact(
    spark: SparkSession,
    paths: str | Sequence[str],
    settings: CompactSettings | None = None,
    *,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> CompactReport:
    """Compacts data directories of Ottla or of Apache Kafka whose brokers are stopped. A `dry_run` changes nothing.
    `on_plan` receives the plan line by line, `on_progress` the progress.

    A partition with damage is left unchanged, as by a broker; `report.problems` has the places. Raises ReadError for
    directories that are in use, were not closed or lack space, and for topics that do not exist or are not compacted;
    JobError if Spark or a disk fails. Results that were put in place stay, and another run continues.
    """
    began = time.monotonic()
    roots = distinct([paths] if isinstance(paths, str) else paths)
    settings = settings or CompactSettings()
    now_ms = int(time.time() * 1000) if settings.now_ms is None else settings.now_ms
    with contextlib.ExitStack() as stack:
        holdings = [stack.enter_context(held(root, looking=dry_run)) for root in roots]
        chosen = chosen_topics(holdings, settings)
        known = {holding.root: checkpoints(holding.files, holding.root) for holding in holdings}
        plans: list[PartitionPlan] = []
        unplanned: list[tuple[str, str]] = []
        for holding, folder in [(one, folder) for one in holdings for folder in one.partitions]:
            if (configs := chosen.get(folder.topic)) is None:
                continue
            key = folder.topic, folder.partition
            try:
                plans.append(
                    plan_partition(
                        holding,
                        *key,
                        configs,
                        now_ms=now_ms,
                        release=settings.release,
                        min_dirty_ratio=settings.min_dirty_ratio,
                        known=known[holding.root],
                    )
                )
            except ReadError as error:
                unplanned.append((folder.topic, str(error)))
        due = any(plan.groups for plan in plans)
        space = check_space(plans, spark_tasks.parallelism(spark)) if due else []
        rooms = [f"{root}: {size_text(need)} needed, {size_text(left)} free" for root, need, left in space]
        for line in (*plan_lines(plans), *rooms):
            if on_plan is not None:
                on_plan(line)
        work = Compaction(DiskFiles(), plans)
        if due and not dry_run:
            _run(spark, work, on_progress)
        report = report_of(roots, list(chosen), plans, work.outcomes, unplanned)
    report.dry_run = dry_run
    report.seconds = time.monotonic() - began
    return report


def chosen_topics(holdings: Sequence[Held], settings: CompactSettings) -> dict[str, Settings]:
    """Returns the selected topics of these directories with their settings. Raises ReadError."""
    return compacted_topics(
        {folder.topic for holding in holdings for folder in holding.partitions},
        topic_configs([holding.root for holding in holdings]),
        {topic for holding in holdings for topic, _ in checkpoints(holding.files, holding.root).cleaned},
        settings,
    )


def plan_lines(plans: Sequence[PartitionPlan]) -> list[str]:
    """Returns the plan, a line for each topic."""
    lines: list[str] = []
    for topic in dict.fromkeys(plan.topic for plan in plans):
        own = [plan for plan in plans if plan.topic == topic]
        due = [plan for plan in own if plan.groups]
        if not due:
            lines.append(f"{topic}: nothing to compact in {len(own)} partitions")
            continue
        dirty = sum(plan.dirty.cleanable_bytes for plan in due)
        lines.append(
            f"{topic}: {len(due)} of {len(own)} partitions, {size_text(sum(plan.rewritten_bytes for plan in due))} in "
            f"{sum(len(plan.task.segments) for plan in due)} segments, {size_text(dirty)} of it dirty, to be "
            f"{sum(len(plan.groups) for plan in due)} groups"
        )
    return lines or ["no selected topic is compacted"]


def _run(spark: SparkSession, work: Compaction, on_progress: ProgressCallback | None) -> None:
    try:
        for item, found in spark_tasks.run(
            spark, work.keys_items(), keys_of, on_progress=on_progress, name="ottla compact: keys"
        ):
            work.found(item, found)
        _shuffle(spark, work)
        for group, done in spark_tasks.run(
            spark, work.group_items(), rewrite_group, on_progress=on_progress, name="ottla compact: segments"
        ):
            work.put(group, done)
    except BaseException:
        with contextlib.suppress(ReadError):  # must not hide the error that ends the job
            work.clear()
        raise
    work.clear()


# -- the shuffle

Keyed = tuple[int, tuple[int, int, Part]]
"""The number of the task, and its input: the index in the list of `Buckets`, the number of the bucket, its part."""


def _shuffle(spark: SparkSession, work: Compaction) -> None:
    """Brings all rows of a bucket together, several small buckets to a task, and settles each."""
    made = work.buckets()
    if not made:
        return
    bins, count = _bins(made)
    sources = [
        (number, index, name, bins[number]) for number, buckets in enumerate(made) for index, name in buckets.names
    ]
    directories = [(buckets.directory, buckets.count) for buckets in made]

    def parts_of(source: tuple[int, int, str, list[int]]) -> Iterator[Keyed]:
        number, index, name, own = source
        directory, buckets = directories[number]
        for bucket, part in split(DiskFiles(), os.path.join(directory, name), index, buckets):
            yield own[bucket], (number, bucket, part)

    def settled(found: Iterable[Keyed]) -> Iterator[tuple[int, str]]:
        parts: dict[tuple[int, int], list[Part]] = {}
        for _, (number, bucket, part) in found:
            parts.setdefault((number, bucket), []).append(part)
        for (number, _), own in parts.items():
            yield number, write_settled(DiskFiles(), directories[number][0], settle(own))

    context = context_of(spark)
    try:
        context.setJobDescription("ottla compact: last offsets")
        slices = min(len(sources), max(context.defaultParallelism * spark_tasks.WAVES, count))
        rows = context.parallelize(sources, slices).flatMap(parts_of).partitionBy(count, int)
        for number, name in rows.mapPartitions(settled).collect():
            work.settled(made[number].partition, name)
    except Exception as error:
        raise spark_tasks.ended(spark, error) from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]


def _bins(made: Sequence[Buckets], rows: int = ROWS) -> tuple[list[list[int]], int]:
    """Returns the task of each bucket, so that each task has about `rows` rows, and the number of tasks."""
    bins: list[list[int]] = []
    task, filled = 0, 0
    for buckets in made:
        own: list[int] = []
        for _ in range(buckets.count):
            size = -(-buckets.rows // buckets.count)
            if filled and filled + size > rows:
                task, filled = task + 1, 0
            own.append(task)
            filled += size
        bins.append(own)
    return bins, task + 1
