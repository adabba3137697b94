"""`ottla pipeline compact`."""

from __future__ import annotations

import argparse

from ....protocol.mistakes import FAILED
from ..command import Job, Result, Running, UsageError, add_settings, pattern, settings_of


class Command(Job):
    words = "Compact data directories like a broker's cleaner: keep the last record of each key."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", metavar="PATH", nargs="+", help="a data directory whose broker is stopped")
        parser.add_argument(
            "--force",
            action="store_true",
            help="compact the topics of --topic whatever their cleanup.policy; drops records without a key",
        )
        names = "delete.retention.ms, min.compaction.lag.ms, segment.bytes and the like"
        add_settings(parser, "--config", f"{names}, for topics without an own value")
        parser.add_argument(
            "--min-dirty-ratio",
            type=_ratio,
            metavar="R",
            default=0.0,
            help="skip logs with a dirty ratio up to this, from 0 to 1; default 0",
        )
        parser.add_argument("--keep-old-formats", action="store_true", help="keep v0 and v1, as up to Kafka 3.9")
        parser.add_argument(
            "--no-delete-horizon",
            dest="delete_horizon",
            action="store_false",
            help="expire tombstones and markers by file times, as Kafka does up to 3.0",
        )
        parser.add_argument(
            "--no-empty-at-end",
            dest="keep_empty_at_end",
            action="store_false",
            help="drop an empty last batch of the clean part, as Kafka does up to 3.9",
        )

    def check(self, parsed: argparse.Namespace) -> None:
        from ..in_place.directory_hold import held
        from .configs import CompactSettings, Release
        from .job import chosen_topics

        pattern(parsed)
        if parsed.force and not parsed.topics:
            raise UsageError("--force needs --topic: it applies to the named topics only")
        release = Release(parsed.keep_old_formats, parsed.delete_horizon, parsed.keep_empty_at_end)
        parsed.settings = settings_of(CompactSettings, parsed, configs=dict(parsed.config), release=release)
        holdings = []
        for path in parsed.paths:
            with held(path, looking=True) as holding:
                holdings.append(holding)
        chosen_topics(holdings, parsed.settings)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import compact

        report = compact(
            spark,
            parsed.paths,
            parsed.settings,
            dry_run=parsed.dry_run,
            on_plan=None if parsed.dry_run else on_plan,  # in a dry run the report has the plan
            on_progress=on_progress,
        )
        return report, FAILED if report.problems else 0


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return ratio
