"""Old message formats out of data directories, with Spark: every segment that holds v0 or v1 is rewritten as v2.

    report = upgrade(spark, "/var/lib/kafka", dry_run=True)
    print(report.to_text())

Owns nothing but the handing out; see `pipeline/jobs/upgrade/steps.py` for what is done, and in which order. It works
in place on directories of Ottla or Apache Kafka that no broker has open, and that were closed cleanly. The workers must
see them at the same paths as the driver.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ..in_place.directory_hold import distinct, held
from ..in_place.disk_space import Room
from ..partitions import topic_configs
from ..spark_tasks import Say, run, tasks
from .report import UpgradeReport
from .steps import SegmentItem, Upgrade

__all__ = ["UpgradeReport", "upgrade"]


def upgrade(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    dry_run: bool = False,
    tell: Callable[[str], object] | None = None,
    say: Say | None = None,
) -> UpgradeReport:
    """Upgrades these data directories in place; what was done, or in a dry run, which changes nothing, is to be done.

    Offsets, keys, values and timestamps stay, and every result is decoded and compared with what it is made of before
    it takes its place. Interrupted, it goes on when it is run again. `topics`: only these; all if None, the brokers'
    own as well. `tell` hears the plan, line by line, `say` of progress (`running.Meter` prints it). Raises ReadError
    for what is no data directory, is in use, was not closed cleanly, or lacks room, and for a topic that is not there;
    JobError for a segment that is damaged, and if Spark fails: segments that were swapped by then stay upgraded, all
    others stay as they are.
    """
    chosen = distinct([paths] if isinstance(paths, str) else paths)
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(held(path, looking=dry_run)) for path in chosen]
        planned = Upgrade(roots, topics=topics, configs=topic_configs(chosen) or {})

        def looking(items: Sequence[SegmentItem], task: Callable[[SegmentItem], Any]) -> Iterable[Any]:
            return run(spark, items, task, bytes_of=_looked_at, name="ottla upgrade: look")

        def writing(items: Sequence[SegmentItem], task: Callable[[SegmentItem], Any]) -> Iterable[Any]:
            return run(spark, items, task, bytes_of=_size, say=say, name="ottla upgrade")

        if tell is not None:
            for folder in (folder for root in roots for folder in root.unfinished):
                tell(f"{folder}: what was interrupted there is ended, or undone, before anything else")
        report = planned.look(looking)
        space = planned.check_space(spark.sparkContext.defaultParallelism)
        if tell is not None:
            _tell_plan(tell, report, space, tasks(spark, planned.items(), bytes_of=_size))
        if dry_run:
            return report
        return planned.run(writing)


def _tell_plan(tell: Callable[[str], object], report: UpgradeReport, space: Sequence[Room], count: int) -> None:
    total = report.total()
    tell(
        f"{total.segments} of {report.all_segments} segments hold messages of format v0 or v1: {len(report.topics)} "
        f"topics, {size_text(total.bytes_before)}, about {size_text(total.bytes_after)} afterwards, in {count} tasks"
    )
    for root, need, left in space:
        tell(f"{root}: {size_text(need)} needed at most, {size_text(left)} free")


def _looked_at(item: SegmentItem) -> int:
    """To look at a segment takes its first bytes, or a part of the headers."""
    return item.size_bytes // 16


def _size(item: SegmentItem) -> int:
    return item.size_bytes
