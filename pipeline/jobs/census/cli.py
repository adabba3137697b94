"""`ottla pipeline census`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..command import Job, PlanCallback, Report, add_paths, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback


def check(parsed: argparse.Namespace) -> None:
    parsed.chosen = chosen_topics(parsed)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from . import job

    if parsed.dry_run:
        on_plan(job.plan_text(spark, job.plan(parsed.paths, topics=parsed.chosen)))
        return None, 0
    return job.census(spark, parsed.paths, topics=parsed.chosen, on_plan=on_plan, on_progress=on_progress), 0


JOB = Job(
    name="census",
    words="Count records, bytes, formats, codecs, sizes and times; report what Kafka 4.0 does with them.",
    add_arguments=add_paths,
    check=check,
    run=run,
    plots=True,
)
