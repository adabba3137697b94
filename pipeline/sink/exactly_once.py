"""Writes a DataFrame to topics exactly once: Spark shuffles its rows by target partition, and each task sends its own.

Owns the Spark job and the order of the steps around it. Rows get their places (see `order`), and the shuffle brings all
rows of a target partition into one task, sorted by orderBy and by place: every attempt of the task has the same rows in
the same order. The driver begins the transaction before the job, and commits it afterwards if all computations of the
rows agree. An error of a task is raised here with the task's message instead of Spark's report.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from ..cluster import context_of, worker_python
from ..spark_api import arrow_schema, to_tasks
from .errors import SinkError, SinkFenced
from .options import SinkOptions
from .order import MOST_TARGETS, check_computed
from .report import SinkReport
from .rows import COLUMNS, Targets, check_columns
from .task_writer import Sent
from .tasks import PLACE, RESULT, ROWS, Computations, Work, pack_task, place_task, send_task
from .transaction import Grant, SinkTransaction

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
    checked(df.schema, given)
    _chosen(df, given)
    refuse_speculation(spark)
    transactional_id = given.transactional_id or _of_query(spark)
    owner = (given.kafka["bootstrap.servers"], transactional_id)
    current = _current_write(df, given, owner, batch_id)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            sent = _write(df, batch_id, given, transactional_id)
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
    found = _needed(schema.names, options)
    for field in schema:
        if field.name in options.order_by and not _has_order(field.dataType):
            kind = field.dataType.simpleString()
            raise SinkError(f"orderBy names {field.name}, of type {kind}, which cannot be sorted")
    return found


def _needed(names: Sequence[str], options: SinkOptions) -> list[str]:
    for name in options.order_by:
        if name not in names:
            raise SinkError(f"orderBy names {name}, which is not a column; use {', '.join(names)}")
    return [name for name in names if name in options.order_by or name in COLUMNS]


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


def _chosen(df: DataFrame, options: SinkOptions) -> DataFrame:
    """Returns the rows with the columns that are read. Raises SinkError."""
    try:
        return df.select(*(_quoted(name) for name in _needed(df.columns, options)))
    except AnalysisException as error:
        raise SinkError(f"a column name is ambiguous: {str(error).splitlines()[0]}") from None


def refuse_speculation(spark: SparkSession) -> None:
    """Raises SinkError if Spark runs a second copy of slow tasks."""
    if str(spark.conf.get(SPECULATION, "false")).lower() == "true":
        raise SinkError(
            f"{SPECULATION} is true: two concurrent attempts of a task would break exactly-once writing, so it must"
            " be false for this sink"
        )


def _property(spark: SparkSession, name: str) -> str | None:
    """Returns a local property of the thread that runs a micro-batch."""
    return context_of(spark).getLocalProperty(name)


def _of_query(spark: SparkSession) -> str:
    query = _property(spark, QUERY_ID)
    if query is None:
        raise SinkError("transactionalId must be given outside a streaming query, whose id is the default")
    return f"ottla-{query}"


_last_writes: dict[tuple[str, str], tuple[str, int, int]] = {}
"""The last write of a query's run, by brokers and transactional id. A second write of other rows in one `foreachBatch`
would be taken for a replay of the first, and be skipped."""


def _current_write(
    df: DataFrame, options: SinkOptions, owner: tuple[str, str], batch_id: int
) -> tuple[str, int, int] | None:
    """Returns the query's run, the micro-batch and a hash of its rows; None outside a streaming query. Raises SinkError
    if this micro-batch was written already with other rows."""
    spark = df.sparkSession
    if _property(spark, QUERY_ID) is None:
        return None
    rows = hash((df.semanticHash(), options.topic))
    run_id = _property(spark, RUN_ID) or ""
    before = _last_writes.get(owner)
    if before is not None and before[:2] == (run_id, batch_id) and before[2] != rows:
        raise SinkError(
            f"micro-batch {batch_id} was already written with transactional id {owner[1]!r}, from other"
            " rows: where one query writes twice, each write needs a transactionalId of its own"
        )
    return run_id, batch_id, rows


# -- steps of the driver


def _write(df: DataFrame, batch_id: int, options: SinkOptions, transactional_id: str) -> list[Sent] | None:
    """Writes a micro-batch and returns what was sent, or None if it is committed already."""
    now_ms = time.time_ns() // 1_000_000  # one for all attempts of all tasks
    query = _property(df.sparkSession, QUERY_ID)
    with SinkTransaction(options, transactional_id, query=query) as transaction:
        grant = transaction.begin()
        done = transaction.committed_batch()
        if done is not None and done >= batch_id:
            return None
        rows = _chosen(df, options)
        if options.topic is not None:
            counts = transaction.partitions([options.topic])
            sent = _send(rows, options, grant, transaction, counts, now_ms)
        else:
            sent = _send_to_topics(rows, options, grant, transaction, now_ms)
        transaction.commit(batch_id)
        return sent


def _send_to_topics(
    rows: DataFrame, options: SinkOptions, grant: Grant, transaction: SinkTransaction, now_ms: int
) -> list[Sent]:
    """Writes rows whose topics must be found first. Persists the rows meanwhile, so that Spark does not compute them
    twice."""
    kept = rows.is_cached or rows.storageLevel != StorageLevel.NONE
    if not kept:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with _own_sentences(rows):
            topics = [row[0] for row in rows.select("topic").distinct().collect()]
        if None in topics:
            raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
        return _send(rows, options, grant, transaction, transaction.partitions(topics), now_ms)
    finally:
        if not kept:
            rows.unpersist()


def _send(
    rows: DataFrame,
    options: SinkOptions,
    grant: Grant,
    transaction: SinkTransaction,
    counts: Mapping[str, int],
    now_ms: int,
) -> list[Sent]:
    targets = Targets(counts)
    if not len(targets):
        return []
    if len(targets) > MOST_TARGETS:
        raise SinkError(f"the topics have {len(targets)} partitions, more than the maximum of {MOST_TARGETS}")
    transaction.add(targets)
    cores = context_of(rows.sparkSession).defaultParallelism
    work = Work(
        options,
        grant,
        targets,
        min(len(targets), cores * TASKS_PER_CORE),
        now_ms,
        "headers" in rows.columns,
        uuid.uuid4().hex,
        Computations.of(context_of(rows.sparkSession)),
    )
    return run(rows, work)


def run(rows: DataFrame, work: Work) -> list[Sent]:
    """Runs the Spark job: place, shuffle, sort, send. Raises SinkError with the message of the task."""
    placed = _placed(rows, work) if work.order else _packed(rows, work)
    sent = placed.mapInArrow(partial(send_task, work), from_arrow_schema(RESULT))
    try:
        with _own_sentences(rows):
            found = sorted(Sent(*row) for row in sent.collect())
    finally:
        computed = Computations.taken(work.write)
    check_computed(computed, sum(one.records for one in found))
    return found


def _packed(rows: DataFrame, work: Work) -> DataFrame:
    """Returns the rows in the tasks of their targets, packed by target, in the order of the DataFrame."""
    out = pa.schema([pa.field(PLACE, pa.int64()), pa.field(ROWS, pa.binary())])
    packed = rows.mapInArrow(partial(pack_task, work), from_arrow_schema(out))
    return _shuffled(packed, work).sortWithinPartitions(PLACE)


def _placed(rows: DataFrame, work: Work) -> DataFrame:
    """Returns the rows in the tasks of their targets, sorted by target and by orderBy."""
    rows = rows.withColumns(
        {to: F.col(_quoted(name)) for to, name in zip(work.order, work.options.order_by, strict=True)}
    )
    given = arrow_schema(rows.schema)
    out = pa.schema([pa.field(PLACE, pa.int64()), *(given.field(name) for name in work.order), *work.schema])
    placed = _shuffled(rows.mapInArrow(partial(place_task, work), from_arrow_schema(out)), work)
    sorted_ = placed.withColumn(HINT, _hint(placed, work)).sortWithinPartitions(HINT, *work.order, PLACE)
    return sorted_.select(PLACE, *work.schema.names)


def _shuffled(rows: DataFrame, work: Work) -> DataFrame:
    return to_tasks(rows, work.tasks, (_target(work) % F.lit(work.tasks)).cast("int"))


def _target(work: Work) -> Column:
    return F.shiftright(F.col(PLACE), work.places.target_shift)


def _hint(rows: DataFrame, work: Work) -> Column:
    """Returns a number that orders rows by target and then by the first column of orderBy, as far as 63 bits hold it.
    Spark compares the first sort column in place, but copies the bytes of others for every comparison."""
    by = work.order[0]
    kind = dict(rows.dtypes)[by]
    if kind in ("tinyint", "smallint", "int", "bigint", "timestamp"):
        number = F.unix_millis(by) if kind == "timestamp" else F.col(by).cast("bigint")
        most = 1 << HINT_BITS - 1
        hint = F.coalesce(F.least(F.greatest(number, F.lit(-most)), F.lit(most - 1)) + F.lit(most), F.lit(0))
    else:
        hint = F.lit(0)
    return F.shiftleft(_target(work), HINT_BITS) + hint


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def _own_sentences(rows: DataFrame) -> Iterator[None]:
    """Raises the error of a task instead of Spark's report of it."""
    python = context_of(rows.sparkSession).pythonExec
    try:
        yield
    except PySparkException as error:
        ours = own_error(str(error)) or worker_python(error, python)
        if ours is not None:
            raise ours from error
        raise


def own_error(text: str) -> SinkError | None:
    """Returns the sink's error in Spark's report of a failed task, or None."""
    found = _OURS.findall(text)
    if not found:
        return None
    kind, sentence = found[-1]
    return (SinkFenced if kind == "SinkFenced" else SinkError)(sentence.strip())
