"""Compaction of whole data directories with Spark, as the broker's cleaner does it: of each key the last record stays.

    report = compact(spark, "/var/lib/kafka")
    print(report.to_text())

Owns the handing out: a task for each segment that notes the last offset of each key in it, a shuffle of these by their
hashes, which says what is superseded, and a task for each group of segments that are written anew together. What is
done to which partition, and the order in which the driver puts it in place, is `compact/steps.py`'s; nothing but
plain names and offsets crosses to the workers, which must see the directories at the same paths as the driver.

Memory: a task has ROWS keys (1 Mi, of 24 bytes) a few times over, or eight bytes for each record that stays in the
group that it writes; the shuffle spills to the disk by itself. Beside the logs there is room needed for what is written
anew, and for 24 bytes for each key of each segment.
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
from .. import spark_tasks
from ..in_place.directory_hold import Held, distinct, held
from ..partitions import topic_configs
from ..spark_tasks import JobError, Say
from .configs import Settings, compacted_topics
from .last_offsets import ROWS, KeysItem, Part, keys_of, settle, split, write_settled
from .report import CompactReport, report_of
from .settings import CompactSettings
from .steps import Buckets, Compaction, Outcome, PartitionPlan, check_space, checkpoints, plan_partition
from .tasks import GroupItem, rewrite_group

__all__ = ["CompactReport", "CompactSettings", "compact"]

Tell = Callable[[str], object]


def compact(
    spark: SparkSession,
    paths: str | Sequence[str],
    settings: CompactSettings | None = None,
    *,
    dry_run: bool = False,
    tell: Tell | None = None,
    say: Say | None = None,
) -> CompactReport:
    """Compacts what lies in data directories of Ottla or of Apache Kafka whose brokers are stopped. A `dry_run` changes
    nothing. `tell` receives the plan line by line, `say` progress.

    A partition with damage is left as it is, as a broker does: `report.problems` say where. Raises ReadError for
    directories that are in use, were not closed or lack room, and for topics that are not there or not compacted;
    JobError if Spark or a disk fails. What was put in place until then stays, and another run goes on.
    """
    began = time.monotonic()
    roots = distinct([paths] if isinstance(paths, str) else paths)
    settings = settings or CompactSettings()
    now_ms = int(time.time() * 1000) if settings.now_ms is None else settings.now_ms
    with contextlib.ExitStack() as stack:
        holdings = [stack.enter_context(held(root, looking=dry_run)) for root in roots]
        chosen = chosen_topics(holdings, settings)
        known = {holding.root: checkpoints(holding) for holding in holdings}
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
        space = check_space(plans, spark.sparkContext.defaultParallelism)
        rooms = [f"{root}: {size_text(need)} needed, {size_text(left)} free" for root, need, left in space]
        for line in (*plan_lines(plans), *rooms):
            if tell is not None:
                tell(line)
        outcomes = [Outcome(plan.segments, plan.bytes) for plan in plans]
        if not dry_run:
            outcomes = _done(spark, plans, say)
        report = report_of(roots, list(chosen), plans, outcomes, unplanned)
    report.dry_run = dry_run
    report.seconds = time.monotonic() - began
    return report


def chosen_topics(holdings: Sequence[Held], settings: CompactSettings) -> dict[str, Settings]:
    """The topics in these directories that are meant, with what their configs say. ReadError."""
    return compacted_topics(
        {folder.topic for holding in holdings for folder in holding.partitions},
        topic_configs([holding.root for holding in holdings]),
        {topic for holding in holdings for topic, _ in checkpoints(holding).cleaner_offsets},
        topics=settings.topics,
        like=settings.like,
        force=settings.force,
        defaults=settings.configs,
    )


def plan_lines(plans: Sequence[PartitionPlan]) -> list[str]:
    """What will be done, a line for each topic."""
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
    return lines or ["no topic here is compacted"]


def _done(spark: SparkSession, plans: Sequence[PartitionPlan], say: Say | None) -> list[Outcome]:
    work = Compaction(DiskFiles(), plans)
    if not any(plan.groups for plan in plans):
        return work.outcomes
    try:
        for item, found in spark_tasks.run(
            spark, work.keys_items(), keys_of, bytes_of=_size_of, say=say, name="ottla compact: keys"
        ):
            work.found(item, found)
        _shuffle(spark, work)
        for group, done in spark_tasks.run(
            spark, work.group_items(), rewrite_group, bytes_of=_size_of, say=say, name="ottla compact: segments"
        ):
            work.put(group, done)
    except BaseException:
        with contextlib.suppress(ReadError):  # what ends the job is to be told, not this
            work.clear()
        raise
    work.clear()
    return work.outcomes


def _size_of(item: KeysItem | GroupItem) -> int:
    return item.size_bytes


# -- the shuffle

Keyed = tuple[int, tuple[int, int, Part]]
"""The number of the task, and of what it gets: the index among `Buckets`, the number of the bucket, its part."""


def _shuffle(spark: SparkSession, work: Compaction) -> None:
    """Brings all rows of a bucket together, small buckets several to a task, and settles each."""
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

    context = spark.sparkContext
    try:
        context.setJobDescription("ottla compact: last offsets")
        slices = min(len(sources), max(context.defaultParallelism * spark_tasks.WAVES, count))
        rows = context.parallelize(sources, slices).flatMap(parts_of).partitionBy(count, int)
        for number, name in rows.mapPartitions(settled).collect():
            work.settled(made[number].partition, name)
    except Exception as error:
        raise JobError(f"Spark ended the job: {spark_tasks.sentence(error)}") from error
    finally:
        context.setJobDescription(None)  # type: ignore[arg-type]


def _bins(made: Sequence[Buckets], rows: int = ROWS) -> tuple[list[list[int]], int]:
    """Which task each bucket goes to, so that each has about so many rows, and how many tasks there are."""
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
