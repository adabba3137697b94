"""`ottla pipeline census|audit PATH...`: the jobs as commands, on this machine or on any Spark cluster.

Owns the command line, the looks at paths and files before Spark starts, and the printing: the report on stdout, the
plan and progress on stderr. Exit code 0; 1 where the audit found anything, or a job did not come to its end; 2, with
one line on stderr, for a mistake.

Run by `spark-submit`, Spark's own flags say where: `spark-submit --master M $(ottla pipeline --script) census PATH`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .extras import MissingExtra, SetupError, needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .audit.report import AuditReport
    from .census import CensusReport
    from .jobs.running import Say

    Tell = Callable[[str], object]

PROGRAM = "ottla pipeline"
FAILED = 1
USAGE_ERROR = 2
PLOT_SUFFIXES = (".png", ".html")
SCRIPT = Path(__file__).with_name("__main__.py")


class _Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(complain(self.prog, message))


class _UsageError(Exception):
    """What was asked for cannot be done: one sentence."""


def complain(program: str, message: object, code: int = USAGE_ERROR) -> int:
    """Says on stderr what is wrong, in one line whatever names are in it; the exit code."""
    words = " ".join(str(message).split())
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in words)
    print(f"{program}: {shown}", file=sys.stderr)
    return code


def pipeline(arguments: Sequence[str]) -> int:
    """`ottla pipeline`: the exit code."""
    parsed = _parser().parse_args(list(arguments))
    program = f"{PROGRAM} {parsed.job}"
    try:
        with needed():
            return _run(parsed, program)
    except (_UsageError, SetupError) as error:
        return complain(program, error)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Jobs on Spark over the log directories of Ottla and of Apache Kafka.")
    parser.add_argument("--script", action="version", version=str(SCRIPT), help="print what spark-submit is given")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="census|audit")
    for name, words in (
        ("census", "Count records, bytes, formats, codecs, sizes and times; say what Kafka 4.0 does with them."),
        ("audit", "Check batches, indexes, sequences and transactions; exit code 1 if anything is wrong."),
    ):
        job = jobs.add_parser(name, description=words, help=words)
        job.add_argument("paths", metavar="PATH", nargs="+", help="a log directory, or the folder of a partition")
        job.add_argument("--topic", action="append", metavar="NAME", help="only this topic; may come several times")
        job.add_argument("--topics", metavar="REGEX", help="only topics whose whole name matches")
        job.add_argument("--master", help="where Spark runs; by default local[*], or what spark-submit says")
        job.add_argument("--conf", action="append", type=_setting, metavar="K=V", default=[], help="a setting of Spark")
        job.add_argument("--report", metavar="FILE.json", help="write the whole report there")
        job.add_argument("--plot", metavar="FILE.png|html", help="draw it there (extra: plot)")
        job.add_argument("--quiet", action="store_true", help="no plan and no progress on stderr")
        if name == "audit":
            words = "check batches, not the records inside of them"
            job.add_argument("--no-records", dest="records", action="store_false", help=words)
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting, which is KEY=VALUE")
    return key, value


# -- before Spark starts


def _like(parsed: argparse.Namespace) -> re.Pattern[str] | None:
    try:
        return None if parsed.topics is None else re.compile(parsed.topics)
    except re.error as error:
        raise _UsageError(f"--topics {parsed.topics}: {error}") from error


def _topics(parsed: argparse.Namespace) -> list[str] | None:
    """The topics that are meant, None for all. It is an error if there is nothing to be looked at."""
    from .backend import ReadError
    from .census.pieces import chosen

    like = _like(parsed)
    try:
        found = chosen(parsed.paths, topics=parsed.topic, like=like)
    except ReadError as error:
        raise _UsageError(str(error)) from error
    if not found:
        raise _UsageError(f"there is no partition to be looked at in {', '.join(parsed.paths)}")
    return None if parsed.topic is None and like is None else sorted({folder.topic for folder in found})


def _check_files(parsed: argparse.Namespace) -> None:
    """Whether what is to be written can be. Nothing is created yet."""
    for path in (parsed.report, parsed.plot):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path) or not os.path.isdir(folder):
            raise _UsageError(
                f"cannot write {path}: {'a folder' if os.path.isdir(path) else 'there is no such folder'}"
            )
        if not os.access(path if os.path.exists(path) else folder, os.W_OK):
            raise _UsageError(f"cannot write {path}: Permission denied")
    if parsed.plot is not None:
        if os.path.splitext(parsed.plot)[1].lower() not in PLOT_SUFFIXES:
            raise _UsageError(f"--plot {parsed.plot}: a file whose name ends in {' or '.join(PLOT_SUFFIXES)}")
        if find_spec("matplotlib") is None:
            raise MissingExtra("--plot needs matplotlib, which is not installed: pip install 'ottla[plot]'")


# -- the run


def _run(parsed: argparse.Namespace, program: str) -> int:
    _check_files(parsed)
    topics = _topics(parsed)
    from .backend import ReadError
    from .jobs.running import JobError, Meter

    quiet = parsed.quiet or sys.stderr is None

    def tell(line: str) -> None:
        if not quiet:
            print(f"{program}: {line}", file=sys.stderr, flush=True)

    spark = _session(parsed)
    try:
        job = _census if parsed.job == "census" else _audit
        report, code = job(spark, parsed, topics, tell, None if quiet else Meter(program))
    except (JobError, ReadError) as error:
        return complain(program, error, FAILED)
    finally:
        with _hushed():
            spark.stop()
    return _write(parsed, program, report, code)


def _census(
    spark: SparkSession, parsed: argparse.Namespace, topics: list[str] | None, tell: Tell, say: Say | None
) -> tuple[CensusReport, int]:
    from .jobs.census import census

    return census(spark, parsed.paths, topics=topics, tell=tell, say=say), 0


def _audit(
    spark: SparkSession, parsed: argparse.Namespace, topics: list[str] | None, tell: Tell, say: Say | None
) -> tuple[AuditReport, int]:
    from .jobs.audit import audit, plan_text

    tell(plan_text(spark, parsed.paths, topics=topics, records=parsed.records))
    report = audit(spark, parsed.paths, topics=topics, records=parsed.records, say=say)
    return report, FAILED if report.findings else 0


def _write(parsed: argparse.Namespace, program: str, report: CensusReport | AuditReport, code: int) -> int:
    try:
        if parsed.report is not None:
            _put(parsed.report, report.to_json().encode())
        if parsed.plot is not None:
            from .jobs.plot import drawn

            _put(parsed.plot, drawn(report, parsed.plot))
    except OSError as error:
        return complain(program, f"cannot write {error.filename or ''}: {error.strerror}", FAILED)
    return _print(program, report.to_text(), code)


def _put(path: str, data: bytes) -> None:
    """Writes a file, whole or not at all: who reads it meanwhile has the old one. OSError."""
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):  # a pipe, or /dev/stdout
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


def _print(program: str, text: str, code: int) -> int:
    """Prints, also where the reader goes away early or the terminal lacks letters."""
    if sys.stdout is None:
        return complain(program, "cannot write: stdout is closed", FAILED)
    reconfigure: Callable[..., None] | None = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return complain(program, f"cannot write: {error.strerror}", FAILED)
    return code


def _session(parsed: argparse.Namespace) -> SparkSession:
    """Spark, started without a word of its own; what it said is told where it does not start."""
    from .session import session

    settings = {"spark.app.name": f"{PROGRAM} {parsed.job}", "spark.ui.showConsoleProgress": "false"}
    with _hushed() as said:
        try:
            return session(parsed.master, **{**settings, **dict(parsed.conf)})
        except SetupError:
            raise
        except Exception as error:
            problem = str(getattr(error, "desc", None) or error).strip().partition("\n")[0] or type(error).__name__
            raise _UsageError(f"Spark does not start: {_reason(said()) or problem}") from error


def _reason(said: str) -> str:
    """The line of what the JVM said that tells why it ended."""
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if re.match(r"(Error|Exception|Caused by|.*Exception: )", line)]
    # What was caught says less than why it was thrown: "Exception thrown in awaitResult:".
    causes = [line.removeprefix("Caused by: ") for line in telling if line.startswith("Caused by: ")]
    return (causes or telling or [""])[0]


@contextlib.contextmanager
def _hushed() -> Iterator[Callable[[], str]]:
    """Sends stderr into a file, which the JVM, if it is started here, goes on to write to; gives what is in it.

    Everything that matters comes back as an exception.
    """
    with tempfile.TemporaryFile() as file:

        def said() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            kept = os.dup(2)
        except OSError:  # it is closed
            yield said
            return
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            if sys.stderr is not None:
                sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
