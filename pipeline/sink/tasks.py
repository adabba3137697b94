"""The tasks of an exactly-once write: they bring the rows to the tasks of their target partitions, and send them.

Without orderBy the rows pass the shuffle packed (see `parts`), and are sorted by place as they are. With orderBy
they pass it one by one, since Spark sorts them by their columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

from .errors import SinkError
from .options import SinkOptions
from .order import Computed, Digest, Places
from .parts import Part, edges, gathered, pack, split, unpack
from .rows import SENT, Targets, content
from .task_writer import TaskSender
from .transaction import Grant

CHUNK_BYTES = 8 << 20
"""A value of the shuffle is in the heap of a JVM several times; on the other hand, many targets share these bytes."""

ORDER, PLACE, ROWS = "order", "place", "rows"
RESULT = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("last_offset", pa.int64()),
    ]
)

Reports = dict[str, dict[int, set[Computed]]]
"""The digests of each partition of a DataFrame, by the write that it was computed for."""


class _ReportsParam(AccumulatorParam[Reports]):
    """Merges the reports of tasks at the driver."""

    def zero(self, value: Reports) -> Reports:
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        for write, partitions in value2.items():
            known = value1.setdefault(write, {})
            for partition, computed in partitions.items():
                known.setdefault(partition, set()).update(computed)
        return value1


class Computations:
    """The reports of completed tasks. Spark has received those of a stage before the next one begins. One accumulator
    serves all writes of a process, since PySpark never frees one."""

    _all: ClassVar[Accumulator[Reports] | None] = None

    @classmethod
    def of(cls, context: SparkContext) -> Accumulator[Reports]:
        """Returns the accumulator that tasks report to."""
        if cls._all is None:
            cls._all = context.accumulator({}, _ReportsParam())
        return cls._all

    @classmethod
    def taken(cls, write: str) -> dict[int, set[Computed]]:
        """Returns the reports of a write, and drops them."""
        return cls._all.value.pop(write, {}) if cls._all is not None else {}


@dataclass(frozen=True, slots=True)
class Work:
    """The parameters of the tasks. A row without a timestamp gets `now_ms`. `write` identifies this job in the reports
    to `computations`. `chunk_bytes` of rows are packed at a time."""

    options: SinkOptions
    grant: Grant
    targets: Targets
    tasks: int
    now_ms: int
    has_headers: bool
    write: str
    computations: Accumulator[Reports]
    chunk_bytes: int = CHUNK_BYTES

    @property
    def places(self) -> Places:
        """The numbers that rows are sorted by."""
        return Places(len(self.targets))

    @property
    def schema(self) -> pa.Schema:
        """The columns that are sent. Lists are the most expensive ones for Spark, so headers only if the rows have the
        column."""
        return pa.schema([field for field in SENT if field.name != "headers" or self.has_headers])

    @property
    def order(self) -> list[str]:
        """The columns of orderBy in the shuffle."""
        return [f"{ORDER}{number}" for number in range(len(self.options.order_by))]


# -- before the shuffle


def pack_task(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs the rows of a partition of the DataFrame by target, and reports their digest."""
    digest = Digest()
    yield from packed_rows(work, _partition(), batches, digest)
    _report(work, digest)


def place_task(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds the place of each row to a partition of the DataFrame, with the columns to be written, and reports its
    digest."""
    digest = Digest()
    for placed in placed_rows(work, _partition(), batches):
        digest.add(placed.num_rows, placed.serialize())
        yield placed
    _report(work, digest)


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def _report(work: Work, digest: Digest) -> None:
    work.computations.add({work.write: {_partition(): {digest.computed()}}})


def packed_rows(
    work: Work, partition: int, batches: Iterable[pa.RecordBatch], digest: Digest
) -> Iterator[pa.RecordBatch]:
    """Yields the packed rows of a partition of the DataFrame as they enter the shuffle, each with the place of the
    first of them. Raises SinkError."""
    first = 0
    for some in gathered(batches, work.chunk_bytes):
        numbers = [work.targets.numbers(batch, work.options.topic) for batch in some]
        parts = list(split([_written(work, batch) for batch in some], numbers))
        packed = [pack(part.rows) for part in parts]
        for part, data in zip(parts, packed, strict=True):
            digest.add(part.rows.num_rows, data)
        targets = np.array([part.target for part in parts], np.int32)
        places = pa.array(work.places.of(targets, partition, first))
        first += sum(part.rows.num_rows for part in parts)
        yield pa.RecordBatch.from_arrays([places, pa.array(packed, pa.binary())], names=[PLACE, ROWS])


def placed_rows(work: Work, partition: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition of the DataFrame as they enter the shuffle. Raises SinkError."""
    first = 0
    for batch in batches:
        numbers = work.targets.numbers(batch, work.options.topic)
        places = pa.array(work.places.of(numbers, partition, first))
        columns = [places, *(batch.column(name) for name in work.order), *_written(work, batch).columns]
        yield pa.RecordBatch.from_arrays(columns, names=[PLACE, *work.order, *work.schema.names])
        first += batch.num_rows


def _written(work: Work, batch: pa.RecordBatch) -> pa.RecordBatch:
    return content(batch, work.now_ms).select(work.schema.names)


# -- after it


def send_task(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sends the rows of some target partitions, one partition after the other, and yields the results."""
    seen = -1
    with TaskSender(work.options, work.grant) as sender:
        for target, found in groupby(slices(work, batches), key=itemgetter(0)):
            if target <= seen:
                raise SinkError("Spark did not sort the rows of a task: the micro-batch is not committed")
            seen = target
            sent = sender.send(work.targets[target], (one.rows for one in found))
            yield pa.RecordBatch.from_pylist([sent._asdict()], schema=RESULT)


def slices(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """Yields the rows of sorted batches, packed or not, by target."""
    for batch in batches:
        if not batch.num_rows:
            continue
        targets = work.places.target(batch.column(PLACE).to_numpy())
        for start, stop in pairwise(edges(targets)):
            some = batch.slice(start, stop - start)
            rows = some.select(work.schema.names) if work.order else unpack(some.column(ROWS), work.schema)
            yield Part(int(targets[start]), rows)
