"""The rows of Parquet files as records of one partition, in the order of their offsets.

Owns the conversion of columns (any string or binary is bytes; any timestamp is milliseconds, rounded down; null is -1,
Kafka's value for no timestamp), and the merge of files with overlapping offsets, such as those of two days. A file is
read some megabytes at a time. Raises ReadError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as _compute

from ...backend import ReadError
from ...objects.places import Place
from ...sink.errors import SinkError
from ...sink.rows import SENT, content
from .files import DAMAGE, mask_of, opened

pc: Any = _compute

READ_BYTES = 16 << 20
"""Bytes decoded at once of each file, approximately."""

OPEN_FILES = 32
"""With more overlapping files, each is read a row group at a time and closed in between: exports of many days then have
small row groups."""

SORTED_BYTES = 1 << 30
"""The limit for sorting rows in memory if their offsets do not ascend."""

_ROWS_AT_ONCE = 1 << 16
SCHEMA = SENT.append(pa.field("offset", pa.int64()))
"""The columns for `columnar.encode`."""


class FilePart(NamedTuple):
    """The rows to read from a file: of this topic and partition, if the file has others as well. `start` is the offset
    of the first row if the file has no offsets. `rises`: the offsets ascend from row to row. `place`: of an object."""

    path: str
    topic: str | None
    partition: int | None
    start: int | None
    rises: bool
    place: Place | None = None


def read(clusters: Sequence[Sequence[FilePart]]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of these files with the columns of `SCHEMA`. The clusters are consecutive; the files of one
    overlap. Offsets ascend: a repeated offset raises ReadError."""
    last = -1
    for cluster in clusters:
        for rows in _merged(cluster):
            offsets = rows.column("offset").to_numpy()
            if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                at = int(offsets[0] if offsets[0] <= last else offsets[1:][np.diff(offsets) <= 0][0])
                raise ReadError(f"offset {at} is repeated in {_names(cluster)}")
            last = int(offsets[-1])
            yield rows


def _names(cluster: Sequence[FilePart]) -> str:
    paths = sorted({part.path for part in cluster})
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _merged(cluster: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
    """Merges files that overlap by offset: up to the lowest last offset of the current batches, all rows are taken at
    once."""
    if len(cluster) == 1:
        yield from of_file(cluster[0])
        return
    many = len(cluster) > OPEN_FILES
    streams = [of_file(part, READ_BYTES // (len(cluster) if many else 1)) for part in cluster]
    heads: list[pa.RecordBatch | None] = [next(stream, None) for stream in streams]
    while any(head is not None for head in heads):
        bound = min(head.column("offset")[-1].as_py() for head in heads if head is not None)
        taken: list[pa.RecordBatch] = []
        for number, head in enumerate(heads):
            if head is None:
                continue
            count = int(np.searchsorted(head.column("offset").to_numpy(), bound, "right"))
            if count:
                taken.append(head[:count])
                heads[number] = head[count:] if count < head.num_rows else next(streams[number], None)
        yield taken[0] if len(taken) == 1 else _sorted(taken)


def _sorted(taken: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(taken).combine_chunks()
    found = table.take(pc.sort_indices(table, sort_keys=[("offset", "ascending")])).combine_chunks()
    return found.to_batches()[0]


def of_file(part: FilePart, at_once_bytes: int = READ_BYTES) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one file, in batches that are not empty."""
    try:
        if part.rises:
            yield from _streamed(part, at_once_bytes)
        else:
            yield from _in_memory(part)
    except (*DAMAGE, SinkError) as error:
        raise ReadError(f"{part.path} cannot be read: {' '.join(str(error).split())[:300]}") from error


def _in_memory(part: FilePart) -> Iterator[pa.RecordBatch]:
    taken, size = [], 0
    for rows in _streamed(part):
        taken.append(rows)
        size += rows.nbytes
        if size > SORTED_BYTES:
            raise ReadError(f"{part.path}: its offsets do not ascend, and it is too large to sort in memory")
    if taken:
        yield from pa.Table.from_batches([_sorted(taken)]).to_batches(max_chunksize=_ROWS_AT_ONCE)


def _streamed(part: FilePart, at_once_bytes: int = READ_BYTES) -> Iterator[pa.RecordBatch]:
    next_offset = part.start
    for rows in _decoded(part, at_once_bytes):
        filters = [name for name in ("topic", "partition") if name in rows.schema.names]
        if filters:
            rows = rows.filter(mask_of(rows, part.topic, part.partition))
        if not rows.num_rows:
            continue
        if next_offset is None:
            offsets = rows.column("offset").cast(pa.int64())
        else:
            offsets = pa.array(np.arange(next_offset, next_offset + rows.num_rows))
            next_offset += rows.num_rows
        yield pa.RecordBatch.from_arrays([*content(rows).columns, offsets], schema=SCHEMA)


def _decoded(part: FilePart, at_once_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields the needed columns, some rows of a row group at a time; their number depends on the group's row size."""
    group, groups = 0, 1
    while group < groups:
        with opened(part.path, part.place) as file:
            names = file.schema_arrow.names
            wanted = [name for name in names if name in SCHEMA.names]
            wanted += [name for name in ("topic", "partition") if getattr(part, name) is not None and name in names]
            groups = file.metadata.num_row_groups
            if not groups:
                return
            metadata = file.metadata.row_group(group)
            each = max(1, metadata.total_byte_size // max(metadata.num_rows, 1))
            at_once = max(1, min(_ROWS_AT_ONCE, at_once_bytes // each))
            found = file.iter_batches(batch_size=at_once, row_groups=[group], columns=wanted)
            kept: list[pa.RecordBatch] = []
            if at_once_bytes < READ_BYTES:  # one of many files: it is closed in between
                kept += found
            else:
                yield from found
        yield from kept
        group += 1
