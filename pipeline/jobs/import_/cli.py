"""`ottla pipeline import`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....protocol.arguments import add_bootstrap, add_command_config
from ..command import (
    Job,
    PlanCallback,
    Report,
    UsageError,
    add_catalog,
    add_store_conf,
    check_catalog,
    check_least,
    configs,
    pattern,
    setting,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--kafka", action="append", type=setting, metavar="K=V", default=[], help="a config of the producer"
    )


def check(parsed: argparse.Namespace) -> None:
    if (parsed.bootstrap_server is None) == (parsed.data_dir is None):
        raise UsageError("give either --bootstrap-server or --data-dir")
    if parsed.data_dir is not None and (parsed.kafka or parsed.command_config or parsed.partitions is not None):
        raise UsageError("--kafka, --command-config and --partitions need --bootstrap-server")
    check_least(parsed, partitions=1, segment_bytes=1 << 16)
    pattern(parsed)
    config = configs(parsed.command_config, parsed.kafka)
    has_catalog = parsed.catalog is not None or bool(parsed.catalog_conf)
    check_catalog(parsed, "--catalog or --catalog-conf", has_catalog)
    if parsed.folder is None and parsed.catalog_properties is None:
        raise UsageError("give FOLDER, or --catalog-conf and --table of an Iceberg table")
    if parsed.folder is None and parsed.table is None:
        raise UsageError("a catalog without FOLDER needs --table")
    from ..in_place.directory_hold import check_on_disk
    from . import sources
    from .settings import ImportSettings

    if parsed.data_dir is not None:
        check_on_disk(parsed.data_dir)
    parsed.settings = ImportSettings(
        topics=parsed.topic,
        like=parsed.topics,
        to_topic=parsed.to_topic,
        partitions=parsed.partitions,
        codec=parsed.codec,
        segment_bytes=parsed.segment_bytes,
        table=parsed.table,
        catalog=parsed.catalog_properties,
        config=config,
        store_conf=dict(parsed.store_conf),
    )
    sources.listed(parsed.folder, parsed.table, parsed.catalog_properties, parsed.settings.store_conf)
    if parsed.bootstrap_server is not None:
        from .produce import options_of

        options_of(parsed.bootstrap_server, config)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
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


JOB = Job(
    name="import",
    words="Import Parquet or a table into logs: to topics, or to segments for a broker that is stopped.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
