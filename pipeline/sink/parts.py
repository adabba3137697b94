"""Rows by target partition: gathered, split, and packed for a shuffle.

Spark converts each row that passes a shuffle, copies it and compares it with others, though nothing in it is needed on
the way. So a task gathers its rows up to a size, splits them by target, and each part passes as one binary value: a
record batch as Arrow's IPC format writes it, without its schema. No Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Part(NamedTuple):
    """Rows for one target, by its number, in their order."""

    target: int
    rows: pa.RecordBatch


def gathered(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Joins record batches to lists of at most `most_bytes`, and cuts larger ones into about that; leaves out empty
    ones."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for piece in _cut(batch, most_bytes):
            if some and size + piece.nbytes > most_bytes:
                yield some
                some, size = [], 0
            some.append(piece)
            size += piece.nbytes
    if some:
        yield some


def _cut(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cuts a record batch into pieces of equal numbers of rows: as one value of a shuffle it would be several times in
    the heap of a JVM."""
    rows = batch.num_rows
    each = rows if batch.nbytes <= most_bytes else max(1, rows * most_bytes // batch.nbytes)
    for first in range(0, rows, max(1, each)):
        yield batch.slice(first, each)


def split(batches: Sequence[pa.RecordBatch], targets: Sequence[npt.NDArray[np.int32]]) -> Iterator[Part]:
    """Yields the rows of each target, in the order of the targets' numbers; `targets` has those of each batch's
    rows."""
    rows, numbers = pa.concat_batches(list(batches)), np.concatenate(list(targets))
    if (numbers != numbers[0]).any():
        order = np.argsort(numbers, kind="stable")
        numbers, rows = numbers[order], rows.take(pa.array(order))
    for start, stop in pairwise(edges(numbers)):
        yield Part(int(numbers[start]), rows.slice(start, stop - start))


def edges(numbers: npt.NDArray[np.integer]) -> list[int]:
    """Returns where each run of equal numbers begins, and the end of the last."""
    return [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]


def pack(rows: pa.RecordBatch) -> bytes:
    """Returns the rows as one value."""
    return rows.serialize().to_pybytes()


def unpack(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of values of one target as one record batch, in the order of the values."""
    # A copy of its own for each: within the column a value may begin at any byte, and Arrow computes with aligned ones.
    parts = [pa.ipc.read_record_batch(pa.py_buffer(value.as_py()), schema) for value in values]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
