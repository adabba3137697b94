"""`ottla pipeline replay`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ....protocol.arguments import add_bootstrap, add_command_config
from ..command import (
    Job,
    Result,
    Running,
    UsageError,
    add_isolation,
    add_paths,
    add_range,
    add_settings,
    add_store_conf,
    check_store_conf,
    chosen_topics,
    configs,
    settings_of,
)

INTERRUPTED = 130
"""The exit code of a stopped replay, as of a program ended by Ctrl-C."""


class Command(Job):
    words = "Send a range of a log to topics again, at a rate or at its own pace; each record at least once."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_paths(parser, "*")
        add_store_conf(parser)
        parser.add_argument("--source", metavar="HOST:PORT", help="read from running brokers instead of PATH")
        add_command_config(parser, "--source-config", help="the file with the login and TLS of --source")
        add_bootstrap(parser, required=True, help="the brokers to send to")
        add_command_config(parser)
        parser.add_argument("--to-topic", metavar="NAME", help="send all records to this topic")
        add_range(parser)
        parser.add_argument(
            "--from-offsets", metavar="JSON|@FILE", help="continue an earlier replay; FILE is its --report"
        )
        parser.add_argument("--rate", type=float, metavar="N", help="limit of records per second, in total")
        parser.add_argument("--speed", type=float, metavar="X", help="X times the pace of the timestamps")
        parser.add_argument("--timestamps", choices=("keep", "new"), default="keep", help="new: the time of sending")
        parser.add_argument(
            "--partitions", choices=("keep", "key"), default="keep", help="key: as by Kafka's default partitioner"
        )
        add_isolation(parser)
        add_settings(parser, "--kafka", "a config of the producer")

    def check(self, parsed: argparse.Namespace) -> None:
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
        chosen_topics(parsed)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import replay
        from .tasks import ReplaySettings

        report = replay(
            spark,
            parsed.source_of,
            settings_of(ReplaySettings, parsed),
            bootstrap=parsed.bootstrap_server,
            dry_run=parsed.dry_run,
            on_plan=on_plan,
            on_progress=on_progress,
        )
        return None if parsed.dry_run else report, INTERRUPTED if report.stopped else 0


def _offsets(text: str) -> str:
    """Returns the offsets as JSON, also from the report of a replay."""
    if not text.startswith("@"):
        return text
    try:
        document: Any = json.loads(Path(text[1:]).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--from-offsets: cannot read {text[1:]}: {error}") from error
    return json.dumps(document["offsets"] if isinstance(document, dict) and "offsets" in document else document)
