"""Rows on their way through a shuffle: the rows of one target partition as one value.

Spark converts each row that passes a shuffle, copies it and compares it with others, though nothing in it is needed on
the way. So a task gathers its rows up to a size, splits them by target, and each part passes as one binary value: a
record batch as Arrow's IPC format writes it, without its schema. No Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Packed", "edges", "pack", "unpack"]


class Packed(NamedTuple):
    """The rows of some tasks' input for one target, in their order; `target` is its number."""

    target: int
    rows: int
    data: bytes


def pack(batches: Iterable[tuple[npt.NDArray[np.int32], pa.RecordBatch]], most_bytes: int) -> Iterator[list[Packed]]:
    """Splits rows by their targets, the first of each pair; a list has the rows of about `most_bytes`."""
    gathered: list[tuple[npt.NDArray[np.int32], pa.RecordBatch]] = []
    size = 0
    for targets, rows in batches:
        if gathered and size + rows.nbytes > most_bytes:
            yield list(_split(gathered))
            gathered, size = [], 0
        if rows.num_rows:
            gathered.append((targets, rows))
            size += rows.nbytes
    if gathered:
        yield list(_split(gathered))


def _split(gathered: list[tuple[npt.NDArray[np.int32], pa.RecordBatch]]) -> Iterator[Packed]:
    targets = np.concatenate([some for some, _ in gathered])
    rows = pa.concat_batches([some for _, some in gathered])
    if (targets != targets[0]).any():
        order = np.argsort(targets, kind="stable")
        targets, rows = targets[order], rows.take(pa.array(order))
    for start, stop in pairwise(edges(targets)):
        yield Packed(int(targets[start]), stop - start, rows.slice(start, stop - start).serialize().to_pybytes())


def edges(targets: npt.NDArray[np.integer]) -> list[int]:
    """Returns where each run of equal numbers begins, and the end of the last."""
    return [0, *(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]


def unpack(values: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of binary values of one target as one record batch, in the order of the values."""
    # A copy of its own for each: within the column a value may begin at any byte, and Arrow computes with aligned ones.
    parts = [pa.ipc.read_record_batch(pa.py_buffer(value.as_py()), schema) for value in values]
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
