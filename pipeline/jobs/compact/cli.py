"""`ottla pipeline compact`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ..command import Job, Report, Tell, UsageError, pattern, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark_tasks import Say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a data directory whose broker is stopped")
    parser.add_argument(
        "--force",
        action="store_true",
        help="compact what --topic names whatever its cleanup.policy says: what has no key goes",
    )
    parser.add_argument(
        "--config",
        action="append",
        type=setting,
        metavar="K=V",
        default=[],
        help="delete.retention.ms, min.compaction.lag.ms, segment.bytes and the like, for topics that do not set it",
    )
    parser.add_argument(
        "--min-dirty-ratio",
        type=_ratio,
        metavar="R",
        default=0.0,
        help="leave logs alone that are dirty by no more than this, from 0 to 1; by default 0",
    )
    parser.add_argument("--keep-old-formats", action="store_true", help="v0 and v1 stay, as up to Kafka 3.9")
    parser.add_argument(
        "--no-delete-horizon",
        dest="delete_horizon",
        action="store_false",
        help="tombstones and markers go by the time of files, as up to Kafka 3.0",
    )
    parser.add_argument(
        "--no-empty-at-end",
        dest="keep_empty_at_end",
        action="store_false",
        help="the last batch of the clean part goes if it is empty, as up to Kafka 3.9",
    )


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1
    if not 0 <= ratio <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to 1")
    return ratio


def check(parsed: argparse.Namespace) -> None:
    from ..in_place.directory_hold import held
    from .job import chosen_topics
    from .settings import CompactSettings
    from .steps import Release

    like = pattern(parsed)
    if parsed.force and not parsed.topic:
        raise UsageError("--force is for topics that --topic names")
    parsed.settings = CompactSettings(
        topics=parsed.topic,
        like=like,
        force=parsed.force,
        configs=dict(parsed.config),
        min_dirty_ratio=parsed.min_dirty_ratio,
        release=Release(parsed.keep_old_formats, parsed.delete_horizon, parsed.keep_empty_at_end),
    )
    holdings = []
    for path in parsed.paths:
        with held(path, looking=True) as holding:
            holdings.append(holding)
    chosen_topics(holdings, parsed.settings)


def run(spark: SparkSession, parsed: argparse.Namespace, tell: Tell, say: Say | None) -> tuple[Report | None, int]:
    from .job import compact

    report = compact(
        spark,
        parsed.paths,
        parsed.settings,
        dry_run=parsed.dry_run,
        tell=None if parsed.dry_run else tell,  # then the report tells the same
        say=say,
    )
    return report, FAILED if report.problems else 0


JOB = Job(
    name="compact",
    words="Compact what lies in data directories, as a broker's cleaner does; of each key the last record stays.",
    add_arguments=add_arguments,
    check=check,
    run=run,
)
