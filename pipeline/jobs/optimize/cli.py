"""`ottla pipeline optimize`: merges the small files of an export to Delta; without Spark."""

from __future__ import annotations

import argparse

from ...extras import require
from ..command import Job, Result, Running, add_store_conf, check_least, pattern, settings_of
from ..export.cli import CODECS


class Command(Job):
    words = "Merge the small files of an export to Delta, which many runs have made."
    uses_spark = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("folder", metavar="FOLDER", help="the folder of an export to Delta")
        add_store_conf(parser)
        parser.add_argument("--file-bytes", type=int, metavar="N", help="the size of the files; default 128 MiB")
        parser.add_argument("--codec", choices=CODECS, default="zstd", help="compression of the files")
        parser.add_argument(
            "--delete-old",
            type=int,
            metavar="HOURS",
            help="delete the files that are in no version of the table of the last HOURS; default: keep them",
        )

    def check(self, parsed: argparse.Namespace) -> None:
        from ..export import arguments
        from .job import check

        check_least(parsed, file_bytes=1, delete_old=0)
        pattern(parsed)
        parsed.folder = arguments.folder(parsed.folder)
        require("deltalake", "optimize")
        parsed.store_conf = dict(parsed.store_conf)
        check(parsed.folder, parsed.store_conf)

    def run(self, running: Running) -> Result:
        _, parsed, on_plan, on_progress = running
        from .job import OptimizeSettings, optimize

        settings = settings_of(OptimizeSettings, parsed, delete_old_hours=parsed.delete_old)
        report = optimize(parsed.folder, settings, dry_run=parsed.dry_run, on_plan=on_plan, on_progress=on_progress)
        return None if parsed.dry_run else report, 0
