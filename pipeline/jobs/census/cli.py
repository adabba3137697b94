"""`ottla pipeline census`."""

from __future__ import annotations

import argparse

from ..command import Job, Result, Running, add_paths, add_store_conf, check_store_conf, chosen_topics


class Command(Job):
    words = "Count records, bytes, formats, codecs, sizes and times; report what Kafka 4.0 does with them."
    plots = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_paths(parser)
        add_store_conf(parser)

    def check(self, parsed: argparse.Namespace) -> None:
        check_store_conf(parsed)
        parsed.chosen = chosen_topics(parsed)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from . import job

        if parsed.dry_run:
            on_plan(job.plan_text(spark, job.plan(parsed.paths, topics=parsed.chosen, store_conf=parsed.store_conf)))
            return None, 0
        report = job.census(
            spark,
            parsed.paths,
            topics=parsed.chosen,
            on_plan=on_plan,
            on_progress=on_progress,
            store_conf=parsed.store_conf,
        )
        return report, 0
