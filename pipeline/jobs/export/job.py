"""Records to Parquet or Delta with Spark: pieces of logs are written in tasks, and committed by the driver.

    export(spark, "/var/lib/kafka", "/lake/kafka", topics=["orders"])
    export(spark, {"bootstrap.servers": "broker:9092"}, "/lake/kafka")

Owns the handing out; see `tasks.py` for what is written. The logs are only read. The folder must be mounted
at the same path where the tasks run and here. A second run adds what is new, and goes on where the first one stopped.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import size as size_text
from ...backend import OnCorrupt, Selection
from ...offsets import Limit
from ...readers.files import FileBackend
from .. import spark_tasks
from ..spark_tasks import Say
from . import arguments
from .commit import Committer, Settings, check
from .delta import DeltaTable
from .manifest import ExportError
from .plan import FROM_START, TO_END, Plan, Request, Source, plan
from .report import ExportReport
from .tasks import CODECS, FILE_BYTES, Form, OnUndecodable, Work, write
from .value_columns import Decoding

__all__ = ["ExportReport", "export", "json_schema"]

FORMATS = ("parquet", "delta")
ISOLATIONS = ("read_committed", "read_uncommitted")


def export(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    to: str,
    *,
    topics: Sequence[str] | None = None,
    like: str | None = None,
    starting: str | Limit = FROM_START,
    ending: str | Limit = TO_END,
    isolation: str = "read_committed",
    format: str = "parquet",
    codec: str = "zstd",
    rows_per_file: int | None = None,
    file_bytes: int = FILE_BYTES,
    decoding: Decoding | None = None,
    on_undecodable: OnUndecodable = "null",
    on_corrupt: OnCorrupt = "fail",
    new_generation: bool = False,
    fail_on_loss: bool = False,
    dry_run: bool = False,
    tell: Callable[[str], object] | None = None,
    say: Say | None = None,
) -> ExportReport:
    """Exports records that are not in the folder `to` yet; see `pipeline/jobs/export/layout.py` for what is in it then.

    `source`: log directories and partition folders, or the `kafka.*` options of running brokers without their prefix.
    `topics`, or a pattern that whole names are `like`; all but the brokers' own if neither. `starting` and `ending`:
    "earliest", "latest", a time, or offsets (`asking.limit`); what they leave out a later run may add. Aborted
    transactions, and what is behind the last stable offset, are left out unless `isolation` is "read_uncommitted".

    `format`: "parquet", or "delta" for a Delta table. `decoding` adds the column `decoded`, where a value that does not
    decode is null and counted, or ends it (`on_undecodable="fail"`). All runs into a folder have the same format,
    isolation and decoding. `codec` and sizes may differ: a file is full with `rows_per_file` rows, or `file_bytes`
    bytes before they are compressed. `on_corrupt`: "skip" leaves out what is damaged, and logs it.

    A topic that was made anew since it was exported is refused, unless `new_generation` exports it beside what is
    there. Records that were deleted before they were exported are in the report, or with `fail_on_loss` a DataLoss.
    `dry_run` only tells the plan. Raises ExportError and other ReadErrors, JobError, OSError. What was done before an
    error stays, and is not done again.
    """
    began = time.monotonic()
    form = _form(format, codec, rows_per_file, file_bytes, decoding, on_undecodable)
    settings = _settings(format, isolation, decoding)
    request = Request(
        selection=_selection(topics, like),
        starting=arguments.limit(starting, "starting") if isinstance(starting, str) else starting,
        ending=arguments.limit(ending, "ending") if isinstance(ending, str) else ending,
        committed=isolation == "read_committed",
        on_corrupt=on_corrupt,
        new_generation=new_generation,
        fail_on_loss=fail_on_loss,
    )
    root = arguments.folder(to)
    paths = () if isinstance(source, Mapping) else [source] if isinstance(source, str) else source
    arguments.check_folder(root, format, paths)
    with _backend(source, file_bytes) as backend:
        if dry_run:
            made = plan(backend, check(root, settings), request, root, form)
            _tell_plan(spark, made, root, tell, every_topic=True)
            return ExportReport(root, format, made)
        table = partial(DeltaTable, root, form.schema) if format == "delta" else None
        with _telling(root), Committer.open(root, settings, table=table) as committer:
            made = plan(backend, committer.manifest, request, root, form)
            _tell_plan(spark, made, root, tell)
            report = ExportReport(root, format, made)
            _export(spark, made, committer, report, say)
    report.seconds = time.monotonic() - began
    return report


@contextlib.contextmanager
def _telling(root: str) -> Iterator[None]:
    """What the disk says names the folder, where it names no file: a write to a full one does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.strerror is None:
            raise
        raise ExportError(f"cannot export to {root}: {error.strerror}") from error


def _export(spark: SparkSession, made: Plan, committer: Committer, report: ExportReport, say: Say | None) -> None:
    try:
        for work, written in spark_tasks.run(
            spark, made.works, write, bytes_of=_bytes_of, say=say, name="ottla export"
        ):
            report.add(committer.add(work, written, made.topics[work.topic].topic_id), written)
        committer.skip(made.gone)  # noted when there is a report that tells it
    finally:
        committer.commit()


def _selection(topics: Sequence[str] | None, like: str | None) -> Selection:
    try:
        matches = re.compile(like).fullmatch if like is not None else None
    except re.error as error:
        raise ExportError(f"{like!r} is no regular expression: {error}") from error
    if topics is None:
        return Selection(pattern=like)
    return Selection(tuple(topic for topic in topics if matches is None or matches(topic)))


def json_schema(ddl: str) -> Decoding:
    """How JSON is decoded to the columns of a schema as Spark writes it: `id BIGINT, name STRING`. ExportError."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    try:
        schema: Any = StructType.fromDDL(ddl)
    except Exception as error:
        raise ExportError(f"it is no schema of Spark: {str(error).partition(chr(10))[0]}") from error
    return Decoding.json(to_arrow_schema(schema, timezone="UTC"))


def _form(
    format: str,
    codec: str,
    rows_per_file: int | None,
    file_bytes: int,
    decoding: Decoding | None,
    on_undecodable: OnUndecodable,
) -> Form:
    for name, value, choices in (
        ("format", format, FORMATS),
        ("codec", codec, CODECS),
        ("on_undecodable", on_undecodable, ("null", "fail")),
    ):
        if value not in choices:
            raise ExportError(f"{name} is {value!r}: it must be {', '.join(choices[:-1])} or {choices[-1]}")
    if file_bytes < 1 or (rows_per_file is not None and rows_per_file < 1):
        raise ExportError("a file has one row at least, and one byte")
    return Form(codec, rows_per_file, file_bytes, format == "delta", decoding, on_undecodable)


def _settings(format: str, isolation: str, decoding: Decoding | None) -> Settings:
    if isolation not in ISOLATIONS:
        raise ExportError(f"isolation is {isolation!r}: it must be {' or '.join(ISOLATIONS)}")
    told = {"kind": decoding.kind, "schema": decoding.schema} if decoding is not None else None
    return Settings(format, isolation, told)


def _backend(source: str | Sequence[str] | Mapping[str, str], file_bytes: int) -> Source:
    if isinstance(source, Mapping):
        from ...readers.wire import WireBackend

        return WireBackend(source)
    # What a file holds of Arrow is more than the log has of it.
    return FileBackend([source] if isinstance(source, str) else source, part_bytes=max(1, file_bytes // 2))


def _tell_plan(
    spark: SparkSession,
    made: Plan,
    root: str,
    tell: Callable[[str], object] | None,
    *,
    every_topic: bool = False,
) -> None:
    if tell is None:
        return
    if every_topic:
        for topic in made.topics.values():
            offsets = sum(one.size for of in topic.todo.values() for one in of)
            there = sum(topic.skipped.values())
            tell(f"{topic.topic}: {topic.partitions} partitions, {offsets:,} offsets, {there:,} are there already")
    if gone := sum(one.end - one.start for one in made.gone):
        tell(f"{gone:,} offsets were deleted before they were exported")
    tasks = spark_tasks.tasks(spark, made.works, bytes_of=_bytes_of)
    told = size_text(sum(map(_bytes_of, made.works)))
    tell(
        f"{len(made.topics)} topics, {made.offsets:,} offsets to {root}, about {told}: {len(made.works)} pieces in "
        f"{tasks} tasks; {made.skipped:,} offsets are there already"
    )


def _bytes_of(work: Work) -> int:
    return work.size_bytes
