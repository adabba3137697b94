"""The order in which rows are written: that of the DataFrame, by its partitions and the rows within each.

Owns the place of a row, one number that says which target partition it goes to and where it stands there, and the
comparison of a partition of the DataFrame that was computed more than once. A shuffle delivers rows in any order, so a
row gets its place before the shuffle, and rows are sorted by it afterwards: an attempt of a task that is tried again
sorts the same rows by the same places.

The places are the same only if the rows were. Spark computes a partition of the DataFrame again when an executor is
lost with the files of its shuffle; below a shuffle of the user's the rows may then come in another order. So every
computation reports a digest of its rows, and a micro-batch in which two of a partition differ is not committed. No
Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .errors import SinkError

__all__ = ["MOST_TARGETS", "Computed", "Digest", "Places", "check_computed"]

PLACE_BITS = 63
ROW_BITS = 31
"""Of a row's number in its partition of the DataFrame."""

MOST_TARGETS = 1 << 20
"""Of so many partitions to write to, a DataFrame may have 4096 of its own."""


@dataclass(frozen=True, slots=True)
class Places:
    """The numbers of rows that go to `targets` partitions. Ascending numbers are the order of the rows: by target, by
    partition of the DataFrame, by row."""

    targets: int

    @property
    def target_shift(self) -> int:
        """The bits of a place that follow those of the target."""
        return PLACE_BITS - (self.targets - 1).bit_length()

    def of(self, targets: npt.NDArray[Any], partition: int, first: int) -> npt.NDArray[np.int64]:
        """The places of rows in their order: row `first` of a partition of the DataFrame and the next ones. Raises
        SinkError for numbers that are too large."""
        most_partitions = 1 << self.target_shift - ROW_BITS
        if partition >= most_partitions:
            raise SinkError(
                f"the DataFrame has more than {most_partitions} partitions, which is the most for a write to"
                f" {self.targets} partitions: coalesce or repartition it"
            )
        if first + len(targets) > 1 << ROW_BITS:
            raise SinkError(
                f"partition {partition} of the DataFrame has more than {1 << ROW_BITS} rows, which is the most for a"
                " write: repartition it"
            )
        rows = np.arange(first, first + len(targets), dtype=np.int64)
        return targets.astype(np.int64) << self.target_shift | (partition << ROW_BITS) | rows

    def target(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The targets of places."""
        return places >> self.target_shift


class Computed(NamedTuple):
    """What a computation of a partition of the DataFrame came to."""

    rows: int
    checksum: int


class Digest:
    """Rows of a partition as they come, reduced to what two computations are compared by."""

    def __init__(self) -> None:
        self.rows = 0
        self._checksum = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Counts the next rows. Spark cuts the same rows into the same record batches."""
        self.rows += rows.num_rows
        self._checksum = zlib.crc32(rows.serialize(), self._checksum)

    def computed(self) -> Computed:
        """The rows so far."""
        return Computed(self.rows, self._checksum)


def check_computed(found: Mapping[int, Iterable[Computed]], records: int) -> None:
    """Raises SinkError unless all computations of each partition of the DataFrame came to the same, and their rows are
    those `records` that were written."""
    for partition, computed in sorted(found.items()):
        if len(set(computed)) > 1:
            raise SinkError(
                f"partition {partition} of the DataFrame was computed again and had other rows or another order: the"
                " micro-batch has to be written from scratch"
            )
    rows = sum(one.rows for computed in found.values() for one in set(computed))
    if rows != records:
        raise SinkError(
            f"{records} rows were written where the DataFrame had {rows}: the micro-batch has to be written from"
            " scratch"
        )
