"""Writes a DataFrame to topics exactly once: Spark shuffles its rows by target partition, and each task sends its own.

Owns the Spark job and the order of the steps around it. Rows get their places (see `tasks`), and the shuffle brings all
rows of a target partition into one task, sorted by orderBy and by place: every attempt of the task has the same rows in
the same order. The driver begins the transaction before the job, and commits it afterwards if all computations of the
rows agree. An error of a task is raised here with the task's message instead of Spark's report.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from ...protocol.text import elapsed
from ..cluster import context_of, worker_python
from ..spark_api import arrow_schema, to_tasks
from .errors import SinkError, SinkFenced
from .options import SinkOptions
from .rows import COLUMNS, Targets, check_columns
from .task_writer import Sent
from .tasks import MOST_TARGETS, PLACE, RESULT, ROWS, Computations, Work, check_computed, place_task, send_task
from .transaction import SinkTransaction

ATTEMPTS = 3
"""Attempts to write a micro-batch, if a task cannot continue after the batches of another attempt."""

TASKS_PER_CORE = 4
"""For topics with many partitions a task has several, one after the other: starting a task takes longer than most of
its sending."""

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
SPECULATION = "spark.speculation"
HINT = "hint"
HINT_BITS = 43  # for the first column of orderBy; the other bits are for targets
_FROM_SCRATCH = "has to be written from scratch"
_OURS = re.compile(r"ottla\.pipeline\.sink\.errors\.(SinkFenced|SinkError): (.*)")


@dataclass(frozen=True, slots=True)
class SinkReport:
    """A micro-batch that is in the topics: `written` now, or skipped, since it was committed before. `partitions` are
    the target partitions, in order; empty if it was skipped. `seconds` is the duration."""

    batch_id: int
    transactional_id: str
    written: bool
    partitions: tuple[Sent, ...]
    seconds: float

    @property
    def records(self) -> int:
        """The number of rows written."""
        return sum(one.records for one in self.partitions)

    @property
    def bytes(self) -> int:
        """The size of their keys, values and headers."""
        return sum(one.bytes for one in self.partitions)

    def to_text(self) -> str:
        """Returns one line, and one more for each partition."""
        what = f"micro-batch {self.batch_id} of transactional id {self.transactional_id!r}"
        if not self.written:
            return f"{what}: committed before, nothing is written"
        lines = [f"{what}: {self.records} records, {self.bytes} bytes in {elapsed(self.seconds * 1000)}"]
        lines += [
            f"  {one.topic}-{one.partition}: {one.records} records, offsets {one.first_offset} to {one.last_offset}"
            for one in self.partitions
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        return json.dumps(
            {
                "batchId": self.batch_id,
                "transactionalId": self.transactional_id,
                "written": self.written,
                "records": self.records,
                "bytes": self.bytes,
                "seconds": round(self.seconds, 3),
                "partitions": [one._asdict() for one in self.partitions],
            },
            indent=2,
        )


def write_exactly_once(df: DataFrame, batch_id: int, options: Mapping[str, Any]) -> SinkReport:
    """Writes the rows of `df` exactly once, in one transaction, unless the micro-batch `batch_id` is committed already.

    For `foreachBatch`: `lambda df, batch_id: write_exactly_once(df, batch_id, options)`. `options` are those of the
    sink: `kafka.bootstrap.servers` and other `kafka.*` of a producer, `topic` (else the column of that name), `orderBy`
    (columns), and `transactionalId`, by default that of the streaming query. The columns are those of Spark's Kafka
    sink. Rows for one partition keep their order in `df`: by its partitions, and within each; with `orderBy` that
    applies to rows equal in its columns. Micro-batches of one transactional id are written one after the other, with
    ascending ids. Raises SinkError with one sentence; then nothing is committed unless the message calls the outcome
    unknown. Raises SinkFenced if another query has taken over.
    """
    spark, began_s = df.sparkSession, time.monotonic()
    given = SinkOptions.read(options)
    names = checked(df.schema, given)
    try:
        rows = df.select(*map(_quoted, names))
    except AnalysisException as error:
        raise SinkError(f"a column name is ambiguous: {str(error).splitlines()[0]}") from None
    if str(spark.conf.get(SPECULATION, "false")).lower() == "true":
        raise SinkError(
            f"{SPECULATION} is true: two concurrent attempts of a task would break exactly-once writing, so it must"
            " be false for this sink"
        )
    query = context_of(spark).getLocalProperty(QUERY_ID)
    if query is None and not given.transactional_id:
        raise SinkError("transactionalId must be given outside a streaming query, whose id is the default")
    transactional_id = given.transactional_id or f"ottla-{query}"
    owner = (given.kafka["bootstrap.servers"], transactional_id)
    current = None if query is None else _current_write(df, given, owner, batch_id)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with SinkTransaction(given, transactional_id, query=query) as transaction:
                sent = _write(rows, batch_id, given, transaction)
            break
        except SinkError as error:
            if _FROM_SCRATCH not in str(error) or attempt == ATTEMPTS:
                raise
    if current is not None:
        _last_writes[owner] = current
    return SinkReport(batch_id, transactional_id, sent is not None, tuple(sent or ()), time.monotonic() - began_s)


# -- checks


def checked(schema: StructType, options: SinkOptions, *, of_all: bool = False) -> list[str]:
    """Returns the columns that are read. Other columns may have any type, unless tasks receive them (`of_all`). Raises
    SinkError, which names a column."""
    looked_at = {*COLUMNS, *options.order_by}
    fields = [_arrow_field(field) for field in schema if of_all or field.name in looked_at]
    check_columns(pa.schema(fields), options.topic)
    for name in options.order_by:
        if name not in schema.names:
            raise SinkError(f"orderBy names {name}, which is not a column; use {', '.join(schema.names)}")
    for field in schema:
        if field.name in options.order_by and not _has_order(field.dataType):
            kind = field.dataType.simpleString()
            raise SinkError(f"orderBy names {field.name}, of type {kind}, which cannot be sorted")
    return [name for name in schema.names if name in looked_at]


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return arrow_schema(StructType([field])).field(0)
    except (PySparkException, ValueError):
        raise SinkError(
            f"column {field.name} is of type {field.dataType.simpleString()}, which PySpark cannot pass to tasks"
        ) from None


def _has_order(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_order(field.dataType) for field in kind)
    return _has_order(kind.elementType) if isinstance(kind, ArrayType) else not isinstance(kind, MapType | VariantType)


_last_writes: dict[tuple[str, str], tuple[str, int, int]] = {}
"""The last write of a query's run, by brokers and transactional id. A second write of other rows in one `foreachBatch`
would be taken for a replay of the first, and be skipped."""


def _current_write(df: DataFrame, options: SinkOptions, owner: tuple[str, str], batch_id: int) -> tuple[str, int, int]:
    """Returns the query's run, the micro-batch and a hash of its rows. Raises SinkError if this micro-batch was written
    already with other rows."""
    rows = hash((df.semanticHash(), options.topic))
    run_id = context_of(df.sparkSession).getLocalProperty(RUN_ID) or ""
    before = _last_writes.get(owner)
    if before is not None and before[:2] == (run_id, batch_id) and before[2] != rows:
        raise SinkError(
            f"micro-batch {batch_id} was already written with transactional id {owner[1]!r}, from other"
            " rows: where one query writes twice, each write needs a transactionalId of its own"
        )
    return run_id, batch_id, rows


# -- steps of the driver


def _write(rows: DataFrame, batch_id: int, options: SinkOptions, transaction: SinkTransaction) -> list[Sent] | None:
    """Writes a micro-batch and returns what was sent, or None if it is committed already."""
    now_ms = time.time_ns() // 1_000_000  # one for all attempts of all tasks
    grant = transaction.begin()
    done = transaction.committed_batch()
    if done is not None and done >= batch_id:
        return None
    sent: list[Sent] = []
    with _topics(rows, options) as topics:
        targets = Targets(transaction.partitions(topics))
        if len(targets) > MOST_TARGETS:
            raise SinkError(f"the topics have {len(targets)} partitions, more than the maximum of {MOST_TARGETS}")
        if len(targets):
            transaction.add(targets)
            context = context_of(rows.sparkSession)
            work = Work(
                options,
                grant,
                targets,
                min(len(targets), context.defaultParallelism * TASKS_PER_CORE),
                now_ms,
                "headers" in rows.columns,
                uuid.uuid4().hex,
                Computations.of(context),
            )
            sent = _run(rows, work)
    transaction.commit(batch_id)
    return sent


@contextmanager
def _topics(rows: DataFrame, options: SinkOptions) -> Iterator[list[str]]:
    """The topics of rows. Where these must be found first, the rows are persisted in the context, so that Spark does
    not compute them twice."""
    if options.topic is not None:
        yield [options.topic]
        return
    kept = rows.is_cached or rows.storageLevel != StorageLevel.NONE
    if not kept:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with _own_sentences(rows):
            topics = [row[0] for row in rows.select("topic").distinct().collect()]
        if None in topics:
            raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
        yield topics
    finally:
        if not kept:
            rows.unpersist()


def _run(rows: DataFrame, work: Work) -> list[Sent]:
    """Runs the Spark job: place, shuffle, sort, send. Raises SinkError with the message of the task."""
    sent = _placed(rows, work).mapInArrow(partial(send_task, work), from_arrow_schema(RESULT))
    try:
        with _own_sentences(rows):
            found = sorted(Sent(*row) for row in sent.collect())
    finally:
        computed = Computations.taken(work.write)
    check_computed(computed, sum(one.records for one in found))
    return found


def _placed(rows: DataFrame, work: Work) -> DataFrame:
    """Returns the rows in the tasks of their targets, sorted by target: packed, in the order of the DataFrame, or one
    by one in that of orderBy."""
    columns = [pa.field(ROWS, pa.binary())]
    if work.order:
        rows = rows.withColumns(
            {to: F.col(_quoted(name)) for to, name in zip(work.order, work.options.order_by, strict=True)}
        )
        given = arrow_schema(rows.schema)
        columns = [*(given.field(name) for name in work.order), *work.schema]
    out = from_arrow_schema(pa.schema([pa.field(PLACE, pa.int64()), *columns]))
    target = F.shiftright(F.col(PLACE), work.places.target_shift)
    task = (target % F.lit(work.tasks)).cast("int")
    placed = to_tasks(rows.mapInArrow(partial(place_task, work), out), work.tasks, task)
    if not work.order:
        return placed.sortWithinPartitions(PLACE)
    hinted = placed.withColumn(HINT, F.shiftleft(target, HINT_BITS) + _hint(placed, work.order[0]))
    return hinted.sortWithinPartitions(HINT, *work.order, PLACE).select(PLACE, *work.schema.names)


def _hint(rows: DataFrame, by: str) -> Column:
    """Returns a number that orders rows by the first column of orderBy, as far as its bits hold it. Spark compares the
    first sort column in place, but copies the bytes of others for every comparison."""
    kind = dict(rows.dtypes)[by]
    if kind not in ("tinyint", "smallint", "int", "bigint", "timestamp"):
        return F.lit(0)
    number = F.unix_millis(by) if kind == "timestamp" else F.col(by).cast("bigint")
    most = 1 << HINT_BITS - 1
    return F.coalesce(F.least(F.greatest(number, F.lit(-most)), F.lit(most - 1)) + F.lit(most), F.lit(0))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def _own_sentences(rows: DataFrame) -> Iterator[None]:
    """Raises the error of a task instead of Spark's report of it."""
    python = context_of(rows.sparkSession).pythonExec
    try:
        yield
    except PySparkException as error:
        if found := _OURS.findall(str(error)):
            kind, sentence = found[-1]
            raise (SinkFenced if kind == "SinkFenced" else SinkError)(sentence.strip()) from error
        if (ours := worker_python(error, python)) is not None:
            raise ours from error
        raise
