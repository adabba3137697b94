"""`ottla pipeline import`."""

from __future__ import annotations

import argparse

from ....protocol.arguments import add_bootstrap, add_command_config
from ..command import (
    Job,
    Result,
    Running,
    UsageError,
    add_catalog,
    add_settings,
    add_store_conf,
    check_catalog,
    check_least,
    configs,
    pattern,
    settings_of,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Command(Job):
    words = "Import Parquet or a table into logs: to topics, or to segments for a broker that is stopped."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "folder", metavar="FOLDER", nargs="?", help="Parquet files: an export, or any with a value column"
        )
        add_store_conf(parser)
        add_catalog(parser, "default: that of the export in FOLDER")
        add_bootstrap(parser, help="import to topics of running brokers")
        add_command_config(parser)
        parser.add_argument("--data-dir", metavar="DIR", help="import to segments of a stopped broker")
        parser.add_argument("--to-topic", metavar="NAME", help="import to this topic")
        parser.add_argument("--partitions", type=int, metavar="N", help="least number of partitions of a new topic")
        parser.add_argument("--codec", choices=CODECS, help="compression of batches; default none")
        parser.add_argument("--segment-bytes", type=int, metavar="N", default=1 << 30, help="with --data-dir (1 GiB)")
        add_settings(parser, "--kafka", "a config of the producer")

    def check(self, parsed: argparse.Namespace) -> None:
        if (parsed.bootstrap_server is None) == (parsed.data_dir is None):
            raise UsageError("give either --bootstrap-server or --data-dir")
        if parsed.data_dir is not None and (parsed.kafka or parsed.command_config or parsed.partitions is not None):
            raise UsageError("--kafka, --command-config and --partitions need --bootstrap-server")
        check_least(parsed, partitions=1, segment_bytes=1 << 16)
        pattern(parsed)
        parsed.config = configs(parsed.command_config, parsed.kafka)
        has_catalog = parsed.catalog_type is not None or bool(parsed.catalog_conf)
        check_catalog(parsed, "--catalog or --catalog-conf", has_catalog)
        if parsed.folder is None and parsed.catalog is None:
            raise UsageError("give FOLDER, or --catalog-conf and --table of an Iceberg table")
        if parsed.folder is None and parsed.table is None:
            raise UsageError("a catalog without FOLDER needs --table")
        from ..in_place.directory_hold import check_on_disk
        from . import sources
        from .job import ImportSettings

        if parsed.data_dir is not None:
            check_on_disk(parsed.data_dir)
        parsed.store_conf = dict(parsed.store_conf)
        parsed.settings = settings_of(ImportSettings, parsed)
        sources.listed(parsed.folder, parsed.table, parsed.catalog, parsed.store_conf)
        if parsed.bootstrap_server is not None:
            from .produce import options_of

            options_of(parsed.bootstrap_server, parsed.config)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import import_records

        report = import_records(
            spark,
            parsed.folder,
            parsed.settings,
            bootstrap=parsed.bootstrap_server,
            data_dir=parsed.data_dir,
            dry_run=parsed.dry_run,
            on_plan=on_plan,
            on_progress=on_progress,
        )
        return report, 0
