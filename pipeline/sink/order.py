"""The order in which rows are written: by the partitions of the DataFrame, and by row within each.

Owns the place of a row, one number for its target partition and its rank there, and the comparison of repeated
computations of a partition of the DataFrame. A shuffle delivers rows in any order, so a row, or the first of those that
are packed together, gets its place before the shuffle, and afterwards these are sorted by it: every attempt of a task
sorts the same rows by the same places.

Places are equal only if the rows are. Spark computes a partition of the DataFrame again when an executor is lost with
its shuffle files; if the user's query has a shuffle, the rows may then have another order. So every computation reports
a digest of its rows, and a micro-batch with two different digests for a partition is not committed. No Spark.
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

PLACE_BITS = 63
ROW_BITS = 31
"""For the number of a row in its partition of the DataFrame."""

MOST_TARGETS = 1 << 20
"""With this many target partitions a DataFrame may still have 4096 partitions."""


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
    """The result of one computation of a partition of the DataFrame."""

    rows: int
    checksum: int


class Digest:
    """A running digest of a partition's rows, by which two computations are compared."""

    def __init__(self) -> None:
        self.rows = 0
        self._checksum = 0

    def add(self, rows: int, data: bytes | pa.Buffer) -> None:
        """Adds the next rows, as they enter the shuffle. Spark splits the same rows into the same record batches."""
        self.rows += rows
        self._checksum = zlib.crc32(data, self._checksum)

    def computed(self) -> Computed:
        """Returns the digest of the rows so far."""
        return Computed(self.rows, self._checksum)


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
