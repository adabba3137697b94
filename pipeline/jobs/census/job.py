"""The census through Spark: a task for each part of a segment, the report put together at the driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...backend import ReadError
from .. import spark_tasks
from ..spark_tasks import Say
from .facts import Facts
from .plan import Plan, SegmentPiece, plan
from .report import CensusReport, report
from .tasks import count


def census(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    tell: Callable[[str], object] | None = None,
    say: Say | None = None,
) -> CensusReport:
    """Counts what lies in log directories or partition folders of Ottla and of Apache Kafka.

    `topics`: only these; all, those of the brokers included, if None. `tell` hears the plan in one line, `say`
    progress (`running.Meter`). What is damaged, or deleted meanwhile, is in the report. Raises ReadError for paths that
    hold no logs, and for logs that the workers do not see; JobError if Spark fails.
    """
    made = plan([paths] if isinstance(paths, str) else paths, topics=topics)
    return counted(spark, made, tell=tell, say=say)


def counted(
    spark: SparkSession, made: Plan, *, tell: Callable[[str], object] | None = None, say: Say | None = None
) -> CensusReport:
    """The census of a plan that is made already."""
    if tell is not None:
        tell(plan_text(spark, made))
    began = time.monotonic()
    found = spark_tasks.run(spark, made.pieces, count, bytes_of=_bytes_of, say=say, name="ottla census")
    finished = report(made, _seen(found))
    finished.seconds = time.monotonic() - began
    return finished


def plan_text(spark: SparkSession, made: Plan) -> str:
    """What will be done, in one line."""
    tasks = spark_tasks.tasks(spark, made.pieces, bytes_of=_bytes_of)
    return (
        f"{len(made.folders)} partitions, {made.segments} segments, {size_text(made.bytes)}: "
        f"{len(made.pieces)} pieces in {tasks} tasks"
    )


def _bytes_of(piece: SegmentPiece) -> int:
    return piece.size_bytes


def _seen(found: Iterator[tuple[SegmentPiece, Facts]]) -> Iterator[tuple[SegmentPiece, Facts]]:
    """The same, if what a worker says to be gone is gone here, too."""
    for piece, facts in found:
        if facts.gone and os.path.lexists(piece.path):
            raise ReadError(f"{piece.path} is here, but not where a task ran: the workers must see the same files")
        yield piece, facts
