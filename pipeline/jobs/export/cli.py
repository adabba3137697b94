"""`ottla pipeline export`."""

from __future__ import annotations

import argparse

from ...extras import require
from ..command import (
    Job,
    Result,
    Running,
    UsageError,
    add_catalog,
    add_isolation,
    add_range,
    add_source,
    add_store_conf,
    check_catalog,
    check_least,
    chosen_topics,
    settings_of,
    source,
)
from . import decoding_arguments
from .decoding_arguments import PARTS

CODECS = ("zstd", "snappy", "lz4", "gzip", "none")


class Command(Job):
    words = "Export records to Parquet, Delta or Iceberg, by topic and date; a second run adds only what is new."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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
        add_range(parser)
        add_isolation(parser)
        parser.add_argument("--codec", choices=CODECS, default="zstd", help="compression of the files")
        parser.add_argument("--rows-per-file", type=int, metavar="N", help="most rows of a file")
        parser.add_argument("--file-bytes", type=int, metavar="N", help="close a file after so many bytes of records")
        decoding_arguments.add(parser, to="into the column `decoded`")
        parser.add_argument(
            "--undecodable",
            dest="on_undecodable",
            choices=("null", "fail", "dead-letter"),
            default="null",
            help="treatment of values and keys that do not decode; dead-letter: also in a column, with the error",
        )
        parser.add_argument(
            "--add-columns", action="store_true", help="the table gets the new fields of the schema, which it lacks"
        )
        parser.add_argument(
            "--on-corrupt", choices=("fail", "skip"), default="fail", help="treatment of damaged batches"
        )
        parser.add_argument(
            "--new-generation", action="store_true", help="export recreated topics next to their old generation"
        )
        parser.add_argument(
            "--fail-on-loss", action="store_true", help="fail if records were deleted before they were exported"
        )

    def check(self, parsed: argparse.Namespace) -> None:
        parsed.source = source(parsed)
        if parsed.on_undecodable == "dead-letter" and parsed.decode is None and parsed.decode_key is None:
            raise UsageError("--undecodable dead-letter needs --decode")
        decoding_arguments.check(parsed)
        if parsed.add_columns and parsed.format == "parquet":
            raise UsageError("--add-columns needs --format delta or iceberg: files of Parquet have no common schema")
        check_least(parsed, rows_per_file=1, file_bytes=1)
        if parsed.format == "delta":
            require("deltalake", "--format delta")
        check_catalog(parsed, "--format iceberg", parsed.format == "iceberg")
        from . import arguments, commit

        parsed.to = arguments.folder(parsed.to)
        parsed.store_conf = dict(parsed.store_conf)
        parsed.place = arguments.objects(parsed.to, parsed.store_conf, parsed.file_bytes or 0, parsed.paths)
        arguments.check_folder(parsed.to, parsed.format, parsed.paths, has_catalog=bool(parsed.catalog))
        parsed.starting = arguments.limit(parsed.starting, "--from")
        parsed.ending = arguments.limit(parsed.ending, "--until")

        def before() -> commit.Settings | None:
            """The columns of the earlier export into the folder are those of this one, too."""
            return None if parsed.add_columns else commit.stored(parsed.to, parsed.place)

        parsed.decodings = [decoding_arguments.decoding(parsed, part, before) for part in PARTS]
        chosen_topics(parsed)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import ExportSettings, export

        value, key = decoding_arguments.of_spark(spark, parsed, parsed.decodings)
        settings = settings_of(ExportSettings, parsed, decoding=value, key_decoding=key)
        report = export(
            spark, parsed.source, parsed.to, settings, dry_run=parsed.dry_run, on_plan=on_plan, on_progress=on_progress
        )
        return None if parsed.dry_run else report, 0
