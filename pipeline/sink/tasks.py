"""The tasks of an exactly-once write: they bring the rows to the tasks of their target partitions, and send them.

Owns the place of a row, one number for its target partition and its rank there: by the partitions of the DataFrame, and
by row within each. A shuffle delivers rows in any order, so a row, or the first of those that are packed together, gets
its place before the shuffle, and afterwards these are sorted by it: every attempt of a task sorts the same rows by the
same places. Places are equal only if the rows are.

Without orderBy the rows for a target pass the shuffle packed as one binary value: a record batch as Arrow's IPC format
writes it, without its schema. Spark converts each row that passes a shuffle, copies it and compares it with others,
though nothing in it is needed on the way. With orderBy they pass one by one, since Spark sorts them by their columns.

Spark computes a partition of the DataFrame again when an executor is lost with its shuffle files; if the user's query
has a shuffle, the rows may then have another order. So every computation reports a digest of its rows, and a
micro-batch with two different digests for a partition is not committed.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, SparkContext, TaskContext

from .errors import SinkError
from .options import SinkOptions
from .rows import SENT, Part, Targets, content, edges, gathered, split
from .task_writer import TaskSender
from .transaction import Grant

CHUNK_BYTES = 8 << 20
"""A value of the shuffle is in the heap of a JVM several times; on the other hand, many targets share these bytes."""

PLACE_BITS = 63
ROW_BITS = 31
"""For the number of a row in its partition of the DataFrame."""

MOST_TARGETS = 1 << 20
"""With this many target partitions a DataFrame may still have 4096 partitions."""

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


@dataclass(frozen=True, slots=True)
class Places:
    """The places of rows for `targets` partitions. Ascending places are the order of the rows: by target, by partition
    of the DataFrame, by row."""

    targets: int

    @property
    def target_shift(self) -> int:
        """The number of bits in a place after those of the target."""
        return PLACE_BITS - (self.targets - 1).bit_length()

    def of(self, targets: npt.NDArray[Any], partition: int, first: int) -> npt.NDArray[np.int64]:
        """Returns the places of rows in order: row `first` of a partition of the DataFrame and the following ones.
        Raises SinkError for numbers that are too large."""
        most_partitions = 1 << self.target_shift - ROW_BITS
        if partition >= most_partitions:
            raise SinkError(
                f"the DataFrame has more than {most_partitions} partitions, the maximum for a write to"
                f" {self.targets} partitions: coalesce or repartition it"
            )
        if first + len(targets) > 1 << ROW_BITS:
            raise SinkError(
                f"partition {partition} of the DataFrame has more than {1 << ROW_BITS} rows, the maximum for a"
                " write: repartition it"
            )
        rows = np.arange(first, first + len(targets), dtype=np.int64)
        return targets.astype(np.int64) << self.target_shift | (partition << ROW_BITS) | rows

    def target(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the targets of places."""
        return places >> self.target_shift


class Computed(NamedTuple):
    """A digest of the rows of a partition of the DataFrame, by which two computations of it are compared."""

    rows: int = 0
    checksum: int = 0

    def plus(self, rows: int, data: bytes | pa.Buffer) -> Computed:
        """Returns the digest with the next rows, as they enter the shuffle. Spark splits the same rows into the same
        record batches."""
        return Computed(self.rows + rows, zlib.crc32(data, self.checksum))


def check_computed(found: Mapping[int, Iterable[Computed]], records: int) -> None:
    """Raises SinkError unless all computations of each partition of the DataFrame are equal and have `records` rows in
    total, the number written."""
    for partition, computed in sorted(found.items()):
        if len(set(computed)) > 1:
            raise SinkError(
                f"partition {partition} of the DataFrame was computed again and had other rows or another order: the"
                " micro-batch has to be written from scratch"
            )
    rows = sum(one.rows for computed in found.values() for one in set(computed))
    if rows != records:
        raise SinkError(
            f"{records} rows were written, but the DataFrame had {rows}: the micro-batch has to be written from scratch"
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


def place_task(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a partition of the DataFrame as they enter the shuffle, and reports their digest."""
    context = TaskContext.get()
    assert context is not None
    partition = context.partitionId()
    computed = yield from (placed_rows if work.order else packed_rows)(work, partition, batches)
    work.computations.add({work.write: {partition: {computed}}})


def packed_rows(
    work: Work, partition: int, batches: Iterable[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, Computed]:
    """Yields the rows packed by target, each with the place of the first of them. Returns their digest. Raises
    SinkError."""
    digest = Computed()
    for some in gathered(batches, work.chunk_bytes):
        numbers = [work.targets.numbers(batch, work.options.topic) for batch in some]
        parts = list(split([_written(work, batch) for batch in some], numbers))
        targets = np.array([part.target for part in parts], np.int32)
        places = pa.array(work.places.of(targets, partition, digest.rows))
        packed = [pack(part.rows) for part in parts]
        for part, data in zip(parts, packed, strict=True):
            digest = digest.plus(part.rows.num_rows, data)
        yield pa.RecordBatch.from_arrays([places, pa.array(packed, pa.binary())], names=[PLACE, ROWS])
    return digest


def placed_rows(
    work: Work, partition: int, batches: Iterable[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, Computed]:
    """Yields the rows with their places and the columns to be written. Returns their digest. Raises SinkError."""
    digest = Computed()
    for batch in batches:
        numbers = work.targets.numbers(batch, work.options.topic)
        places = pa.array(work.places.of(numbers, partition, digest.rows))
        columns = [places, *(batch.column(name) for name in work.order), *_written(work, batch).columns]
        placed = pa.RecordBatch.from_arrays(columns, names=[PLACE, *work.order, *work.schema.names])
        digest = digest.plus(placed.num_rows, placed.serialize())
        yield placed
    return digest


def pack(rows: pa.RecordBatch) -> bytes:
    """Returns the rows as one value."""
    return rows.serialize().to_pybytes()


def unpack(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of values of one target as one record batch, in the order of the values."""
    # A copy of its own for each: within the column a value may begin at any byte, and Arrow computes with aligned ones.
    parts = [pa.ipc.read_record_batch(pa.py_buffer(value.as_py()), schema) for value in values]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


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
