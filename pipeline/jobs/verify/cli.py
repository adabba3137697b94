"""`ottla pipeline verify`: exit code 1 with any difference."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ..command import (
    Job,
    PlanCallback,
    Report,
    add_catalog,
    add_source,
    add_store_conf,
    check_catalog,
    pattern,
    source,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--export", required=True, metavar="FOLDER", help="the folder of the export, or its URL")
    add_store_conf(parser)
    add_catalog(parser, "default: that of the folder")
    parser.add_argument(
        "--compacted", action="store_true", help="rows whose records the log's cleaner removed are no differences"
    )


def check(parsed: argparse.Namespace) -> None:
    parsed.source = source(parsed)
    pattern(parsed)
    from ..export import arguments
    from .plan import folder_settings

    parsed.export = arguments.folder(parsed.export)
    parsed.store_conf = dict(parsed.store_conf)
    place = arguments.objects(parsed.export, parsed.store_conf, 0, parsed.paths, writes=False)
    form = folder_settings(parsed.export, place).format
    check_catalog(parsed, "an Iceberg table", form == "iceberg")


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from .job import verify_export
    from .settings import VerifySettings

    report = verify_export(
        spark,
        parsed.source,
        parsed.export,
        VerifySettings(
            topics=parsed.topic,
            like=parsed.topics,
            table=parsed.table,
            catalog=parsed.catalog_properties,
            compacted=parsed.compacted,
            store_conf=parsed.store_conf,
        ),
        dry_run=parsed.dry_run,
        on_plan=on_plan,
        on_progress=on_progress,
    )
    return report, FAILED if report.differences else 0


JOB = Job(
    name="verify",
    words="Compare an export or its table with the logs, row by row; exit code 1 with any difference.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
