"""The census with Spark: a task for each part of a segment; the driver builds the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...backend import ReadError
from ...objects.logs import is_missing
from .. import spark_tasks
from ..spark_tasks import ProgressCallback
from .facts import Facts
from .plan import Plan, SegmentPiece, plan
from .report import CensusReport, report
from .tasks import count


def census(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
    store_conf: Mapping[str, str] | None = None,
) -> CensusReport:
    """Counts the contents of log directories or partition folders of Ottla and of Apache Kafka.

    `topics`: only these; all, internal ones included, if None. `on_plan` receives the plan in one line, `on_progress`
    the progress (`spark_tasks.Meter` prints it). Paths may be URLs of copies in an object store, with `store_conf` as
    its settings. Damage and segments deleted meanwhile are in the report. Raises
    ReadError for paths without logs and for logs that the workers do not see; JobError if Spark fails.
    """
    made = plan([paths] if isinstance(paths, str) else paths, topics=topics, store_conf=store_conf)
    if on_plan is not None:
        on_plan(plan_text(spark, made))
    began = time.monotonic()
    found = spark_tasks.run(spark, made.pieces, count, on_progress=on_progress, name="ottla census")
    finished = report(made, _seen(found))
    finished.seconds = time.monotonic() - began
    return finished


def plan_text(spark: SparkSession, made: Plan) -> str:
    """Returns the plan in one line."""
    tasks = spark_tasks.tasks(spark, made.pieces)
    return (
        f"{len(made.folders)} partitions, {made.segments} segments, {size_text(made.bytes)}: "
        f"{len(made.pieces)} pieces in {tasks} tasks"
    )


def _seen(found: Iterator[tuple[SegmentPiece, Facts]]) -> Iterator[tuple[SegmentPiece, Facts]]:
    """Yields the results unchanged, but raises ReadError if a file that a worker did not find exists at the driver."""
    for piece, facts in found:
        if facts.gone and not is_missing(piece.path):
            raise ReadError(f"{piece.path} exists here, but not at a worker: the workers must see the same files")
        yield piece, facts
