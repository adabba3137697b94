"""The interface of a job's command module, and shared parts: arguments, checks before Spark starts, and errors.

A command module has a class `Command`. Its top-level imports need no extras and are fast, since the help of the
commands imports all of them.
"""

from __future__ import annotations

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...protocol.arguments import add_bootstrap, add_command_config
from ..extras import SetupError, require

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import SparkSession

    from ...client.net.security import Settings
    from .report import Report
    from .spark_tasks import ProgressCallback


T = TypeVar("T", bound="DataclassInstance")
PlanCallback = Callable[[str], object]
Result = tuple["Report | None", int]
"""The report of a job, and the exit code of its command."""


class UsageError(SetupError):
    """The command cannot be run as given. The message is one sentence. Exit code 2."""


class Running(NamedTuple):
    """A running command: session, arguments, and the receivers of plan lines and of progress (None with --quiet)."""

    spark: SparkSession
    parsed: argparse.Namespace
    on_plan: PlanCallback
    on_progress: ProgressCallback | None


class Job(ABC):
    """A job as a command.

    Every job has `--report`, `--dry-run` and `--quiet`, `--master` and `--conf` if it `uses_spark`, `--topic` and
    `--topics` if it `picks_topics`, and `--plot` if it `plots`. `words` are its help.
    """

    words: str
    picks_topics = True
    plots = False
    uses_spark = True

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the arguments of this job only."""

    @abstractmethod
    def check(self, parsed: argparse.Namespace) -> None:
        """Checks the arguments before Spark starts, and may store results in them. An error means exit code 2."""

    @abstractmethod
    def run(self, running: Running) -> Result:
        """Does the work.

        An error ends the command with 1, SetupError (UsageError is one) with 2. Errors with a message for users are
        those of this project (JobError, ReadError, StorageError ...), and OSError. In a dry run (`parsed.dry_run`) it
        makes only its plan, and changes nothing: stdout gets the lines of the plan and the report, which may be None
        then.
        """


# -- arguments of several jobs


def add_settings(parser: argparse.ArgumentParser, flag: str, words: str) -> None:
    """Adds a flag K=V that may be repeated; its value is a list of pairs."""
    parser.add_argument(flag, action="append", type=setting, metavar="K=V", default=[], help=words)


def add_paths(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """Adds PATH..., as `parsed.paths`."""
    parser.add_argument("paths", metavar="PATH", nargs=nargs, help="a log directory, or the folder of a partition")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of records in log directories or brokers; `source` checks them."""
    add_paths(parser, "*")
    add_bootstrap(parser, help="read from running brokers instead of PATH")
    add_command_config(parser)
    add_settings(parser, "--kafka", "a config of the client")


def source(parsed: argparse.Namespace) -> Settings | list[str]:
    """Returns the configs of a client of the brokers, or the paths of log directories. Raises UsageError."""
    if bool(parsed.paths) == bool(parsed.bootstrap_server):
        raise UsageError("give either PATH or --bootstrap-server")
    if (parsed.kafka or parsed.command_config) and not parsed.bootstrap_server:
        raise UsageError("--kafka and --command-config need --bootstrap-server")
    brokers = parsed.bootstrap_server
    return configs(parsed.command_config, parsed.kafka, brokers) if brokers else parsed.paths


def add_range(parser: argparse.ArgumentParser) -> None:
    """Adds the first and the last offsets of the records to read, as `parsed.starting` and `parsed.ending`."""
    parser.add_argument("--from", dest="starting", metavar="WHEN", default="earliest", help="earliest, a time, offsets")
    parser.add_argument("--until", dest="ending", metavar="WHEN", default="latest", help="latest, a time, offsets")


def add_isolation(parser: argparse.ArgumentParser) -> None:
    """Adds --isolation."""
    parser.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="read_committed skips aborted and open transactions",
    )


def check_least(parsed: argparse.Namespace, **least: int) -> None:
    """Checks numbers that are given against their least values. Raises UsageError, which names the flag."""
    for name, value in least.items():
        if (given := getattr(parsed, name)) is not None and given < value:
            raise UsageError(f"--{name.replace('_', '-')} {given}: it must be {value} or more")


def add_catalog(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds the flags of a table in an Iceberg catalog; `check_catalog` checks them."""
    words = f"of the Iceberg table: sql, rest, hive, glue ({default})"
    parser.add_argument("--catalog", dest="catalog_type", metavar="TYPE", help=words)
    add_settings(parser, "--catalog-conf", "a property of the catalog, as of pyiceberg: uri, warehouse, token")
    parser.add_argument("--table", metavar="NAMESPACE.NAME", help="the name of the Iceberg table")


def check_catalog(parsed: argparse.Namespace, what: str, applies: bool) -> None:
    """Sets `parsed.catalog`: pyiceberg's properties, None without any. `what` needs the library, if it
    `applies`; without it the flags are refused. Raises UsageError, MissingExtra."""
    properties = dict(parsed.catalog_conf)
    if parsed.catalog_type is not None:
        properties["type"] = parsed.catalog_type
    parsed.catalog = properties or None
    if not applies:
        if parsed.table is not None or properties:
            given = "--table" if not properties else "--catalog-conf" if parsed.catalog_type is None else "--catalog"
            raise UsageError(f"{given} needs {what}")
        return
    require("pyiceberg", what)
    if parsed.table is not None and not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", parsed.table):
        raise UsageError(f"--table {parsed.table}: it must be NAMESPACE.NAME")
    if properties and "uri" not in properties and properties.get("type") in ("sql", "rest", "hive"):
        raise UsageError(f"--catalog {properties['type']} needs --catalog-conf uri=...")


def add_store_conf(parser: argparse.ArgumentParser) -> None:
    """Adds --store-conf K=V, as `parsed.store_conf`."""
    add_settings(parser, "--store-conf", "a setting of the object store, such as endpoint or region")


def check_store_conf(parsed: argparse.Namespace) -> None:
    """Makes the places of `parsed.paths` in object stores known, and `parsed.store_conf` a dict. Raises UsageError,
    StoreError, MissingExtra."""
    from ..objects.logs import places_of

    parsed.store_conf = dict(parsed.store_conf)
    if not places_of(parsed.paths, parsed.store_conf) and parsed.store_conf:
        raise UsageError("--store-conf needs the URL of an object store")


def setting(text: str) -> tuple[str, str]:
    """The argparse type of an argument K=V."""
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: it must be KEY=VALUE")
    return key, value


def settings_of(kind: type[T], parsed: argparse.Namespace, **more: Any) -> T:
    """Returns the settings of a job: its fields are `more`, and the arguments of the same names that are given."""
    given = {one.name: getattr(parsed, one.name, None) for one in fields(kind)}
    return kind(**{name: value for name, value in {**given, **more}.items() if value is not None})


# -- before Spark starts


def configs(file: str | None, kafka: Iterable[tuple[str, str]], bootstrap: str | None = None) -> Settings:
    """Returns the configs of a client: those of the login and of TLS in the file of `--command-config`, and those of
    `--kafka`, which win; with `bootstrap`, also the brokers' addresses. Raises UsageError."""
    from ...client.net.errors import ConfigError
    from ...client.net.options import read_settings
    from ...client.net.security import Settings

    try:
        found = Settings() if file is None else read_settings(file)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    found.update(kafka)
    if bootstrap is not None:
        found["bootstrap.servers"] = bootstrap
    return found


def pattern(parsed: argparse.Namespace) -> re.Pattern[str] | None:
    """Returns the compiled `--topics`, or None. Raises UsageError."""
    try:
        return None if parsed.like is None else re.compile(parsed.like)
    except re.error as error:
        raise UsageError(f"--topics {parsed.like}: {error}") from error


def chosen_topics(parsed: argparse.Namespace) -> list[str] | None:
    """Returns the topics in `parsed.paths` that `--topic` and `--topics` select, None without either, and for brokers.

    Raises UsageError if no partition is left, ReadError for paths without logs and for unknown topics.
    """
    from .partitions import chosen

    like = pattern(parsed)
    if not parsed.paths:
        return None
    found = chosen(parsed.paths, topics=parsed.topics, like=like)
    if not found:
        raise UsageError(f"no partition is selected in {', '.join(parsed.paths)}: check --topic and --topics")
    return None if parsed.topics is None and like is None else sorted({folder.topic for folder in found})
