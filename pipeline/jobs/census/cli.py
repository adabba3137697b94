"""`ottla pipeline census`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..command import Job, PlanCallback, Report, add_paths, add_store_conf, check_store_conf, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    add_store_conf(parser)


def check(parsed: argparse.Namespace) -> None:
    check_store_conf(parsed)
    parsed.chosen = chosen_topics(parsed)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from . import job

    if parsed.dry_run:
        on_plan(job.plan_text(spark, job.plan(parsed.paths, topics=parsed.chosen, store_conf=parsed.store_conf)))
        return None, 0
    report = job.census(
        spark,
        parsed.paths,
        topics=parsed.chosen,
        on_plan=on_plan,
        on_progress=on_progress,
        store_conf=parsed.store_conf,
    )
    return report, 0


JOB = Job(
    name="census",
    words="Count records, bytes, formats, codecs, sizes and times; report what Kafka 4.0 does with them.",
    add_arguments=add_arguments,
    check=check,
    run=run,
    plots=True,
)
