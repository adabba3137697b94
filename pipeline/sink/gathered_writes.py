"""Writes rows of many partitions from one process: the staged rows of all tasks in one transaction, or the rows of one
task.

Owns the order of the steps. All staged rows of a micro-batch are in the driver's memory at once; if they do not fit,
use `write_exactly_once`, which shuffles rows to tasks. No Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from .errors import SinkError
from .options import SinkOptions
from .report import SinkReport
from .rows import COLUMNS, assigned, content, ordered
from .staged_rows import Staged, staged_rows
from .task_writer import Sent, TaskSender
from .transaction import Grant, SinkTransaction, idempotent_grant

__all__ = ["needed", "send_rows", "write_staged"]

CHUNK_BYTES = 32 << 20
"""The memory of a task that sends without staging."""

Target = tuple[str, int]


def needed(names: Sequence[str], options: SinkOptions) -> list[str]:
    """Returns the columns of a query that must be staged. Raises SinkError if orderBy names an unknown column."""
    for name in options.order_by:
        if name not in names:
            raise SinkError(f"orderBy names {name}, which is not a column; use {', '.join(names)}")
    return [name for name in names if name in options.order_by or name in COLUMNS]


def write_staged(
    options: SinkOptions, transactional_id: str, batch_id: int, staged: Iterable[Staged], *, query: str | None = None
) -> SinkReport:
    """Writes the rows of all tasks in one transaction, unless this micro-batch of the query is committed. `staged` is
    in the order of the DataFrame's partitions; apart from orderBy, rows keep that order. Raises SinkError."""
    began_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
    with SinkTransaction(options, transactional_id, query=query) as transaction:
        grant = transaction.begin()
        done = transaction.committed_batch()
        if done is not None and done >= batch_id:
            return SinkReport(batch_id, transactional_id, False, (), time.monotonic() - began_s)
        batches = list(staged_rows(staged))
        counts = transaction.partitions(_topics(batches, options.topic)) if batches else {}
        targets = _by_partition(batches, options, counts, now_ms)
        transaction.add(targets)
        sent = _send_all(options, grant, targets)
        transaction.commit(batch_id)
    return SinkReport(batch_id, transactional_id, True, sent, time.monotonic() - began_s)


def send_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Writes rows in their order and returns their number. At least once: a second call writes the rows again. Raises
    SinkError."""
    now_ms, records = time.time_ns() // 1_000_000, 0
    counts: dict[str, int] = {}
    with SinkTransaction(options, "") as brokers:  # only for metadata: begins no transaction
        for chunk in _chunks(batches, CHUNK_BYTES):
            counts |= brokers.partitions(_topics(chunk, options.topic) - counts.keys())
            targets = _by_partition(chunk, options, counts, now_ms)
            # Sequences begin at 0 with each grant.
            records += sum(one.records for one in _send_all(options, idempotent_grant(options), targets))
    return records


def _chunks(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    chunk: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if chunk and size + batch.nbytes > most_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(batch)
        size += batch.nbytes
    if chunk:
        yield chunk


def _topics(batches: Iterable[pa.RecordBatch], topic: str | None) -> set[str]:
    """Returns the topics of the rows. Raises SinkError for a row without one."""
    if topic is not None:
        return {topic}
    found = {name for batch in batches for name in batch.column("topic").unique().to_pylist()}
    if None in found:
        raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
    return found


def _by_partition(
    batches: Sequence[pa.RecordBatch], options: SinkOptions, counts: Mapping[str, int], now_ms: int
) -> dict[Target, pa.Table]:
    """Returns the rows of each target partition, sorted by orderBy and then in the order of the batches. Raises
    SinkError."""
    if not batches:
        return {}
    order = [f"order {number}" for number in range(len(options.order_by))]
    tables: list[pa.Table] = []
    for batch in batches:
        where = assigned(batch, options.topic, counts)
        columns = {name: where.column(name) for name in ("topic", "partition")}
        columns |= {name: batch.column(by) for name, by in zip(order, options.order_by, strict=True)}
        written = content(batch, now_ms)
        tables.append(pa.table(columns | {name: written.column(name) for name in written.schema.names}))
    table = pa.concat_tables(tables)
    table = ordered(table, order).drop_columns(order) if order else table
    return dict(_parts(table))


def _parts(table: pa.Table) -> Iterator[tuple[Target, pa.Table]]:
    topics = table.column("topic").combine_chunks()
    encoded = topics.dictionary_encode()
    numbers = table.column("partition").to_numpy()
    names = encoded.dictionary.to_pylist()
    places = encoded.indices.to_numpy().astype(np.int64) << 32 | numbers
    rows = table.drop_columns(["topic", "partition"])
    for place in np.unique(places):
        name, partition = names[int(place) >> 32], int(place) & 0xFFFFFFFF
        yield (name, partition), rows.take(pa.array(np.flatnonzero(places == place)))


def _send_all(options: SinkOptions, grant: Grant, targets: dict[Target, pa.Table]) -> tuple[Sent, ...]:
    """Sends the rows of each partition, one partition after the other. Raises SinkError."""
    parts = sorted(targets.items(), key=itemgetter(0))
    with TaskSender(options, grant) as sender:
        return tuple(sender.send(target, iter(rows.to_batches())) for target, rows in parts)
