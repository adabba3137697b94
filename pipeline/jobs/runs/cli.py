"""`ottla pipeline runs`: lists what interrupted jobs have left, and removes it; without Spark."""

from __future__ import annotations

import argparse

from ....protocol.mistakes import FAILED
from ..command import Job, Result, Running, add_store_conf


class Command(Job):
    words = "List what interrupted jobs have left, and remove it; for jobs that are not run again."
    picks_topics = False
    uses_spark = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "action", metavar="list|clean", choices=("list", "clean"), help="list the remains, or remove them"
        )
        words = "a folder of exports, a data directory, or a folder of these; or the URL of exports"
        parser.add_argument("paths", metavar="PATH", nargs="+", help=words)
        add_store_conf(parser)

    def check(self, parsed: argparse.Namespace) -> None:
        from .unfinished import unfinished

        parsed.found = unfinished(parsed.paths, dict(parsed.store_conf))

    def run(self, running: Running) -> Result:
        parsed = running.parsed
        from ...backend import ReadError
        from ...extras import MissingExtra
        from .unfinished import RunsReport, remove

        report = RunsReport(parsed.paths, parsed.found)
        if parsed.action == "list" or parsed.dry_run:
            return report, 0
        for one in parsed.found:
            try:
                remove(one)
            except (ReadError, MissingExtra, OSError) as error:
                report.problems[one.path] = one.kept or str(error)
            else:
                report.removed.add(one.path)
        return report, FAILED if report.problems else 0
