"""`ottla pipeline audit`: exit code 1 if anything is wrong."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ..command import Job, Report, Tell, add_paths, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import Say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    words = "check batches, not the records inside of them"
    parser.add_argument("--no-records", dest="records", action="store_false", help=words)


def check(parsed: argparse.Namespace) -> None:
    parsed.chosen = chosen_topics(parsed)


def run(spark: SparkSession, parsed: argparse.Namespace, tell: Tell, say: Say | None) -> tuple[Report | None, int]:
    from . import job

    tell(job.plan_text(spark, parsed.paths, topics=parsed.chosen, records=parsed.records))
    if parsed.dry_run:
        return None, 0
    report = job.audit(spark, parsed.paths, topics=parsed.chosen, records=parsed.records, say=say)
    return report, FAILED if report.findings else 0


JOB = Job(
    name="audit",
    words="Check batches, indexes, sequences and transactions; exit code 1 if anything is wrong.",
    add_arguments=add_arguments,
    check=check,
    run=run,
    plots=True,
)
