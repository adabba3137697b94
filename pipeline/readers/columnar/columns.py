"""The columns of a chunk of records: their names and types, and building the selected ones.

Owns the meaning of the columns. Offsets are absolute, timestamps epoch milliseconds (-1: none, as in all of v0). For
the fields that v0 and v1 lack, producer and leader epoch, the columns have -1, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ....protocol.limits import INT32_MAX
from ....protocol.records.batch import BatchHeader
from ....protocol.records.formats import NEWEST_MAGIC
from .rows import HeaderSpans, Rows, Spans

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(HEADER), nullable=False),
    ]
)
"""The columns of a record. `timestamp_type`: -1 none (v0), 0 CreateTime, 1 LogAppendTime. Invalid UTF-8 in a header's
key becomes U+FFFD, as in Java."""

METADATA = pa.schema(
    [
        pa.field("magic", pa.int8(), nullable=False),
        pa.field("codec", pa.int8(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("sequence", pa.int32(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("batch_offset", pa.int64(), nullable=False),
        pa.field("transactional", pa.bool_(), nullable=False),
        pa.field("control", pa.bool_(), nullable=False),
        pa.field("crc_ok", pa.bool_(), nullable=False),
    ]
)
"""Columns from the header of a record's batch. `batch_offset` is the offset field of its batch or message: the first
offset of a v2 batch, the last one of a v0/v1 wrapper."""

SIZES = pa.schema([pa.field("key_size", pa.int32()), pa.field("value_size", pa.int32())])
"""The bytes of keys and values, null for null. Without the columns themselves no key or value is copied."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
ALL_COLUMNS: tuple[str, ...] = (*COLUMNS, *METADATA.names, *SIZES.names)

_FIELDS: dict[str, pa.Field] = {field.name: field for schema in (SCHEMA, METADATA, SIZES) for field in schema}

# Columns with one value for all records of an entry.
PER_ENTRY: dict[str, Callable[[BatchHeader], int | bool]] = {
    "timestamp_type": lambda header: int(header.log_append_time) if header.magic else -1,
    "magic": lambda header: header.magic,
    "codec": lambda header: header.codec,
    "producer_id": lambda header: header.producer_id,
    "producer_epoch": lambda header: header.producer_epoch,
    "leader_epoch": lambda header: header.partition_leader_epoch,
    "batch_offset": lambda header: header.base_offset,
    "transactional": lambda header: header.is_transactional,
    "control": lambda header: header.is_control,
}


def schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Returns the schema of these columns, in this order. Raises ValueError for an unknown or repeated name."""
    unknown = [name for name in columns if name not in _FIELDS]
    if unknown or len(set(columns)) != len(columns):
        raise ValueError(f"columns {', '.join(columns)}: choose each once from {', '.join(ALL_COLUMNS)}")
    return pa.schema([_FIELDS[name] for name in columns])


def record_batch(rows: Rows, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
    """Returns these columns of these rows; without columns a record batch with the number of rows. Raises ValueError as
    `schema`."""
    wanted = schema(columns)
    return rows_of([_column(rows, name) for name in columns], wanted, rows.offsets.size)


def rows_of(arrays: Sequence[pa.Array], kinds: pa.Schema, count: int) -> pa.RecordBatch:
    """Returns a record batch of `count` rows, even without columns."""
    if not arrays:
        empty: Any = pa.Array.from_buffers(pa.struct([]), count, [None])
        return pa.RecordBatch.from_struct_array(empty)
    return pa.RecordBatch.from_arrays(list(arrays), schema=kinds)


def _column(rows: Rows, name: str) -> pa.Array:
    if name == "key":
        return pieces(rows.payload, rows.keys)
    if name == "value":
        return pieces(rows.payload, rows.values)
    if name in SIZES.names:
        sizes = (rows.keys if name == "key_size" else rows.values).sizes
        nulls = sizes < 0
        return pa.array(sizes.astype(np.int32), mask=nulls if nulls.any() else None)
    if name == "offset":
        return pa.array(rows.offsets)
    if name == "timestamp":
        return pa.array(rows.timestamps)
    if name == "headers":
        return _headers(rows.payload, rows.headers, rows.offsets.size)
    if name == "sequence":
        bases = np.repeat(np.array([header.base_sequence for header in rows.entries], np.int64), rows.counts)
        # Sequences wrap from 2^31 - 1 to 0.
        numbered = bases + rows.offset_deltas & INT32_MAX
        return pa.array(np.where(bases < 0, -1, numbered).astype(np.int32))
    found = rows.crc_ok if name == "crc_ok" else [PER_ENTRY[name](header) for header in rows.entries]
    kind = _FIELDS[name].type
    if name == "batch_offset":
        plain = [header.magic < NEWEST_MAGIC and not header.codec for header in rows.entries]
        own = np.repeat(np.array(plain, np.bool_), rows.counts)
        return pa.array(np.where(own, rows.offsets, np.repeat(np.array(found, np.int64), rows.counts)))
    return pa.array(np.repeat(np.array(found, kind.to_pandas_dtype()), rows.counts), kind)


def pieces(payload: bytes, spans: Spans) -> pa.Array:
    """Returns the spans as a nullable binary array: every second element of an array over the payload is a span, and
    taking these elements copies in C++."""
    count = len(spans.starts)
    ends = spans.starts + np.maximum(spans.sizes, 0)
    bounds = np.zeros(2 * count + 1, np.int32)
    bounds[0 : 2 * count : 2] = spans.starts
    bounds[1 : 2 * count : 2] = ends
    if count:
        bounds[-1] = ends[-1]
    between = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(payload)])
    nulls = spans.sizes < 0
    places = np.arange(0, 2 * count, 2, dtype=np.int32)
    return between.take(pa.array(places, mask=nulls if nulls.any() else None))


def _headers(payload: bytes, found: HeaderSpans | None, count: int) -> pa.Array:
    kind = _FIELDS["headers"].type
    bounds = np.zeros(count + 1, np.int32)
    if found is None:
        values: pa.Array = pa.array([], HEADER)
    else:
        np.cumsum(found.counts, out=bounds[1:])
        values = pa.StructArray.from_arrays(
            [_text(pieces(payload, found.keys)), pieces(payload, found.values)], fields=list(HEADER)
        )
    return pa.ListArray.from_arrays(pa.array(bounds), values, type=kind)


def _text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
