"""What a job's module gives, and what such modules share: a few flags, looks before Spark starts, and two errors.

A module of this package that is a job has a `JOB`. It imports nothing of the extras at its top, nor what takes long
to import: the commands' help reads all of them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..extras import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .spark_tasks import Say


Tell = Callable[[str], object]


class UsageError(SetupError):
    """What was asked for cannot be done: one sentence. Exit code 2."""


class Report(Protocol):
    """What a job has done; in a dry run, what it would do."""

    def to_text(self) -> str:
        """For people: lines, each with its end."""
        ...

    def to_json(self) -> str:
        """One document, for programs."""
        ...


class Job(NamedTuple):
    """A job as a command.

    `add_arguments` adds its own arguments; `--master`, `--conf`, `--report`, `--dry-run` and `--quiet` are everyone's,
    `--topic` and `--topics` are there if `picks_topics`, `--plot` if `plots`. `check` looks at what is asked for before
    Spark starts, and may put into the parsed arguments what it finds: an error ends it there, with exit code 2.
    `run(spark, parsed, tell, say)` does it: `tell` takes the lines of the plan, `say` progress (None: nobody wants it);
    it gives the report and the exit code. An error ends it with 1, SetupError (UsageError is one) with 2. Errors are
    those of this project, which are sentences (JobError, ReadError, StorageError ...), and OSError.

    In a dry run (`parsed.dry_run`) it makes only its plan, and changes nothing: what it tells and the report, which
    may then be None, are what stdout has.
    """

    name: str
    words: str
    add_arguments: Callable[[argparse.ArgumentParser], object]
    check: Callable[[argparse.Namespace], object]
    run: Callable[[SparkSession, argparse.Namespace, Tell, Say | None], tuple[Report | None, int]]
    picks_topics: bool = True
    plots: bool = False


# -- arguments that several jobs have


def add_paths(parser: argparse.ArgumentParser) -> None:
    """PATH..., as `parsed.paths`."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a log directory, or the folder of a partition")


def setting(text: str) -> tuple[str, str]:
    """The type of an argument K=V."""
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting, which is KEY=VALUE")
    return key, value


# -- before Spark starts


def pattern(parsed: argparse.Namespace) -> re.Pattern[str] | None:
    """What `--topics` says, None if it is not there. UsageError."""
    try:
        return None if parsed.topics is None else re.compile(parsed.topics)
    except re.error as error:
        raise UsageError(f"--topics {parsed.topics}: {error}") from error


def chosen_topics(parsed: argparse.Namespace) -> list[str] | None:
    """The topics in `parsed.paths` that `--topic` and `--topics` mean, None if neither is there.

    Raises UsageError if there is nothing to be looked at, ReadError for paths that hold no logs and unknown topics.
    """
    from .partitions import chosen

    like = pattern(parsed)
    found = chosen(parsed.paths, topics=parsed.topic, like=like)
    if not found:
        raise UsageError(f"there is no partition to be looked at in {', '.join(parsed.paths)}")
    return None if parsed.topic is None and like is None else sorted({folder.topic for folder in found})
