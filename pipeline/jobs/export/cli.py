"""`ottla pipeline export`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...cluster import context_of
from ...extras import require
from ..command import (
    Job,
    PlanCallback,
    Report,
    UsageError,
    add_catalog,
    add_source,
    add_store_conf,
    check_catalog,
    check_least,
    chosen_topics,
    pattern,
    source,
)
from . import decoding_arguments
from .decoding_arguments import PARTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback
    from .commit import Settings

CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--to", required=True, metavar="FOLDER", help="export here; a second run adds new records")
    add_store_conf(parser)
    parser.add_argument(
        "--format",
        choices=("parquet", "delta", "iceberg"),
        default="parquet",
        help="a table needs the extra of its name",
    )
    add_catalog(parser, "default: sql, a SQLite file in FOLDER")
    parser.add_argument("--from", dest="starting", metavar="WHEN", default="earliest", help="earliest, a time, offsets")
    parser.add_argument("--until", dest="ending", metavar="WHEN", default="latest", help="latest, a time, offsets")
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="read_committed skips aborted and open transactions",
    )
    parser.add_argument("--codec", choices=CODECS, default="zstd", help="compression of the files")
    parser.add_argument("--rows-per-file", type=int, metavar="N", help="most rows of a file")
    parser.add_argument("--file-bytes", type=int, metavar="N", help="close a file after so many bytes of records")
    decoding_arguments.add(parser, to="into the column `decoded`")
    parser.add_argument(
        "--undecodable",
        choices=("null", "fail", "dead-letter"),
        default="null",
        help="treatment of values and keys that do not decode; dead-letter: also in a column, with the error",
    )
    parser.add_argument(
        "--add-columns", action="store_true", help="the table gets the new fields of the schema, which it lacks"
    )
    parser.add_argument("--on-corrupt", choices=("fail", "skip"), default="fail", help="treatment of damaged batches")
    parser.add_argument(
        "--new-generation", action="store_true", help="export recreated topics next to their old generation"
    )
    parser.add_argument(
        "--fail-on-loss", action="store_true", help="fail if records were deleted before they were exported"
    )


def check(parsed: argparse.Namespace) -> None:
    parsed.source = source(parsed)
    if parsed.undecodable == "dead-letter" and parsed.decode is None and parsed.decode_key is None:
        raise UsageError("--undecodable dead-letter needs --decode")
    decoding_arguments.check(parsed)
    if parsed.add_columns and parsed.format == "parquet":
        raise UsageError("--add-columns needs --format delta or iceberg: files of Parquet have no common schema")
    check_least(parsed, rows_per_file=1, file_bytes=1)
    if parsed.format == "delta":
        require("deltalake", "--format delta")
    check_catalog(parsed, "--format iceberg", parsed.format == "iceberg")
    from . import arguments

    parsed.to = arguments.folder(parsed.to)
    parsed.place = arguments.objects(parsed.to, dict(parsed.store_conf), parsed.file_bytes or 0, parsed.paths)
    arguments.check_folder(parsed.to, parsed.format, parsed.paths, has_catalog=bool(parsed.catalog_properties))
    parsed.starting = arguments.limit(parsed.starting, "--from")
    parsed.ending = arguments.limit(parsed.ending, "--until")
    parsed.decodings = [decoding_arguments.decoding(parsed, part, lambda: _before(parsed)) for part in PARTS]
    if parsed.paths:
        chosen_topics(parsed)
    else:
        pattern(parsed)


def _before(parsed: argparse.Namespace) -> Settings | None:
    """Returns the settings of the earlier export into the folder, whose columns this one has, too; None without."""
    from .commit import stored

    return None if parsed.add_columns else stored(parsed.to, None if parsed.place is None else parsed.place.files())


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from . import job
    from .settings import ExportSettings

    if any(part.is_ddl(parsed) for part in PARTS):
        context_of(spark)  # Spark parses the schema, so it must have started
        made = [decoding_arguments.of_spark(parsed, part) for part in PARTS]
        parsed.decodings = [one or two for one, two in zip(made, parsed.decodings, strict=True)]
    sizes: dict[str, Any] = {} if parsed.file_bytes is None else {"file_bytes": parsed.file_bytes}
    settings = ExportSettings(
        topics=parsed.topic,
        like=parsed.topics,
        starting=parsed.starting,
        ending=parsed.ending,
        isolation=parsed.isolation,
        format=parsed.format,
        table=parsed.table,
        catalog=parsed.catalog_properties,
        codec=parsed.codec,
        rows_per_file=parsed.rows_per_file,
        decoding=parsed.decodings[0],
        key_decoding=parsed.decodings[1],
        on_undecodable=parsed.undecodable,
        add_columns=parsed.add_columns,
        on_corrupt=parsed.on_corrupt,
        new_generation=parsed.new_generation,
        fail_on_loss=parsed.fail_on_loss,
        store_conf=dict(parsed.store_conf),
        **sizes,
    )
    report = job.export(
        spark,
        parsed.source,
        parsed.to,
        settings,
        dry_run=parsed.dry_run,
        on_plan=on_plan,
        on_progress=on_progress,
    )
    return None if parsed.dry_run else report, 0


JOB = Job(
    name="export",
    words="Export records to Parquet, Delta or Iceberg, by topic and date; a second run adds only what is new.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
