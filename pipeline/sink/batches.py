"""Splits rows into batches and encodes them.

Owns where a batch ends: before the row that would exceed the limit. That depends on the rows and their order alone, not
on how they are grouped, so a retried task writes the very same batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from ...protocol.limits import INT32_MAX
from ..readers.columnar.encoding import EncodeOptions, encode
from .errors import SinkError
from .rows import content

# pyarrow creates these functions at import, so type checkers do not see them.
pc: Any = _compute

RECORD_BYTES = 36
"""The most that a record takes besides key, value and headers."""

HEADER_BYTES = 10
"""The most that a header takes besides its key and value."""

MOST_RECORDS = INT32_MAX
"""Sequences have 31 bits, and must be unique within a micro-batch and partition."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows. `first` is the sequence of the first row, `content_bytes` the size of keys, values and headers, and
    `size_bytes` an upper bound of the uncompressed size of the records."""

    rows: tuple[pa.RecordBatch, ...]
    first: int
    records: int
    content_bytes: int
    size_bytes: int

    @property
    def last(self) -> int:
        """The sequence of the last row."""
        return self.first + self.records - 1


def cut(rows: Iterator[pa.RecordBatch], batch_bytes: int) -> Iterator[Batch]:
    """Splits the rows into batches of at most `batch_bytes`, or of a single row. Raises SinkError."""
    first = count = bytes_ = open_bytes = 0
    pieces: list[pa.RecordBatch] = []
    for given in rows:
        some = content(given)
        inner = _sizes(some)
        totals = np.cumsum(inner + RECORD_BYTES)
        contents = np.cumsum(inner)
        position, size = 0, some.num_rows
        while position < size:
            before = int(totals[position - 1]) if position else 0
            stop = int(np.searchsorted(totals, before + batch_bytes - open_bytes, "right"))
            if stop == position and not count:
                stop = position + 1
            if stop > position:
                pieces.append(some.slice(position, stop - position))
                count += stop - position
                open_bytes += int(totals[stop - 1]) - before
                bytes_ += int(contents[stop - 1]) - (int(contents[position - 1]) if position else 0)
            if stop < size:
                yield Batch(tuple(pieces), first, count, bytes_, open_bytes)
                first += count
                pieces, count, bytes_, open_bytes = [], 0, 0, 0
            if first + count > MOST_RECORDS:
                raise SinkError(f"a micro-batch has more than {MOST_RECORDS} rows for one partition")
            position = stop
    if count:
        yield Batch(tuple(pieces), first, count, bytes_, open_bytes)


def _sizes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the size of each row's key, value and headers."""
    sizes = _lengths(rows.column("key")) + _lengths(rows.column("value"))
    headers = rows.column("headers")
    if headers.null_count < len(headers):
        flat: Any = headers.flatten()
        keys, values = flat.flatten()
        each = _lengths(keys) + _lengths(values) + HEADER_BYTES
        parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        sizes = sizes + np.bincount(parents, each, minlength=len(headers)).astype(np.int64)
    return sizes


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)


def encoded(batch: Batch, options: EncodeOptions) -> bytes | bytearray:
    """Returns the bytes of a batch as a producer sends it, with offsets from 0 on. Raises SinkError."""
    rows = batch.rows[0] if len(batch.rows) == 1 else pa.concat_batches(list(batch.rows))
    columns = [pa.array(np.arange(batch.records, dtype=np.int64)), *rows.columns]
    numbered = pa.RecordBatch.from_arrays(columns, names=["offset", *rows.schema.names])
    try:
        (data,) = encode(numbered, options)
    except ValueError as error:
        raise SinkError(f"these rows cannot be written: {error}") from error
    return data
