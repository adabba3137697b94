"""`ottla pipeline upgrade`: converts old message formats in data directories, in place."""

from __future__ import annotations

import argparse

from ..command import Job, Result, Running, chosen_topics


class Command(Job):
    words = "Rewrite every segment with messages of format v0 or v1 as v2, in place, with the same records."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("paths", metavar="PATH", nargs="+", help="a data directory that no broker has open")

    def check(self, parsed: argparse.Namespace) -> None:
        """Refuses directories that cannot be upgraded before Spark starts."""
        from ..in_place.directory_hold import held

        for path in parsed.paths:
            with held(path, looking=True):
                pass
        parsed.chosen = chosen_topics(parsed)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import upgrade

        report = upgrade(
            spark, parsed.paths, topics=parsed.chosen, dry_run=parsed.dry_run, on_plan=on_plan, on_progress=on_progress
        )
        return report, 0
