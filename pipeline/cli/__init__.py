"""`ottla pipeline JOB ...`: the jobs as commands, on this machine or on any Spark cluster.

Owns the command line and the files of reports. A job is a folder of `pipeline/jobs/`, and only the requested one is
imported. The report goes to stdout, the plan and progress to stderr. Exit code 0; 1 if audit or verify found anything
or a job left work undone; 2, with one line on stderr, for a usage error.

With `spark-submit`, Spark's own flags select the cluster: `spark-submit --master M $(ottla pipeline --script) census
PATH`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...protocol.arguments import Parser
from ...protocol.mistakes import FAILED, complain
from ...storage.io import permissions
from ..cluster import PYTHON
from ..extras import SetupError, needed, require
from ..jobs.command import Job, Running, UsageError, add_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..jobs.report import Report

PROGRAM = "ottla pipeline"
SCRIPT = Path(__file__).parents[1] / "__main__.py"
MODULES = ("census", "audit", "upgrade", "compact", "export", "optimize", "verify", "import_", "replay", "runs")
"""The folders of the jobs, in the order of the help. A trailing `_` avoids a keyword: commands lack it."""

_COMMANDS = {module.rstrip("_"): module for module in MODULES}
PLOT_SUFFIXES = (".png", ".html")


def pipeline(arguments: Sequence[str]) -> int:
    """Runs `ottla pipeline` and returns its exit code."""
    parsed = _parser(arguments).parse_args(list(arguments))
    program = f"{PROGRAM} {parsed.job}"
    try:
        permissions.apply()
    except ValueError as error:
        return complain(program, _one_line(error))
    try:
        with needed():
            return _run(_job(parsed.job), parsed, program)
    except SetupError as error:
        return complain(program, _one_line(error))


class _PrintScript(argparse.Action):
    """Prints the words for `spark-submit $(ottla pipeline --script)`, and exits.

    Without the settings `spark-submit` starts `python3` at the driver and at the workers, whatever that is there.
    """

    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> None:
        print(*script_words(os.environ, sys.executable))
        parser.exit()


def script_words(environ: Mapping[str, str], python: str) -> list[str]:
    """Returns the words that run the jobs with `spark-submit`: this Python for driver and workers, unless the
    environment names one, and the path of the script."""
    if environ.get("PYSPARK_PYTHON") or environ.get("PYSPARK_DRIVER_PYTHON"):
        return [str(SCRIPT)]
    names = (PYTHON, "spark.pyspark.driver.python")
    return [*(word for name in names for word in ("--conf", f"{name}={python}")), str(SCRIPT)]


def _job(name: str) -> Job:
    """Imports a job's module and returns the job."""
    return import_module(f"..jobs.{_COMMANDS[name]}.cli", __name__).Command()


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser for these arguments. It has the flags of the requested job only, so that no other job is
    imported.

    The options before the job take no value, so the first argument without a dash is the job.
    """
    requested = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = Parser(
        prog=PROGRAM,
        description="Jobs on Spark over the log directories and topics of Ottla and of Apache Kafka.",
        epilog=f"{PROGRAM} JOB --help lists the options of a job.",
    )
    words = "print the words for spark-submit: the script, and this Python unless PYSPARK_PYTHON is set"
    parser.add_argument("--script", action=_PrintScript, nargs=0, help=words)
    jobs = parser.add_subparsers(dest="job", required=True, metavar="|".join(_COMMANDS))
    for name in _COMMANDS:
        if requested is None or name == requested:
            job = _job(name)
            add_arguments(jobs.add_parser(name, description=job.words, help=job.words), job)
        else:
            jobs.add_parser(name)
    return parser


def add_arguments(parser: argparse.ArgumentParser, job: Job) -> None:
    """Adds the arguments of a job: its own, and those of all jobs."""
    job.add_arguments(parser)
    if job.picks_topics:
        words = "only this topic; may be repeated"
        parser.add_argument("--topic", dest="topics", action="append", metavar="NAME", help=words)
        parser.add_argument("--topics", dest="like", metavar="REGEX", help="only topics whose full name matches")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and change nothing")
    parser.set_defaults(master=None, conf=[])
    if job.uses_spark:
        parser.add_argument("--master", help="the Spark master; default local[*], or that of spark-submit")
        add_settings(parser, "--conf", "a Spark setting")
    parser.add_argument("--report", metavar="FILE.json", help="write the full report to this file")
    parser.set_defaults(plot=None)
    if job.plots:
        parser.add_argument("--plot", metavar="FILE.png|html", help="draw the report (extra: ottla[plot])")
    parser.add_argument("--quiet", action="store_true", help="print no plan and no progress on stderr")


def _run(job: Job, parsed: argparse.Namespace, program: str) -> int:
    _check_files(parsed)
    try:
        job.check(parsed)
    except Exception as error:
        return complain(program, _one_line(_message_of(error)))
    from ..jobs.spark_tasks import Meter
    from .spark_start import LateSession

    quiet = parsed.quiet or sys.stderr is None
    plan: list[str] = []

    def on_plan(line: str) -> None:
        plan.append(line)
        if not quiet and not parsed.dry_run:  # in a dry run the plan goes to stdout
            print(f"{program}: {line}", file=sys.stderr, flush=True)

    spark = LateSession(program, parsed.master, dict(parsed.conf))
    try:
        running = Running(cast("SparkSession", spark), parsed, on_plan, None if quiet else Meter(program))
        report, code = job.run(running)
    except Exception as error:
        return complain(program, _one_line(_message_of(error)), FAILED)
    finally:
        spark.end()
    if job.uses_spark and not (spark.session or code or quiet or parsed.dry_run):
        print(f"{program}: nothing to do, Spark was not started", file=sys.stderr, flush=True)
    return _write(parsed, program, report, plan, code)


def _one_line(message: object) -> str:
    """Returns the message on one line; Spark's messages contain line breaks."""
    return " ".join(str(message).split())


def _message_of(error: Exception) -> str:
    """Returns the message of an error of Ottla or of the operating system. Raises any other error again, and
    SetupError, which `pipeline` reports."""
    if isinstance(error, SetupError):
        raise error
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
    if type(error).__module__.startswith(f"{__name__.partition('.')[0]}."):
        return str(error)
    raise error


# -- the report


def _check_files(parsed: argparse.Namespace) -> None:
    """Checks that the output files can be written, without creating them. Raises UsageError."""
    for path in (parsed.report, parsed.plot):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(folder):
            problem = "it is a folder" if os.path.isdir(path) else "its folder does not exist"
            raise UsageError(f"cannot write {path}: {problem}")
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise UsageError(f"cannot write {path}: Permission denied")
    if parsed.plot is not None:
        if parsed.dry_run:
            raise UsageError("--plot cannot be used with --dry-run: there is no report to draw")
        if os.path.splitext(parsed.plot)[1].lower() not in PLOT_SUFFIXES:
            raise UsageError(f"--plot {parsed.plot}: the file name must end in {' or '.join(PLOT_SUFFIXES)}")
        require("matplotlib", "--plot")


def _write(parsed: argparse.Namespace, program: str, report: Report | None, plan: Sequence[str], code: int) -> int:
    """Writes the files and prints the report, in a dry run after the plan. Returns the exit code, also if the reader
    closes the pipe or the terminal's encoding lacks a character."""
    plan = plan if parsed.dry_run else ()
    try:
        if parsed.report is not None:
            document = json.dumps({"plan": list(plan)}, indent=2) + "\n" if report is None else report.to_json()
            put(parsed.report, document.encode())
        if parsed.plot is not None:
            from ..jobs.plot import drawn

            put(parsed.plot, drawn(report, parsed.plot))  # type: ignore[arg-type]
    except OSError as error:
        return complain(program, f"cannot write {error.filename or ''}: {error.strerror}", FAILED)
    if sys.stdout is None:
        return complain(program, "cannot write: stdout is closed", FAILED)
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write("".join(f"{line}\n" for line in plan) + ("" if report is None else report.to_text()))
        sys.stdout.flush()
    except OSError as error:
        # Output left in the buffer would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return complain(program, f"cannot write: {error.strerror}", FAILED)
    return code


def put(path: str, data: bytes) -> None:
    """Writes a file atomically: a concurrent reader gets the old content or the new. Raises OSError."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):  # such as a pipe or /dev/stdout
        Path(path).write_bytes(data)
        return
    unfinished = f"{path}.{os.getpid()}.tmp"
    try:
        Path(unfinished).write_bytes(data)
        if os.path.exists(path):
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        error.filename = path
        raise
