"""`ottla pipeline replay`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....protocol.arguments import add_bootstrap, add_command_config
from ..command import (
    Job,
    PlanCallback,
    Report,
    UsageError,
    add_store_conf,
    check_store_conf,
    chosen_topics,
    configs,
    pattern,
    setting,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import ProgressCallback

INTERRUPTED = 130
"""The exit code of a stopped replay, as of a program ended by Ctrl-C."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a log directory, or the folder of a partition")
    add_store_conf(parser)
    parser.add_argument("--source", metavar="HOST:PORT", help="read from running brokers instead of PATH")
    add_command_config(parser, "--source-config", help="the file with the login and TLS of --source")
    add_bootstrap(parser, required=True, help="the brokers to send to")
    add_command_config(parser)
    parser.add_argument("--to-topic", metavar="NAME", help="send all records to this topic")
    parser.add_argument("--from", dest="starting", metavar="WHEN", default="earliest", help="earliest, a time, offsets")
    parser.add_argument("--until", dest="ending", metavar="WHEN", default="latest", help="latest, a time, offsets")
    parser.add_argument("--from-offsets", metavar="JSON|@FILE", help="continue an earlier replay; FILE is its --report")
    parser.add_argument("--rate", type=float, metavar="N", help="limit of records per second, in total")
    parser.add_argument("--speed", type=float, metavar="X", help="X times the pace of the timestamps")
    parser.add_argument("--timestamps", choices=("keep", "new"), default="keep", help="new: the time of sending")
    parser.add_argument(
        "--partitions", choices=("keep", "key"), default="keep", help="key: as by Kafka's default partitioner"
    )
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="read_committed skips aborted and open transactions",
    )
    parser.add_argument(
        "--kafka", action="append", type=setting, metavar="K=V", default=[], help="a config of the producer"
    )


def check(parsed: argparse.Namespace) -> None:
    if bool(parsed.paths) == bool(parsed.source):
        raise UsageError("give either PATH or --source")
    if parsed.source_config and not parsed.source:
        raise UsageError("--source-config needs --source")
    check_store_conf(parsed)
    parsed.config = configs(parsed.command_config, parsed.kafka)
    parsed.source_of = configs(parsed.source_config, (), parsed.source) if parsed.source else parsed.paths
    if parsed.rate is not None and parsed.speed is not None:
        raise UsageError("give either --rate or --speed, not both")
    if parsed.from_offsets is not None and parsed.starting != "earliest":
        raise UsageError("give either --from or --from-offsets, not both")
    from ...offsets import AtOffsets, parse_offsets
    from ..export import arguments
    from ..import_.produce import options_of
    from .schedule import LEAST, MOST

    for name in ("rate", "speed"):
        if (number := getattr(parsed, name)) is not None and not LEAST <= number <= MOST:
            raise UsageError(f"--{name} {number}: it must be from {LEAST:g} to {MOST:g}")
    parsed.starting = arguments.limit(parsed.starting, "--from")
    if parsed.from_offsets is not None:
        parsed.starting = AtOffsets(parse_offsets(_offsets(parsed.from_offsets), "--from-offsets"))
    parsed.ending = arguments.limit(parsed.ending, "--until")
    options_of(parsed.bootstrap_server, parsed.config)
    if parsed.paths:
        chosen_topics(parsed)
    else:
        pattern(parsed)


def _offsets(text: str) -> str:
    """Returns the offsets as JSON, also from the report of a replay."""
    if not text.startswith("@"):
        return text
    try:
        document: Any = json.loads(Path(text[1:]).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--from-offsets: cannot read {text[1:]}: {error}") from error
    return json.dumps(document["offsets"] if isinstance(document, dict) and "offsets" in document else document)


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from .job import replay
    from .settings import ReplaySettings

    report = replay(
        spark,
        parsed.source_of,
        ReplaySettings(
            topics=parsed.topic,
            like=parsed.topics,
            starting=parsed.starting,
            ending=parsed.ending,
            isolation=parsed.isolation,
            to_topic=parsed.to_topic,
            partitions=parsed.partitions,
            timestamps=parsed.timestamps,
            rate=parsed.rate,
            speed=parsed.speed,
            config=parsed.config,
            store_conf=parsed.store_conf,
        ),
        bootstrap=parsed.bootstrap_server,
        dry_run=parsed.dry_run,
        on_plan=on_plan,
        on_progress=on_progress,
    )
    return None if parsed.dry_run else report, INTERRUPTED if report.stopped else 0


JOB = Job(
    name="replay",
    words="Send a range of a log to topics again, at a rate or at its own pace; each record at least once.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
