"""A DataFrame into topics, once: Spark shuffles its rows to the partitions they go to, and each task sends its own.

Owns the Spark job and the order of the steps around it. A row is assigned to its partition, the shuffle brings all rows
of a partition into one task, and that task sorts them by orderBy, by time, and then by a checksum and all else that is
written: so it has the same rows in the same order however often it is tried. The driver begins the transaction before
and commits it behind the job. What Spark says of a task that failed is brought back to the sentence that the task
raised.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, VariantType

from .errors import SinkError, SinkFenced
from .gathering import needed
from .options import SinkOptions
from .report import SinkReport
from .rows import COLUMNS, SENT, assigned, check_columns, content
from .sending import Sent, TaskSender
from .transaction import Grant, SinkTransaction

__all__ = ["checked", "own_error", "refuse_speculation", "write_exactly_once"]

ATTEMPTS = 3
"""So often a micro-batch is written, where a task finds that it cannot go on from what another attempt of it left."""

TASKS_PER_CORE = 4
"""Of a topic of many partitions a task has several, one behind the other: starting a task takes longer than most of
what it has to send."""

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
SPECULATION = "spark.speculation"
TARGET, ORDER, PLACE, CHECK = "target", "order", "place", "check"
PLACE_BITS = 43  # for what is sorted by; the rest are for targets
MOST_TARGETS = 1 << 63 - PLACE_BITS
_ANEW = "has to be written anew"
_OURS = re.compile(r"ottla\.pipeline\.sink\.errors\.(SinkFenced|SinkError): (.*)")
_RESULT = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
    ]
)

Target = tuple[str, int]


def write_exactly_once(df: DataFrame, batch_id: int, options: Mapping[str, Any]) -> SinkReport:
    """Writes the rows of `df` in one transaction, each once, unless the micro-batch `batch_id` is committed already.

    For `foreachBatch`: `lambda df, batch_id: write_exactly_once(df, batch_id, options)`. `options` are those of the
    sink: `kafka.bootstrap.servers` and other `kafka.*` of a producer, `topic` (else the column of that name), `orderBy`
    (columns; rows that are equal in them are ordered by all that is written), and `transactionalId`, by default that of
    the streaming query. The columns are those of Spark's Kafka sink. Micro-batches of one transactional id come one
    after the other, with rising ids. Raises SinkError in one sentence, with nothing committed unless it says that this
    is not known; SinkFenced where another query has taken over.
    """
    spark, began_s = df.sparkSession, time.monotonic()
    given = SinkOptions.read(options)
    _check(df, given)
    refuse_speculation(spark)
    transactional_id = given.transactional_id or _of_query(spark)
    told = _Told.of(df, given, transactional_id, batch_id)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            sent = _write(df, batch_id, given, transactional_id)
            break
        except SinkError as error:
            if _ANEW not in str(error) or attempt == ATTEMPTS:
                raise
    told.keep()
    return SinkReport(batch_id, transactional_id, sent is not None, tuple(sent or ()), time.monotonic() - began_s)


# -- checks


def checked(schema: StructType, options: SinkOptions, *, of_all: bool = False) -> list[str]:
    """The columns that are looked at. Others may be of any type, but where tasks get them `of_all`. Raises SinkError,
    which names a column."""
    looked_at = {*COLUMNS, *options.order_by}
    fields = [_arrow_field(field) for field in schema if of_all or field.name in looked_at]
    check_columns(pa.schema(fields), options.topic)
    found = needed(schema.names, options)
    for field in schema:
        if field.name in options.order_by and not _has_order(field.dataType):
            raise SinkError(f"orderBy names {field.name}, of type {field.dataType.simpleString()}, which has no order")
    return found


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(StructType([field]), timezone="UTC").field(0)
    except (PySparkException, ValueError):
        raise SinkError(
            f"column {field.name} is of type {field.dataType.simpleString()}, which tasks in Python cannot have"
        ) from None


def _has_order(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_order(field.dataType) for field in kind)
    return _has_order(kind.elementType) if isinstance(kind, ArrayType) else not isinstance(kind, MapType | VariantType)


def _chosen(df: DataFrame, options: SinkOptions) -> DataFrame:
    """The rows with the columns that are looked at. Raises SinkError."""
    try:
        return df.select(*(_quoted(name) for name in needed(df.columns, options)))
    except AnalysisException as error:
        raise SinkError(f"which columns are meant Spark cannot tell: {str(error).splitlines()[0]}") from None


def _check(df: DataFrame, options: SinkOptions) -> None:
    checked(df.schema, options)
    _chosen(df, options)
    if options.idempotency_key is not None or options.staging_location is not None:
        name = "idempotencyKey" if options.idempotency_key is not None else "stagingLocation"
        raise SinkError(f"{name} is an option of the format ottla; here transactionalId and the batch id say the same")


def refuse_speculation(spark: SparkSession) -> None:
    """Raises SinkError where Spark runs slow tasks twice at once."""
    if str(spark.conf.get(SPECULATION, "false")).lower() == "true":
        raise SinkError(
            f"{SPECULATION} is true: two attempts of a task at once cannot both write what is written once, so it must"
            " be false for this sink"
        )


def _property(spark: SparkSession, name: str) -> str | None:
    """What Spark knows of the thread that runs a micro-batch."""
    return spark.sparkContext.getLocalProperty(name)


def _of_query(spark: SparkSession) -> str:
    query = _property(spark, QUERY_ID)
    if query is None:
        raise SinkError("transactionalId must be given where no streaming query runs: its id is the default")
    return f"ottla-{query}"


class _Told:
    """What a run of a query has written last by a transactional id: a second write of other rows in one `foreachBatch`
    would be taken for a replay of the first, and be skipped."""

    _last: ClassVar[dict[tuple[str, str], tuple[str, int, int]]] = {}

    def __init__(self, key: tuple[str, str], now: tuple[str, int, int] | None) -> None:
        self._key, self._now = key, now

    @classmethod
    def of(cls, df: DataFrame, options: SinkOptions, transactional_id: str, batch_id: int) -> _Told:
        """Raises SinkError."""
        spark = df.sparkSession
        key = (options.kafka["bootstrap.servers"], transactional_id)
        if _property(spark, QUERY_ID) is None:
            return cls(key, None)
        rows = hash((df.semanticHash(), options.topic))
        now = (_property(spark, RUN_ID) or "", batch_id, rows)
        before = cls._last.get(key)
        if before is not None and before[:2] == now[:2] and before[2] != rows:
            raise SinkError(
                f"micro-batch {batch_id} was already written with transactional id {transactional_id!r}, from other"
                " rows: where one query writes twice, each write needs a transactionalId of its own"
            )
        return cls(key, now)

    def keep(self) -> None:
        if self._now is not None:
            self._last[self._key] = self._now


# -- the driver's steps


def _write(df: DataFrame, batch_id: int, options: SinkOptions, transactional_id: str) -> list[Sent] | None:
    """What was written; None where the micro-batch is committed already."""
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
    """Which topics there are must be known first; so that rows are not computed twice they are kept meanwhile."""
    kept = rows.is_cached or rows.storageLevel != StorageLevel.NONE
    if not kept:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with _own_sentences():
            topics = [row[0] for row in rows.select("topic").distinct().collect()]
        if None in topics:
            raise SinkError("a row has no topic: neither the option topic nor its column topic says where it goes")
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
    targets = [(topic, number) for topic, count in sorted(counts.items()) for number in range(count)]
    if not targets:
        return []
    if len(targets) > MOST_TARGETS:
        raise SinkError(
            f"the topics have {len(targets)} partitions, more than the {MOST_TARGETS} that go into one write"
        )
    transaction.add(targets)
    cores = rows.sparkSession.sparkContext.defaultParallelism
    work = _Work(
        options, grant, tuple(targets), min(len(targets), cores * TASKS_PER_CORE), now_ms, "headers" in rows.columns
    )
    return run(rows, work)


def run(rows: DataFrame, work: _Work) -> list[Sent]:
    """The Spark job: to the partitions, into order, and out. Raises SinkError with the sentence of the task."""
    order = {f"{ORDER}{number}": F.col(_quoted(name)) for number, name in enumerate(work.options.order_by)}
    rows = rows.withColumns(order) if order else rows
    given = to_arrow_schema(rows.schema, timezone="UTC")
    names = work.names
    written = [field for field in SENT if field.name in names]
    out = pa.schema([pa.field(TARGET, pa.int32()), *(given.field(name) for name in order), *written])
    placed = rows.mapInArrow(partial(_assign, work), from_arrow_schema(out))
    placed = placed.withColumn(CHECK, F.xxhash64(*names[1:]))
    placed = placed.withColumn(PLACE, _place(placed, "timestamp" in rows.columns))
    shuffled = placed.repartitionById(work.tasks, F.col(TARGET) % F.lit(work.tasks))
    shuffled = shuffled.sortWithinPartitions(PLACE, *order, "timestamp", CHECK, *names[1:])
    sent = shuffled.select(TARGET, *names).mapInArrow(partial(_send_task, work), from_arrow_schema(_RESULT))
    with _own_sentences():
        return sorted(Sent(*row) for row in sent.collect())


def _place(rows: DataFrame, has_times: bool) -> Column:
    """Where a row stands among those of its task, as far as 63 bits tell: its target, and something of what is sorted
    by next. Spark compares the first column in place, but copies the bytes of others for every comparison."""
    by = next(iter(name for name in rows.columns if name.startswith(ORDER)), "timestamp" if has_times else CHECK)
    kind = dict(rows.dtypes)[by]
    if by == CHECK:
        hint = F.shiftrightunsigned(F.col(CHECK), 64 - PLACE_BITS)
    elif kind in ("tinyint", "smallint", "int", "bigint", "timestamp"):
        number = F.unix_millis(by) if kind == "timestamp" else F.col(by).cast("bigint")
        most = 1 << PLACE_BITS - 1
        hint = F.coalesce(F.least(F.greatest(number, F.lit(-most)), F.lit(most - 1)) + F.lit(most), F.lit(0))
    else:
        hint = F.lit(0)
    return F.shiftleft(F.col(TARGET).cast("bigint"), PLACE_BITS) + hint


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class _own_sentences:
    """What a task raised of ours is raised here, in place of Spark's report of it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, PySparkException) and (ours := own_error(str(error))) is not None:
            raise ours from error


def own_error(text: str) -> SinkError | None:
    """The error of ours in what Spark tells of a task that failed."""
    found = _OURS.findall(text)
    if not found:
        return None
    kind, sentence = found[-1]
    return (SinkFenced if kind == "SinkFenced" else SinkError)(sentence.strip())


# -- the tasks


@dataclass(frozen=True, slots=True)
class _Work:
    """What the tasks are told."""

    options: SinkOptions
    grant: Grant
    targets: tuple[Target, ...]
    tasks: int
    now_ms: int
    has_headers: bool

    @property
    def names(self) -> list[str]:
        """The columns that go from task to task: to lead a list through Spark takes most of the time, so headers only
        where there are some."""
        return [name for name in SENT.names if name != "headers" or self.has_headers]


class _Slice(NamedTuple):
    target: int
    rows: pa.RecordBatch


def _assign(work: _Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where each row goes, as a number, and what is written of it."""
    counts: dict[str, int] = {}
    bases: dict[str, int] = {}
    for number, (topic, partition) in enumerate(work.targets):
        counts[topic] = partition + 1
        bases.setdefault(topic, number)
    order = [f"{ORDER}{number}" for number in range(len(work.options.order_by))]
    for batch in batches:
        placed = assigned(batch, work.options.topic, counts)
        numbers = placed.column("partition").to_numpy()
        if len(bases) > 1:
            topics = placed.column("topic").dictionary_encode()
            first = np.array([bases[name] for name in topics.dictionary.to_pylist()], np.int32)
            numbers = numbers + first[topics.indices.to_numpy()]
        written = content(batch, work.now_ms)
        columns = [pa.array(numbers, pa.int32()), *(batch.column(name) for name in order)]
        columns += [written.column(name) for name in work.names]
        yield pa.RecordBatch.from_arrays(columns, names=[TARGET, *order, *work.names])


def _send_task(work: _Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of some partitions, one partition behind the other; what became of them."""
    seen = -1
    with TaskSender(work.options, work.grant) as sender:
        for target, slices in groupby(_slices(work.names, batches), key=itemgetter(0)):
            if target <= seen:
                raise SinkError("Spark did not sort the rows of a task: nothing of this micro-batch is committed")
            seen = target
            sent = sender.send(work.targets[target], (one.rows for one in slices))
            yield pa.RecordBatch.from_pylist([sent._asdict()], schema=_RESULT)


def _slices(names: list[str], batches: Iterable[pa.RecordBatch]) -> Iterator[_Slice]:
    """Batches cut where another partition begins."""
    for batch in batches:
        if not batch.num_rows:
            continue
        targets = batch.column(TARGET).to_numpy()
        rows = batch.select(names)
        edges = [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), batch.num_rows]
        for start, stop in pairwise(edges):
            yield _Slice(int(targets[start]), rows.slice(start, stop - start))
