"""Rows of many partitions, written by one: what tasks have staged in one transaction, or what a task has at once.

Owns the order of the steps. What was staged of a micro-batch is in the driver's memory as a whole; where that is too
much, rows must be shuffled to the partitions that they go to, as `write_exactly_once` does it. No Spark.
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
"""What a task that sends as it goes has in memory."""

Target = tuple[str, int]


def needed(names: Sequence[str], options: SinkOptions) -> list[str]:
    """Which of a query's columns have to be staged. Raises SinkError: orderBy names one that there is not."""
    for name in options.order_by:
        if name not in names:
            raise SinkError(f"orderBy names {name}, which is no column; there are {', '.join(names)}")
    return [name for name in names if name in options.order_by or name in COLUMNS]


def write_staged(
    options: SinkOptions, transactional_id: str, batch_id: int, staged: Iterable[Staged], *, query: str | None = None
) -> SinkReport:
    """Writes the rows of all tasks in one transaction, unless this micro-batch of the query is committed. `staged` is
    in the order of the DataFrame's partitions, which the rows keep but for orderBy. Raises SinkError."""
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
    """Writes rows as they come, in their order, and tells how many: at least once, for whoever does it again writes
    them again. Raises SinkError."""
    now_ms, records = time.time_ns() // 1_000_000, 0
    counts: dict[str, int] = {}
    with SinkTransaction(options, "") as brokers:  # which begins none
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
    """The topics that rows go to. Raises SinkError: a row has none."""
    if topic is not None:
        return {topic}
    found = {name for batch in batches for name in batch.column("topic").unique().to_pylist()}
    if None in found:
        raise SinkError("a row has no topic: neither the option topic nor its column topic says where it goes")
    return found


def _by_partition(
    batches: Sequence[pa.RecordBatch], options: SinkOptions, counts: Mapping[str, int], now_ms: int
) -> dict[Target, pa.Table]:
    """The rows of each partition that is written to: by orderBy, and in the order of the batches. Raises SinkError."""
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
    """Sends what goes to each partition, one after the other. Raises SinkError."""
    parts = sorted(targets.items(), key=itemgetter(0))
    with TaskSender(options, grant) as sender:
        return tuple(sender.send(target, iter(rows.to_batches())) for target, rows in parts)
