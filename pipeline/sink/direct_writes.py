"""Writes the rows of a task at once, without a transaction: at least once, since a task may run again. No Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pyarrow as pa

from .errors import SinkError
from .options import SinkOptions
from .parts import gathered, split
from .rows import Targets, content
from .task_writer import TaskSender
from .transaction import SinkTransaction, idempotent_grant

CHUNK_BYTES = 32 << 20
"""The memory of a task."""


def send_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Writes rows and returns their number; those for one partition in their order. A second call writes the rows
    again. Raises SinkError."""
    now_ms, records = time.time_ns() // 1_000_000, 0
    counts: dict[str, int] = {}
    with SinkTransaction(options, "") as brokers:  # only for metadata: begins no transaction
        for chunk in gathered(batches, CHUNK_BYTES):
            counts |= brokers.partitions(_topics(chunk, options.topic) - counts.keys())
            targets = Targets(counts)
            written = [content(batch, now_ms) for batch in chunk]
            numbers = [targets.numbers(batch, options.topic) for batch in chunk]
            # Sequences begin at 0 with each grant.
            with TaskSender(options, idempotent_grant(options)) as sender:
                for target, rows in split(written, numbers):
                    records += sender.send(targets[target], iter([rows])).records
    return records


def _topics(batches: Iterable[pa.RecordBatch], topic: str | None) -> set[str]:
    """Returns the topics of the rows. Raises SinkError for a row without one."""
    if topic is not None:
        return {topic}
    found = {name for batch in batches for name in batch.column("topic").unique().to_pylist()}
    if None in found:
        raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
    return found
