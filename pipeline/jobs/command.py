"""The interface of a job's command module, and shared parts: arguments, checks before Spark starts, and errors.

A command module has a `JOB`. Its top-level imports need no extras and are fast, since the help of the commands imports
all of them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...protocol.arguments import add_bootstrap, add_command_config
from ..extras import SetupError, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...client.net.security import Settings
    from .spark_tasks import ProgressCallback


PlanCallback = Callable[[str], object]


class UsageError(SetupError):
    """The command cannot be run as given. The message is one sentence. Exit code 2."""


class Report(Protocol):
    """The result of a job; in a dry run, its plan."""

    def to_text(self) -> str:
        """Returns lines for people, each with its end."""
        ...

    def to_json(self) -> str:
        """Returns one JSON document."""
        ...


class Job(NamedTuple):
    """A job as a command.

    `add_arguments` adds its own arguments; every job has `--report`, `--dry-run` and `--quiet`, `--master` and `--conf`
    if `uses_spark`, `--topic` and `--topics` if `picks_topics`, and `--plot` if `plots`. `check` checks the arguments
    before Spark starts, and may store results in them: an error ends the command with exit code 2.

    `run(spark, parsed, on_plan, on_progress)` does the work: `on_plan` receives the lines of the plan, `on_progress`
    the progress (None with --quiet); it returns the report and the exit code. An error ends the command with 1,
    SetupError (UsageError is one) with 2. Errors with a message for users are those of this project (JobError,
    ReadError, StorageError ...), and OSError.

    In a dry run (`parsed.dry_run`) it makes only its plan, and changes nothing: stdout gets the lines of the plan and
    the report, which may be None then.
    """

    name: str
    words: str
    add_arguments: Callable[[argparse.ArgumentParser], object]
    check: Callable[[argparse.Namespace], object]
    run: Callable[[SparkSession, argparse.Namespace, PlanCallback, ProgressCallback | None], tuple[Report | None, int]]
    picks_topics: bool = True
    plots: bool = False
    uses_spark: bool = True


# -- arguments of several jobs


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Adds PATH..., as `parsed.paths`."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a log directory, or the folder of a partition")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of records in log directories or brokers; `source` checks them."""
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a log directory, or the folder of a partition")
    add_bootstrap(parser, help="read from running brokers instead of PATH")
    add_command_config(parser)
    parser.add_argument(
        "--kafka", action="append", type=setting, metavar="K=V", default=[], help="a config of the client"
    )


def source(parsed: argparse.Namespace) -> Settings | list[str]:
    """Returns the configs of a client of the brokers, or the paths of log directories. Raises UsageError."""
    if bool(parsed.paths) == bool(parsed.bootstrap_server):
        raise UsageError("give either PATH or --bootstrap-server")
    if (parsed.kafka or parsed.command_config) and not parsed.bootstrap_server:
        raise UsageError("--kafka and --command-config need --bootstrap-server")
    brokers = parsed.bootstrap_server
    return configs(parsed.command_config, parsed.kafka, brokers) if brokers else parsed.paths


def check_least(parsed: argparse.Namespace, **least: int) -> None:
    """Checks numbers that are given against their least values. Raises UsageError, which names the flag."""
    for name, value in least.items():
        if (given := getattr(parsed, name)) is not None and given < value:
            raise UsageError(f"--{name.replace('_', '-')} {given}: it must be {value} or more")


def add_catalog(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds the flags of a table in an Iceberg catalog; `check_catalog` checks them."""
    parser.add_argument("--catalog", metavar="TYPE", help=f"of the Iceberg table: sql, rest, hive, glue ({default})")
    parser.add_argument(
        "--catalog-conf",
        action="append",
        type=setting,
        metavar="K=V",
        default=[],
        help="a property of the catalog, as of pyiceberg: uri, warehouse, token",
    )
    parser.add_argument("--table", metavar="NAMESPACE.NAME", help="the name of the Iceberg table")


def check_catalog(parsed: argparse.Namespace, what: str, applies: bool) -> None:
    """Sets `parsed.catalog_properties`: pyiceberg's properties, None without any. `what` needs the library, if it
    `applies`; without it the flags are refused. Raises UsageError, MissingExtra."""
    properties = dict(parsed.catalog_conf)
    if parsed.catalog is not None:
        properties["type"] = parsed.catalog
    parsed.catalog_properties = properties or None
    if not applies:
        if parsed.table is not None or properties:
            given = "--table" if not properties else "--catalog-conf" if parsed.catalog is None else "--catalog"
            raise UsageError(f"{given} needs {what}")
        return
    require("pyiceberg", what)
    if parsed.table is not None and not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", parsed.table):
        raise UsageError(f"--table {parsed.table}: it must be NAMESPACE.NAME")
    if properties and "uri" not in properties and properties.get("type") in ("sql", "rest", "hive"):
        raise UsageError(f"--catalog {properties['type']} needs --catalog-conf uri=...")


def add_store_conf(parser: argparse.ArgumentParser) -> None:
    """Adds --store-conf K=V, as `parsed.store_conf`."""
    words = "a setting of the object store, such as endpoint or region"
    parser.add_argument("--store-conf", action="append", type=setting, metavar="K=V", default=[], help=words)


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


# -- before Spark starts


def configs(file: str | None, kafka: Iterable[tuple[str, str]], bootstrap: str | None = None) -> Settings:
    """Returns the configs of a client: those of the login and of TLS in the file of `--command-config`, and those of
    `--kafka`, which win; with `bootstrap`, also the brokers' addresses. Raises UsageError."""
    from ...client.net.config_file import read_settings
    from ...client.net.errors import ConfigError
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
        return None if parsed.topics is None else re.compile(parsed.topics)
    except re.error as error:
        raise UsageError(f"--topics {parsed.topics}: {error}") from error


def chosen_topics(parsed: argparse.Namespace) -> list[str] | None:
    """Returns the topics in `parsed.paths` that `--topic` and `--topics` select, None without either.

    Raises UsageError if no partition is left, ReadError for paths without logs and for unknown topics.
    """
    from .partitions import chosen

    like = pattern(parsed)
    found = chosen(parsed.paths, topics=parsed.topic, like=like)
    if not found:
        raise UsageError(f"no partition is selected in {', '.join(parsed.paths)}: check --topic and --topics")
    return None if parsed.topic is None and like is None else sorted({folder.topic for folder in found})
