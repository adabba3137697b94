"""`ottla pipeline census`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..command import Job, Report, Tell, add_paths, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import Say


def check(parsed: argparse.Namespace) -> None:
    parsed.chosen = chosen_topics(parsed)


def run(spark: SparkSession, parsed: argparse.Namespace, tell: Tell, say: Say | None) -> tuple[Report | None, int]:
    from . import job

    if parsed.dry_run:
        tell(job.plan_text(spark, job.plan(parsed.paths, topics=parsed.chosen)))
        return None, 0
    return job.census(spark, parsed.paths, topics=parsed.chosen, tell=tell, say=say), 0


JOB = Job(
    name="census",
    words="Count records, bytes, formats, codecs, sizes and times; say what Kafka 4.0 does with them.",
    add_arguments=add_paths,
    check=check,
    run=run,
    plots=True,
)
