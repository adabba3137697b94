"""`ottla pipeline verify`: exit code 1 with any difference."""

from __future__ import annotations

import argparse

from ....protocol.mistakes import FAILED
from ..command import (
    Job,
    Result,
    Running,
    add_catalog,
    add_source,
    add_store_conf,
    check_catalog,
    pattern,
    settings_of,
    source,
)


class Command(Job):
    words = "Compare an export or its table with the logs, row by row; exit code 1 with any difference."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_source(parser)
        parser.add_argument("--export", required=True, metavar="FOLDER", help="the folder of the export, or its URL")
        add_store_conf(parser)
        add_catalog(parser, "default: that of the folder")
        parser.add_argument(
            "--compacted", action="store_true", help="rows whose records the log's cleaner removed are no differences"
        )

    def check(self, parsed: argparse.Namespace) -> None:
        parsed.source = source(parsed)
        pattern(parsed)
        from ..export import arguments
        from .plan import folder_settings

        parsed.export = arguments.folder(parsed.export)
        parsed.store_conf = dict(parsed.store_conf)
        place = arguments.objects(parsed.export, parsed.store_conf, 0, parsed.paths, writes=False)
        form = folder_settings(parsed.export, place).format
        check_catalog(parsed, "an Iceberg table", form == "iceberg")

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from .job import VerifySettings, verify_export

        report = verify_export(
            spark,
            parsed.source,
            parsed.export,
            settings_of(VerifySettings, parsed),
            dry_run=parsed.dry_run,
            on_plan=on_plan,
            on_progress=on_progress,
        )
        return report, FAILED if report.differences else 0
