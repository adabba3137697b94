"""Compares an export with the logs that it was made from, with Spark: a task for each piece of a log.

    verify_export(spark, "/var/lib/kafka", "/lake/kafka")

Owns the distribution of tasks; nothing is written. The folder must be mounted at the same path here and on the workers,
or be the URL of objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...backend import Selection
from .. import spark_tasks
from ..export import arguments
from ..export.iceberg import catalog_of
from ..export.job import backend_of, paths_of
from ..export.tasks import FILE_BYTES
from ..spark_tasks import ProgressCallback, size_of
from .compare import compare
from .plan import plan
from .report import VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """What a verification of an export compares.

    `topics` lists the topics; `like` is a regular expression that full names must match. `catalog` and `table` are
    those of the export's Iceberg table, if it is not in the catalog in its folder. With `compacted`, rows whose records
    the log's cleaner removed are no differences. `store_conf` has settings of an object store.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    compacted: bool = False
    store_conf: Mapping[str, str] | None = None


def verify_export(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    folder: str,
    settings: VerifySettings | None = None,
    *,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> VerifyReport:
    """Compares the exported offsets of an export with their records: each must be a row once, with the same values.

    `source` is that of `export`. Rows whose records are before the start of the log are only counted. `dry_run` only
    compares the files with the manifest. `on_plan` receives the plan in one line, `on_progress` the progress. Raises
    ExportError and other ReadErrors, JobError, OSError.
    """
    began = time.monotonic()
    root = arguments.folder(folder)
    settings = settings or VerifySettings()
    catalog = None
    if settings.table is not None or settings.catalog:
        catalog = catalog_of(root, settings.table, settings.catalog)
    conf = settings.store_conf or {}
    place = arguments.objects(root, conf, 0, paths_of(source), writes=False)
    with backend_of(source, FILE_BYTES, conf) as backend:
        selection = Selection.named(settings.topics, settings.like)
        made = plan(backend, root, selection, catalog, compacted=settings.compacted, place=place)
        report = VerifyReport(made)
        if on_plan is not None:
            size = size_text(sum(map(size_of, made.checks)))
            tasks = spark_tasks.tasks(spark, made.checks)
            on_plan(f"{made.partitions} partitions, about {size}: {len(made.checks)} pieces in {tasks} tasks")
        if not dry_run:
            for check, outcome in spark_tasks.run(
                spark, made.checks, compare, on_progress=on_progress, name="ottla verify"
            ):
                report.add(check, outcome)
    report.seconds = time.monotonic() - began
    return report
