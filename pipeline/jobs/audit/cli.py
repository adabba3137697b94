"""`ottla pipeline audit`: exit code 1 with any finding."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ..command import Job, PlanCallback, Report, add_paths, add_store_conf, check_store_conf, chosen_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_paths(parser)
    add_store_conf(parser)
    words = "check batches without the records in them"
    parser.add_argument("--no-records", dest="records", action="store_false", help=words)


def check(parsed: argparse.Namespace) -> None:
    check_store_conf(parsed)
    parsed.chosen = chosen_topics(parsed)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from . import job

    wanted = {"topics": parsed.chosen, "records": parsed.records, "store_conf": parsed.store_conf}
    on_plan(job.plan_text(spark, parsed.paths, **wanted))
    if parsed.dry_run:
        return None, 0
    report = job.audit(spark, parsed.paths, on_progress=on_progress, **wanted)
    return report, FAILED if report.findings else 0


JOB = Job(
    name="audit",
    words="Check batches, indexes, sequences and transactions; exit code 1 with any finding.",
    add_arguments=add_arguments,
    check=check,
    run=run,
    plots=True,
)
