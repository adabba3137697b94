"""`ottla pipeline optimize`: merges the small files of an export to Delta; without Spark."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...extras import require
from ..command import Job, PlanCallback, Report, add_store_conf, check_least, pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback

CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", help="the folder of an export to Delta")
    add_store_conf(parser)
    parser.add_argument("--file-bytes", type=int, metavar="N", help="the size of the files; default 128 MiB")
    parser.add_argument("--codec", choices=CODECS, default="zstd", help="compression of the files")
    parser.add_argument(
        "--delete-old",
        type=int,
        metavar="HOURS",
        help="delete the files that are in no version of the table of the last HOURS; default: keep them",
    )


def check(parsed: argparse.Namespace) -> None:
    from ..export import arguments
    from .job import check

    check_least(parsed, file_bytes=1, delete_old=0)
    pattern(parsed)
    parsed.folder = arguments.folder(parsed.folder)
    require("deltalake", "optimize")
    check(parsed.folder, dict(parsed.store_conf))


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from .job import OptimizeSettings, optimize

    sizes: dict[str, int] = {} if parsed.file_bytes is None else {"file_bytes": parsed.file_bytes}
    report = optimize(
        parsed.folder,
        OptimizeSettings(
            topics=parsed.topic,
            like=parsed.topics,
            codec=parsed.codec,
            delete_old_hours=parsed.delete_old,
            store_conf=dict(parsed.store_conf),
            **sizes,
        ),
        dry_run=parsed.dry_run,
        on_plan=on_plan,
        on_progress=on_progress,
    )
    return None if parsed.dry_run else report, 0


JOB = Job(
    name="optimize",
    words="Merge the small files of an export to Delta, which many runs have made.",
    add_arguments=add_arguments,
    check=check,
    run=run,
    uses_spark=False,
)
