"""`ottla pipeline upgrade`: converts old message formats in data directories, in place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..command import Job, PlanCallback, Report, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a data directory that no broker has open")


def check(parsed: argparse.Namespace) -> None:
    """Refuses directories that cannot be upgraded before Spark starts."""
    from ..in_place.directory_hold import held

    for path in parsed.paths:
        with held(path, looking=True):
            pass
    parsed.chosen = chosen_topics(parsed)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from .job import upgrade

    report = upgrade(
        spark, parsed.paths, topics=parsed.chosen, dry_run=parsed.dry_run, on_plan=on_plan, on_progress=on_progress
    )
    return report, 0


JOB = Job(
    name="upgrade",
    words="Rewrite every segment with messages of format v0 or v1 as v2, in place, with the same records.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
