"""The columns of the data sources: their names, their Arrow types, and rows built from decoded records.

Owns the rows of `ottla`, `ottla_log` and `ottla_batches`. The names and types of record columns are those of Spark's
Kafka source; the other columns follow its spelling. No Spark, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol.limits import INT64_MAX
from ...protocol.records.compression import Codec
from .columnar.columns import ALL_COLUMNS, rows_of

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def _fields(**kinds: pa.DataType) -> dict[str, pa.Field]:
    return {name: pa.field(name, kind) for name, kind in kinds.items()}


FIELDS: dict[str, pa.Field] = _fields(
    key=pa.binary(),
    value=pa.binary(),
    topic=pa.string(),
    partition=pa.int32(),
    offset=pa.int64(),
    timestamp=TIMESTAMP,
    timestampType=pa.int32(),
    headers=HEADERS,
    magic=pa.int32(),
    codec=pa.string(),
    producerId=pa.int64(),
    producerEpoch=pa.int16(),
    sequence=pa.int32(),
    leaderEpoch=pa.int32(),
    batchOffset=pa.int64(),
    transactional=pa.bool_(),
    control=pa.bool_(),
    crcOk=pa.bool_(),
    file=pa.string(),
    keySize=pa.int32(),
    valueSize=pa.int32(),
)
"""The columns of a record. `timestampType`: -1 none (v0), 0 CreateTime, 1 LogAppendTime. `headers` is null for a record
without headers. `batchOffset` is the offset field of the record's batch or message. Numbers that an old format lacks
are -1. `file` is the path of the segment; null for records from brokers. `keySize` and `valueSize` are bytes, null for
null."""

EXACT_TIME = pa.field("timestampMs", pa.int64())
"""The column for jobs in the place of `timestamp`: epoch milliseconds exactly as in the log. The data sources do not
have it."""

RECORD_COLUMNS: tuple[str, ...] = tuple(list(FIELDS)[:7])
"""The seven columns of Spark's Kafka source, in its order; includeHeaders adds `headers` after them."""

SIZE_COLUMNS = ("keySize", "valueSize")
"""The columns that only the option `columns` or a schema selects: no key or value is copied for them."""

METADATA_COLUMNS: tuple[str, ...] = tuple(name for name in list(FIELDS)[8:] if name not in SIZE_COLUMNS)
"""The columns that metadata=true adds, in this order."""

BATCH_FIELDS: dict[str, pa.Field] = _fields(
    topic=pa.string(),
    partition=pa.int32(),
    file=pa.string(),
    position=pa.int64(),
    sizeBytes=pa.int32(),
    baseOffset=pa.int64(),
    lastOffset=pa.int64(),
    recordCount=pa.int32(),
    magic=pa.int32(),
    codec=pa.string(),
    timestampType=pa.int32(),
    baseTimestamp=TIMESTAMP,
    maxTimestamp=TIMESTAMP,
    deleteHorizon=pa.bool_(),
    producerId=pa.int64(),
    producerEpoch=pa.int16(),
    baseSequence=pa.int32(),
    leaderEpoch=pa.int32(),
    transactional=pa.bool_(),
    control=pa.bool_(),
    crc=pa.int64(),
    crcOk=pa.bool_(),
)
"""The columns of a log entry, read from its header. An entry is a v2 batch or a v0/v1 message; a compressed v0/v1
message is a wrapper of inner messages. `position` and `sizeBytes` are its place in `file`. The header of a wrapper has
its last offset only, so its `baseOffset` and `recordCount` are null. With `deleteHorizon`, `baseTimestamp` is the time
from which a cleaner drops tombstones (KIP-534). `crc` is the stored value and `crcOk` is True if it matches; only
`crcOk` needs more than the headers."""

BATCH_COLUMNS: tuple[str, ...] = tuple(name for name in BATCH_FIELDS if name != "crcOk")
"""The columns of a query that selects none."""

# The decoder's name of a column is the same one in snake case.
_DECODED = {
    name: re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
    for name in FIELDS
    if name not in ("topic", "partition", "file")
}
_DECODED[EXACT_TIME.name] = "timestamp"
_CODECS = pa.array([codec.name.lower() for codec in sorted(Codec)])
_ALL_FIELDS = {**FIELDS, EXACT_TIME.name: EXACT_TIME}
_US_PER_MS = 1000
_MS_MAX = INT64_MAX // _US_PER_MS


def schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the schema of rows with these columns of `FIELDS`, or EXACT_TIME. Raises KeyError for an unknown name."""
    return pa.schema([_ALL_FIELDS[name] for name in columns])


def batch_schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the schema of rows with these columns of `BATCH_FIELDS`."""
    return pa.schema([BATCH_FIELDS[name] for name in columns])


def decoder_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of the decoder (`columnar`) from which these columns are built."""
    return tuple(_DECODED[name] for name in columns if name in _DECODED)


def assemble(
    found: pa.RecordBatch, topic: str, partition: int, columns: Sequence[str], file: str | None = None
) -> pa.RecordBatch:
    """Returns rows with these columns of `FIELDS`, built from decoded records with at least the columns
    `decoder_columns(columns)`."""
    count = found.num_rows
    constants: dict[str, Any] = {"topic": topic, "partition": partition, "file": file}
    arrays: list[pa.Array] = []
    for name in columns:
        kind = _ALL_FIELDS[name].type
        if name in constants:
            arrays.append(repeated(constants[name], kind, count))
        else:
            column = found.column(_DECODED[name])
            arrays.append(_CONVERTED[name](column) if name in _CONVERTED else as_kind(column, kind))
    return rows_of(arrays, schema(columns), count)


def row_of(values: Mapping[str, object], kinds: pa.Schema) -> pa.RecordBatch:
    """Returns one row with these values by column, null for a column without one."""
    return rows_of([pa.array([values.get(field.name)], field.type) for field in kinds], kinds, 1)


def repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    """Returns a column with the same value in all rows."""
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def as_kind(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def timestamps(milliseconds: pa.Array) -> pa.Array:
    """Returns epoch milliseconds as Spark's timestamps in microseconds, clamped to their range."""
    values = milliseconds.to_numpy(zero_copy_only=False)
    if values.size and (values.max() > _MS_MAX or values.min() < -_MS_MAX):
        values = np.clip(values, -_MS_MAX, _MS_MAX)
    return pa.array(values * _US_PER_MS).view(TIMESTAMP)


def codec_names(codecs: pa.Array) -> pa.Array:
    """Returns the names of codecs by their numbers, null for an unknown number."""
    numbers = codecs.to_numpy(zero_copy_only=False)
    unknown = numbers >= len(_CODECS)
    return _CODECS.take(pa.array(numbers, mask=unknown if unknown.any() else None))


def _headers(lists: pa.Array) -> pa.Array:
    offsets = lists.offsets
    counts = np.diff(offsets.to_numpy())
    pieces = lists.values
    values = pa.StructArray.from_arrays([pieces.field(0), pieces.field(1)], fields=list(HEADERS.value_type))
    if offsets.offset:  # a slice: Arrow accepts a null mask only for offsets at the start of their buffer
        offsets = pa.array(offsets.to_numpy().copy())
    return pa.ListArray.from_arrays(offsets, values, type=HEADERS, mask=pa.array(counts == 0))


_CONVERTED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "timestamp": timestamps,
    "codec": codec_names,
    "headers": _headers,
}

assert set(_DECODED.values()) == set(ALL_COLUMNS)
