"""Upgrades data directories with Spark: every segment with v0 or v1 messages is rewritten as v2.

    report = upgrade(spark, "/var/lib/kafka", dry_run=True)
    print(report.to_text())

Owns only the distribution of tasks; `pipeline/jobs/upgrade/steps.py` has the steps and their order. It works in place
on directories of Ottla or Apache Kafka that no broker has open, and that were closed cleanly. The workers must see them
at the same paths as the driver.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ..in_place.directory_hold import distinct, held
from ..partitions import topic_configs
from ..spark_tasks import ProgressCallback, parallelism, run, size_of, tasks
from .report import UpgradeReport
from .steps import SegmentItem, Upgrade, run_here

LOOK_HERE_BYTES = 64 << 20


def upgrade(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> UpgradeReport:
    """Upgrades these data directories in place and returns the result; with `dry_run` changes nothing and returns the
    plan.

    Offsets, keys, values and timestamps stay, and every result is decoded and compared with its source before it
    replaces it. An interrupted upgrade continues with the next run. `topics`: only these; all if None, internal ones as
    well. `on_plan` receives the plan line by line, `on_progress` the progress (`spark_tasks.Meter` prints it). Raises
    ReadError for a path that is no data directory, is in use, was not closed cleanly, or lacks space, and for a missing
    topic; JobError for a damaged segment, and if Spark fails: segments swapped until then stay upgraded, all others
    unchanged.
    """
    chosen = distinct([paths] if isinstance(paths, str) else paths)
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(held(path, looking=dry_run)) for path in chosen]
        planned = Upgrade(roots, topics=topics, configs=topic_configs(chosen) or {})

        def looking(items: Sequence[SegmentItem], task: Callable[[SegmentItem], Any]) -> Iterable[Any]:
            if sum(map(size_of, items)) <= LOOK_HERE_BYTES:  # faster than Spark would start
                return run_here(items, task)
            # Checking a segment reads its first bytes, or a part of the headers.
            return run(spark, items, task, bytes_of=lambda item: item.size_bytes // 16, name="ottla upgrade: look")

        if on_plan is not None:
            for folder in (folder for root in roots for folder in root.unfinished):
                on_plan(f"{folder}: its interrupted swap is completed or undone first")
        report = planned.look(looking)
        space = planned.check_space(parallelism(spark)) if planned.items() else []
        if on_plan is not None:
            total, count = report.total(), tasks(spark, planned.items())
            sizes = f"{size_text(total.bytes_before)}, about {size_text(total.bytes_after)} afterwards"
            on_plan(
                f"{total.segments} of {report.all_segments} segments have messages of format v0 or v1: "
                f"{len(report.topics)} topics, {sizes}, in {count} tasks"
            )
            for root, need, left in space:
                on_plan(f"{root}: {size_text(need)} needed at most, {size_text(left)} free")
        if dry_run:
            return report
        return planned.run(partial(run, spark, on_progress=on_progress, name="ottla upgrade"))
