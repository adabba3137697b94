"""Rows as a query gives them: which columns a sink has, where a row goes, and in which order rows are written.

Owns the columns, which are those of Spark's Kafka sink and `timestamp` besides, the choice of a partition, and orderBy.
The partition of a row depends on what the row holds, never on where or when: a task that is tried again must come to
the same. No Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from ...protocol.murmur2 import murmur2 as murmur2_of_one
from .errors import SinkError

__all__ = ["COLUMNS", "SENT", "assigned", "check_columns", "content", "ordered", "partitions_of"]

# Its functions are made at import, so a type checker does not know them.
pc: Any = _compute

COLUMNS: tuple[str, ...] = ("key", "value", "headers", "topic", "partition", "timestamp")
"""What is looked at; a query must have `value`, and `topic` unless the option names it."""

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SENT = pa.schema(
    [
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""What is written of a row; the timestamp in milliseconds, -1 for none."""

LONG_BYTES = 512
"""Of a key, so that it is hashed alone."""

_NO_TIMESTAMP = -1
_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_INT31 = 0x7FFFFFFF


# -- columns


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_headers(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    inner: Any = kind.value_type  # type: ignore[attr-defined]
    if not pa.types.is_struct(inner) or {field.name for field in inner} != {"key", "value"}:
        return False
    return _is_text(inner.field("key").type) and _is_bytes(inner.field("value").type)


_KINDS: Mapping[str, tuple[Any, str]] = {
    "key": (_is_bytes, "string or binary"),
    "value": (_is_bytes, "string or binary"),
    "headers": (_is_headers, "array<struct<key: string, value: binary>>"),
    "topic": (_is_text, "string"),
    "partition": (lambda kind: pa.types.is_int32(kind) or pa.types.is_int16(kind) or pa.types.is_int8(kind), "int"),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_int64(kind), "timestamp, or ms as long"),
}


def check_columns(schema: pa.Schema, topic: str | None) -> None:
    """Whether rows of this schema can be written, `topic` being the option. Raises SinkError, which names a column."""
    names = schema.names
    if "value" not in names:
        raise SinkError("there is no column value, which is what is written")
    if topic is None and "topic" not in names:
        raise SinkError("where to write to is not said: neither by the option topic nor by a column topic")
    for name, (fits, wanted) in _KINDS.items():
        if names.count(name) > 1:
            raise SinkError(f"there are {names.count(name)} columns {name}")
        if name in names and not fits(schema.field(name).type):
            raise SinkError(f"column {name} is of type {schema.field(name).type}: it must be {wanted}")


def content(rows: pa.RecordBatch, timestamp_ms: int = _NO_TIMESTAMP) -> pa.RecordBatch:
    """What is written of rows, with the columns of `SENT`; a row without a timestamp gets that one. SinkError."""
    names, count = rows.schema.names, rows.num_rows
    try:
        columns = [
            _timestamps(rows.column("timestamp") if "timestamp" in names else None, count, timestamp_ms),
            _bytes(rows.column("key")) if "key" in names else pa.nulls(count, pa.binary()),
            _bytes(rows.column("value")),
            _headers(rows.column("headers")) if "headers" in names else pa.nulls(count, HEADERS),
        ]
    except (pa.ArrowException, KeyError) as error:
        raise SinkError(f"these rows cannot be written: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=SENT)


def _bytes(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: pa.Array) -> pa.Array:
    return column if column.type == HEADERS else column.cast(HEADERS)


def _timestamps(column: pa.Array | None, count: int, otherwise_ms: int) -> pa.Array:
    if column is None:
        return pa.array(np.full(count, otherwise_ms, np.int64))
    if pa.types.is_timestamp(column.type):
        unit = column.type.unit  # type: ignore[attr-defined]
        values: Any = column.cast(pa.int64())
        if unit in ("us", "ns"):
            per_ms = 1_000 if unit == "us" else 1_000_000
            numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False) // per_ms
            values = pa.array(numbers, mask=column.is_null().to_numpy(zero_copy_only=False))
        elif unit == "s":
            values = pc.multiply_checked(values, 1_000)
    else:
        values = column.cast(pa.int64())
    return pc.fill_null(values, otherwise_ms) if values.null_count else values


# -- where a row goes


def assigned(rows: pa.RecordBatch, topic: str | None, counts: Mapping[str, int]) -> pa.RecordBatch:
    """The rows with columns `topic` and `partition` that say where each goes, behind the others.

    `topic` is the option, which goes before the column; `counts` are the partitions of each topic. A row goes to its
    column `partition`; else where Kafka's default partitioner puts its key; else where its value's checksum says.
    Raises SinkError: a row without a topic, one that is not among `counts`, a partition that there is not.
    """
    names, count = rows.schema.names, rows.num_rows
    topics = pa.repeat(pa.scalar(topic, pa.string()), count) if topic is not None else rows.column("topic")
    if topics.null_count:
        raise SinkError("a row has no topic: neither the option topic nor its column topic says where it goes")
    given = rows.column("partition").cast(pa.int32()) if "partition" in names else pa.nulls(count, pa.int32())
    chosen = np.zeros(count, np.int32)
    encoded: Any = topics.cast(pa.string()).dictionary_encode()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    keys = _bytes(rows.column("key")) if "key" in names else pa.nulls(count, pa.binary())
    values = _bytes(rows.column("value"))
    known = encoded.dictionary.to_pylist()
    for place, name in enumerate(known):
        if name not in counts:
            raise SinkError(f"a row goes to topic {name!r}, of which the partitions are not known")
        where = np.flatnonzero(places == place) if len(known) > 1 else None
        some = (
            (keys, values, given)
            if where is None
            else tuple(part.take(pa.array(where)) for part in (keys, values, given))
        )
        picked = partitions_of(*some, count=counts[name], topic=name)
        if where is None:
            chosen = picked
        else:
            chosen[where] = picked
    kept = [name for name in names if name not in ("topic", "partition")]
    columns = [*(rows.column(name) for name in kept), topics.cast(pa.string()), pa.array(chosen, pa.int32())]
    return pa.RecordBatch.from_arrays(columns, names=[*kept, "topic", "partition"])


def partitions_of(
    keys: pa.Array, values: pa.Array, given: pa.Array, *, count: int, topic: str
) -> npt.NDArray[np.int32]:
    """The partition of each row among `count` of a topic. SinkError: one is given that there is not."""
    if given.null_count < len(given):
        lowest, highest = pc.min(given).as_py(), pc.max(given).as_py()
        if lowest < 0 or highest >= count:
            wrong = lowest if lowest < 0 else highest
            raise SinkError(f"a row goes to partition {wrong} of topic {topic!r}, which has {count}")
        if not given.null_count:
            return given.to_numpy(zero_copy_only=False).astype(np.int32)
    hashes = murmur2(keys)
    if keys.null_count:
        bare = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
        hashes[bare] = _checksums(values if len(bare) == len(keys) else values.take(pa.array(bare)))
    picked = ((hashes & _INT31) % count).astype(np.int32)
    if given.null_count < len(given):
        is_given = given.is_valid().to_numpy(zero_copy_only=False)
        picked[is_given] = pc.fill_null(given, 0).to_numpy(zero_copy_only=False)[is_given]
    return picked


def _extents(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of a binary column, and where each value begins and ends in them; nulls are empty."""
    _, bounds, data = column.buffers()
    if not len(column) or bounds is None:
        return np.zeros(0, np.uint8), np.zeros(len(column), np.int64), np.zeros(len(column), np.int64)
    edges = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    # Of a slice only what is its own: it may be a small one of much.
    found = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]
    edges -= edges[0]
    ends = edges[1:]
    if column.null_count:
        ends = np.where(column.is_null().to_numpy(zero_copy_only=False), edges[:-1], ends)
    return found, edges[:-1], ends


def murmur2(column: Any) -> npt.NDArray[np.int64]:
    """`protocol.murmur2` of every value of a binary column, as unsigned numbers; null as the empty one."""
    data, starts, ends = _extents(column)
    sizes = ends - starts
    long = np.flatnonzero(sizes > LONG_BYTES)  # each of their words would be a round for few
    sizes[long] = 0
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    order = np.argsort(-sizes, kind="stable")  # the longest first: in each round those that are left are a prefix
    ordered_starts, words = starts[order], sizes[order] >> 2
    fewer = -words
    found = hashes[order]
    for number in range(int(words[0]) if words.size else 0):
        left = int(np.searchsorted(fewer, -number, "left"))  # those with more words than that
        at = ordered_starts[:left] + 4 * number
        word = _word(padded, at)
        word *= _M
        word ^= word >> np.uint32(24)
        word *= _M
        found[:left] *= _M
        found[:left] ^= word
    tails = sizes[order] & 3
    has_tail = tails > 0
    if has_tail.any():
        word = _word(padded, ordered_starts[has_tail] + 4 * words[has_tail])
        word &= (np.uint32(1) << (tails[has_tail] * 8).astype(np.uint32)) - np.uint32(1)
        found[has_tail] = (found[has_tail] ^ word) * _M
    found ^= found >> np.uint32(13)
    found *= _M
    found ^= found >> np.uint32(15)
    result = np.zeros(len(column), np.int64)
    result[order] = found
    for place in long.tolist():
        result[place] = murmur2_of_one(data[starts[place] : ends[place]].tobytes())
    return result


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """The four bytes at each place, little-endian."""
    word = data[at].astype(np.uint32)
    for number in (1, 2, 3):
        word |= data[at + number].astype(np.uint32) << np.uint32(8 * number)
    return word


def _checksums(values: pa.Array) -> npt.NDArray[np.int64]:
    data, starts, ends = _extents(values)
    view: Any = data.data
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter((zlib.crc32(view[start:end]) for start, end in pairs), np.int64, len(values))


# -- in which order


def ordered(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows by these columns, nulls first, as in Spark. Rows that are equal in them keep their order. SinkError."""
    for name in by:
        if name not in rows.schema.names:
            raise SinkError(f"orderBy names {name}, which is no column; there are {', '.join(rows.schema.names)}")
    if not by:
        return rows
    keys: list[tuple[str, Any]] = []
    for number, name in enumerate(by):
        column = rows.column(name)
        if column.null_count:  # how sort_indices is told where nulls go differs among its releases
            keys.append((f"{number} is there", column.is_valid()))
        keys.append((f"{number}", column))
    keys.append(("place", pa.array(np.arange(rows.num_rows))))
    table = pa.table(dict(keys))
    try:
        order = pc.sort_indices(table, [(name, "ascending") for name, _ in keys])
    except pa.ArrowException as error:
        raise SinkError(f"rows cannot be put in order: {error}") from None
    return rows.take(order)
