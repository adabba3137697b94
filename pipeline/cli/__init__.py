"""`ottla pipeline JOB ...`: the jobs as commands, on this machine or on any Spark cluster.

Owns the command line: a job is the folder of its name in `pipeline/jobs/`, and only the one that is asked for is
imported. The report is printed on stdout, the plan and progress on stderr. Exit code 0; 1 where the audit found
anything, or a job left something undone; 2, with one line on stderr, for a mistake.

Run by `spark-submit`, Spark's own flags say where: `spark-submit --master M $(ottla pipeline --script) census PATH`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ...protocol.arguments import Parser
from ...protocol.mistakes import FAILED, complain
from ...storage.io import permissions
from ..extras import SetupError, needed
from ..jobs.command import Job, setting
from .output import check_files, write

__all__ = ["complain", "pipeline"]

PROGRAM = "ottla pipeline"
SCRIPT = Path(__file__).parents[1] / "__main__.py"
MODULES = ("census", "audit", "upgrade", "compact", "export", "import_", "replay")
"""The folders of the jobs, in the order of the help; the command has the name less the `_` of what is a keyword."""


def pipeline(arguments: Sequence[str]) -> int:
    """`ottla pipeline`: the exit code."""
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


def _job(name: str) -> Job:
    """The job of that name, its module imported."""
    (module,) = (module for module in MODULES if _command(module) == name)
    return import_module(f"..jobs.{module}.cli", __name__).JOB


def _command(module: str) -> str:
    return module.rstrip("_")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of these arguments: of jobs that they do not ask for it knows only the names.

    What comes before the job are flags without a value, so the first other argument is the job.
    """
    names = [_command(module) for module in MODULES]
    asked = next((argument for argument in arguments if not argument.startswith("-")), None)
    parser = Parser(
        prog=PROGRAM,
        description="Jobs on Spark over the log directories and topics of Ottla and of Apache Kafka.",
        epilog=f"{PROGRAM} JOB --help says what a job takes.",
    )
    parser.add_argument("--script", action="version", version=str(SCRIPT), help="print what spark-submit is given")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="|".join(names))
    for name in names:
        if asked is None or name == asked:
            job = _job(name)
            add_arguments(jobs.add_parser(name, description=job.words, help=job.words), job)
        else:
            jobs.add_parser(name)
    return parser


def add_arguments(parser: argparse.ArgumentParser, job: Job) -> None:
    """Those of a job: its own, and what all have."""
    job.add_arguments(parser)
    if job.picks_topics:
        parser.add_argument("--topic", action="append", metavar="NAME", help="only this topic; may come several times")
        parser.add_argument("--topics", metavar="REGEX", help="only topics whose whole name matches")
    parser.add_argument("--dry-run", action="store_true", help="print the plan, and change nothing")
    parser.add_argument("--master", help="where Spark runs; by default local[*], or what spark-submit says")
    parser.add_argument("--conf", action="append", type=setting, metavar="K=V", default=[], help="a setting of Spark")
    parser.add_argument("--report", metavar="FILE.json", help="write the whole report there")
    parser.set_defaults(plot=None)
    if job.plots:
        parser.add_argument("--plot", metavar="FILE.png|html", help="draw it there (extra: plot)")
    parser.add_argument("--quiet", action="store_true", help="no plan and no progress on stderr")


def _run(job: Job, parsed: argparse.Namespace, program: str) -> int:
    check_files(parsed)
    try:
        job.check(parsed)
    except Exception as error:
        return complain(program, _one_line(_told_by(error)))
    from ..jobs.spark_tasks import Meter
    from .spark_start import hushed, start

    quiet = parsed.quiet or sys.stderr is None
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if not quiet and not parsed.dry_run:  # then it is what stdout has
            print(f"{program}: {line}", file=sys.stderr, flush=True)

    spark = start(program, parsed.master, dict(parsed.conf))
    try:
        report, code = job.run(spark, parsed, tell, None if quiet else Meter(program))
    except Exception as error:
        return complain(program, _one_line(_told_by(error)), FAILED)
    finally:
        with hushed():
            spark.stop()
    return write(parsed, program, report, told, code)


def _one_line(message: object) -> str:
    """The message without line breaks, which Spark puts into its own."""
    return " ".join(str(message).split())


def _told_by(error: Exception) -> str:
    """What an error of ours, or of the disk, says. Any other is raised again, and so is one that `pipeline` tells."""
    if isinstance(error, SetupError):
        raise error
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
    if type(error).__module__.startswith(f"{__name__.partition('.')[0]}."):
        return str(error)
    raise error
