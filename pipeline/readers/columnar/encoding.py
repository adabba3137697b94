"""Converts Arrow record batches to v2 record batches.

Owns the split of rows into batches and the layout of their bytes. The records of several megabytes are written
together, with Arrow joins over varints that numpy builds. Raises InvalidRecords for values that the format cannot hold,
UnsupportedCodec, and ValueError for columns of another type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute
from crc32c import crc32c

from ....protocol.limits import INT32_MAX
from ....protocol.records import batch
from ....protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader
from ....protocol.records.compression import Codec
from ....protocol.records.errors import InvalidRecords, UnsupportedCodec
from ....protocol.records.layout import CRC_AT, CRC_FROM, PREFIX_BYTES
from .varints import Int64s, checked_difference, varint_bytes, zigzag_widths

# pyarrow creates these functions at import, so type checkers do not see them.
pc: Any = _compute

BATCH_BYTES = 256 * 1024
_GROUP_BYTES = 32 * 1024 * 1024  # written at once
_MAX_RECORD_BYTES = 2**30
_RECORD_OVERHEAD_BYTES = 40  # upper bound of a record's size besides key, value and headers
_HEADER_OVERHEAD_BYTES = 10
_EMPTY = pa.scalar(b"", pa.binary())

_V2_HEADER_BYTES_IN_LENGTH = batch.HEADER_BYTES - PREFIX_BYTES
HEAD = np.dtype(
    [
        ("base_offset", ">i8"),
        ("size", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The header of a v2 batch."""


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """The options of encoding. `batch_bytes` is the approximate uncompressed size of a batch's records; a batch also
    ends before its offsets would span more than 32 bits. The producer fields apply to every batch; `base_sequence` is
    the sequence of the first record."""

    codec: int = 0
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = -1
    transactional: bool = False


class _Table(NamedTuple):
    """Rows ready for writing: nullable binary arrays with their sizes (-1 null), and serialised headers."""

    offsets: Int64s
    timestamps: Int64s
    keys: pa.Array
    key_sizes: Int64s
    values: pa.Array
    value_sizes: Int64s
    headers: pa.Array | None
    header_sizes: Int64s

    def part(self, start: int, stop: int) -> _Table:
        parts: list[Any] = [part if part is None else part[start:stop] for part in self]
        return _Table(*parts)


def encode(rows: pa.RecordBatch, options: EncodeOptions | None = None) -> Iterator[bytes | bytearray]:
    """Yields batches of these rows, in order.

    `rows` has the column `offset` (ascending) and optionally `timestamp`, `key`, `value` and `headers`, with the types
    of `columns.SCHEMA`; other columns are ignored. Raises InvalidRecords, UnsupportedCodec, ValueError.
    """
    options = options or EncodeOptions()
    if options.codec not in tuple(Codec):
        raise UnsupportedCodec(f"codec {options.codec}")
    if options.batch_bytes < 1:
        raise ValueError(f"batches of {options.batch_bytes} bytes")
    try:
        table = _table(rows)
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(f"these columns cannot be written: {error}") from None
    return _encode(table, options)


def _encode(table: _Table, options: EncodeOptions) -> Iterator[bytes | bytearray]:
    sequence = options.base_sequence
    for start, bounds in _groups(table, options.batch_bytes):
        part = table.part(start, start + bounds[-1])
        data, ends = bytes_of(joined(*_record_parts(part, bounds)[0]))
        for first, stop in pairwise(bounds):
            header = _header(part, first, stop, sequence, options)
            if sequence >= 0:
                sequence = sequence + header.last_offset_delta + 1 & INT32_MAX
            payload = data[int(ends[first]) : int(ends[stop])]
            yield batch.with_payload(header, payload, options.codec, options.level)


# --- columns to table


def _table(rows: pa.RecordBatch) -> _Table:
    count = rows.num_rows
    names = rows.schema.names
    offsets = _integers(rows.column("offset"), "offset")
    if count and (offsets[0] < 0 or (np.diff(offsets) <= 0).any()):
        raise InvalidRecords("offsets must be ascending and not negative")
    timed = "timestamp" in names
    timestamps = _integers(rows.column("timestamp"), "timestamp") if timed else np.full(count, -1, np.int64)
    keys, key_sizes = _binary(rows.column("key") if "key" in names else pa.nulls(count, pa.binary()))
    values, value_sizes = _binary(rows.column("value") if "value" in names else pa.nulls(count, pa.binary()))
    headers, header_sizes = None, np.ones(count, np.int64)
    if "headers" in names:
        headers, header_sizes = _headers(rows.column("headers"), header_sizes)
    return _Table(offsets, timestamps, keys, key_sizes, values, value_sizes, headers, header_sizes)


def _integers(column: Any, name: str) -> Int64s:
    if column.null_count:
        raise InvalidRecords(f"a record has no {name}")
    if not pa.types.is_integer(column.type):
        raise ValueError(f"{name} is of type {column.type}: it must be an integer")
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _binary(column: Any) -> tuple[pa.Array, Int64s]:
    """Returns the column as nullable binary with 32-bit offsets, and the size of each element, -1 for null."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    sizes = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return column, sizes


def _headers(column: Any, none: Int64s) -> tuple[pa.Array | None, Int64s]:
    """Returns each record's serialised headers, with their count, and their sizes."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not counts.any():
        return None, none
    flat: Any = column.flatten()
    if not pa.types.is_struct(flat.type):
        raise ValueError(f"headers is of type {column.type}: it must be a list of structs")
    children = dict(zip([field.name for field in flat.type], flat.flatten(), strict=True))
    keys, key_sizes = _binary(children["key"])
    values, value_sizes = _binary(children["value"])
    if keys.null_count:
        raise InvalidRecords("a header's key is null")
    total = int((np.maximum(value_sizes, 0) + key_sizes + _HEADER_OVERHEAD_BYTES).sum())
    if total > INT32_MAX - 10 * counts.size:
        raise InvalidRecords(f"headers of {total} bytes")
    written = joined(_varints(key_sizes), keys, _varints(value_sizes), values)
    _, bounds, data = written.buffers()
    # The headers of one record are adjacent: an array over their bytes with the records' bounds joins them.
    places = np.concatenate(([0], np.cumsum(counts)))
    of_records = np.frombuffer(bounds, np.int32)[: len(written) + 1][places]
    of_each = pa.Array.from_buffers(pa.binary(), counts.size, [None, pa.py_buffer(of_records), data])
    return _binary(joined(_varints(counts), of_each))


# --- splitting


def _groups(table: _Table, batch_bytes: int) -> Iterator[tuple[int, list[int]]]:
    """Yields (first row, bounds of its batches relative to it) for rows that are written at once."""
    sizes = np.maximum(table.key_sizes, 0) + np.maximum(table.value_sizes, 0) + table.header_sizes
    sizes = sizes + _RECORD_OVERHEAD_BYTES
    if sizes.size and sizes.max() > _MAX_RECORD_BYTES:
        raise InvalidRecords(f"a record of {sizes.max()} bytes")
    totals = np.cumsum(sizes)
    count = sizes.size
    start, before = 0, 0
    bounds = [0]
    while start + bounds[-1] < count:
        first = start + bounds[-1]
        done = int(totals[first - 1]) if first else 0
        stop = int(np.searchsorted(totals, done + batch_bytes, "right"))
        stop = min(stop, int(np.searchsorted(table.offsets, int(table.offsets[first]) + INT32_MAX, "right")))
        stop = max(stop, first + 1)
        if len(bounds) > 1 and int(totals[stop - 1]) - before > _GROUP_BYTES:
            yield start, bounds
            start, before, bounds = first, done, [0]
        bounds.append(stop - start)
    if len(bounds) > 1:
        yield start, bounds


# --- batches


def _header(part: _Table, first: int, stop: int, sequence: int, options: EncodeOptions) -> BatchHeader:
    timestamps = part.timestamps[first:stop]
    attributes = TRANSACTIONAL_BIT if options.transactional else 0
    base_offset = int(part.offsets[first])
    return BatchHeader(
        base_offset,
        _V2_HEADER_BYTES_IN_LENGTH,
        options.leader_epoch,
        batch.MAGIC,
        0,
        attributes,
        int(part.offsets[stop - 1]) - base_offset,
        int(timestamps[0]),
        max(int(timestamps.max()), -1),
        options.producer_id,
        options.producer_epoch,
        sequence,
        stop - first,
    )


def payloads(rows: pa.RecordBatch, bounds: Sequence[int]) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Returns the uncompressed records of batches of these rows, concatenated, and the end of each record, preceded by
    0. `bounds` are the first rows of the batches and the end of the last one. Raises the errors of `encode`."""
    return bytes_of(joined(*_record_parts(_table(rows), bounds)[0]))


def singles(rows: pa.RecordBatch, attributes: int) -> tuple[memoryview, Int64s]:
    """Returns each row as a batch of one record, concatenated, without codec and producer, and the end of each,
    preceded by 0. Raises the errors of `encode`."""
    table, count = _table(rows), rows.num_rows
    records, sizes = _record_parts(table, range(count + 1))
    head = np.zeros(count, HEAD)
    head["base_offset"], head["magic"], head["attributes"] = table.offsets, batch.MAGIC, attributes
    head["size"] = sizes + _V2_HEADER_BYTES_IN_LENGTH
    head["base_timestamp"] = head["max_timestamp"] = table.timestamps
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        head[name] = -1
    head["record_count"] = 1
    written, ends = bytes_of(joined(_fixed(head), *records))
    places = ends.tolist()
    crcs = np.array([crc32c(written[a + CRC_FROM : b]) for a, b in pairwise(places)], ">u4")
    at = ends[:-1, None] + np.arange(CRC_AT, CRC_AT + 4)
    if written.readonly:
        written = memoryview(bytearray(written))
    np.frombuffer(written, np.uint8)[at] = crcs.view(np.uint8).reshape(-1, 4)
    return written, ends.astype(np.int64)


def _record_parts(part: _Table, bounds: Sequence[int]) -> tuple[list[Any], Int64s]:
    """Returns the parts that the serialised records of these batches are joined from, one element each, and the size of
    each record."""
    firsts = np.array(bounds[:-1], np.int64)
    counts = np.diff(np.array(bounds, np.int64))
    offset_deltas = part.offsets - np.repeat(part.offsets[firsts], counts)
    bases = np.repeat(part.timestamps[firsts], counts)
    timestamp_deltas = checked_difference(part.timestamps, bases, "a timestamp's delta")
    # Length, attributes (0, whose varint is 0), two deltas, the key's length.
    head = np.zeros((offset_deltas.size, 5), np.int64)
    head[:, 2], head[:, 3], head[:, 4] = timestamp_deltas, offset_deltas, part.key_sizes
    codes, widths = zigzag_widths(head)
    value_codes, value_widths = zigzag_widths(part.value_sizes[:, None])
    lengths = widths[:, 1:].sum(axis=1) + value_widths[:, 0] + part.header_sizes
    lengths += np.maximum(part.key_sizes, 0) + np.maximum(part.value_sizes, 0)
    codes[:, 0], widths[:, 0] = zigzag_widths(lengths)
    headers = pa.scalar(b"\x00", pa.binary()) if part.headers is None else part.headers
    values = _varint_array(value_codes, value_widths)
    return [_varint_array(codes, widths), part.keys, values, part.values, headers], lengths + widths[:, 0]


def _varints(values: Int64s) -> pa.Array:
    """Returns a binary array of these values as varints."""
    return _varint_array(*zigzag_widths(values[:, None]))


def _varint_array(codes: npt.NDArray[np.uint64], widths: Int64s) -> pa.Array:
    """Returns a binary array with one element per row: its zigzag forms as varints, of these sizes."""
    bounds = np.zeros(codes.shape[0] + 1, np.int32)
    np.cumsum(widths.sum(axis=1), out=bounds[1:])
    data = varint_bytes(codes, widths)
    return pa.Array.from_buffers(pa.binary(), codes.shape[0], [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def joined(*parts: Any) -> pa.Array:
    """Concatenates arrays element by element; a null counts as empty."""
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement=b"")


def bytes_of(parts: pa.Array) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Returns the bytes of all elements, and the end of each, preceded by 0."""
    _, bounds, data = parts.buffers()
    ends = np.frombuffer(bounds, np.int32)[parts.offset : parts.offset + len(parts) + 1]
    return memoryview(data) if data is not None else memoryview(b""), ends


def _fixed(values: npt.NDArray[Any]) -> pa.Array:
    """Returns a binary array of fixed-size elements from the bytes of a numpy array."""
    bounds = np.arange(values.size + 1, dtype=np.int32) * np.int32(values.dtype.itemsize)
    return pa.Array.from_buffers(pa.binary(), values.size, [None, pa.py_buffer(bounds), pa.py_buffer(values.tobytes())])
