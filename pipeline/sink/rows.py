"""The rows of a query: the columns of a sink, the target partition of a row, and rows by target partition.

Owns the columns, which are those of Spark's Kafka sink and `timestamp`, the choice of a partition, and orderBy. The
partition of a row depends on its content alone, never on place or time: a retried task must choose the same one. No
Spark.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as _compute

from ...protocol.murmur2 import murmur2 as murmur2_of_one
from .errors import SinkError

# pyarrow creates these functions at import, so type checkers do not see them.
pc: Any = _compute

COLUMNS: tuple[str, ...] = ("key", "value", "headers", "topic", "partition", "timestamp")
"""The columns that are read; a query must have `value`, and `topic` unless the option names it."""

HEADERS: Any = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
SENT = pa.schema(
    [
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns that are written; the timestamp in milliseconds, -1 for none."""

LONG_BYTES = 512
"""Keys above this size are hashed one by one."""

_NO_TIMESTAMP = -1
_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)
_INT31 = 0x7FFFFFFF


# -- columns


def is_bytes(kind: pa.DataType) -> bool:
    """Returns whether values of a type are bytes or text, also by a dictionary."""
    types = pa.types
    if types.is_dictionary(kind):
        return is_bytes(kind.value_type)  # type: ignore[attr-defined]
    return is_text(kind) or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values of a type are text, also by a dictionary."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)  # type: ignore[attr-defined]
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_headers(kind: pa.DataType) -> bool:
    """Returns whether values of a type are lists of structs of a key and a value."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    inner: Any = kind.value_type  # type: ignore[attr-defined]
    if not pa.types.is_struct(inner) or {field.name for field in inner} != {"key", "value"}:
        return False
    return is_text(inner.field("key").type) and is_bytes(inner.field("value").type)


_KINDS: Mapping[str, tuple[Any, str]] = {
    "key": (is_bytes, "string or binary"),
    "value": (is_bytes, "string or binary"),
    "headers": (is_headers, "array<struct<key: string, value: binary>>"),
    "topic": (is_text, "string"),
    "partition": (lambda kind: pa.types.is_int32(kind) or pa.types.is_int16(kind) or pa.types.is_int8(kind), "int"),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_int64(kind), "timestamp, or ms as long"),
}


def check_columns(schema: pa.Schema, topic: str | None) -> None:
    """Checks that rows of this schema can be written; `topic` is the option. Raises SinkError, which names a column."""
    names = schema.names
    if "value" not in names:
        raise SinkError("there is no column value: it holds the record's value")
    if topic is None and "topic" not in names:
        raise SinkError("no target topic: set the option topic, or add a column topic")
    for name, (fits, wanted) in _KINDS.items():
        if names.count(name) > 1:
            raise SinkError(f"there are {names.count(name)} columns {name}: it may occur once")
        if name in names and not fits(schema.field(name).type):
            raise SinkError(f"column {name} is of type {schema.field(name).type}: it must be {wanted}")


def content(rows: pa.RecordBatch, timestamp_ms: int = _NO_TIMESTAMP) -> pa.RecordBatch:
    """Returns the columns of `SENT` of these rows; a row without a timestamp gets `timestamp_ms`. Raises SinkError."""
    names, count = rows.schema.names, rows.num_rows
    try:
        times = rows.column("timestamp") if "timestamp" in names else pa.nulls(count, pa.int64())
        columns = [
            milliseconds(times, timestamp_ms),
            _bytes(rows.column("key")) if "key" in names else pa.nulls(count, pa.binary()),
            _bytes(rows.column("value")),
            _headers(rows.column("headers")) if "headers" in names else pa.nulls(count, HEADERS),
        ]
    except (pa.ArrowException, KeyError) as error:
        raise SinkError(f"these rows cannot be written: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=SENT)


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _bytes(column: Any) -> Any:
    return column if column.type == pa.binary() else _plain(column).cast(pa.binary())


def _headers(column: Any) -> Any:
    """Converts any lists of structs of a key and a value; a null becomes an empty list."""
    if column.type == HEADERS:
        return column
    bounds = np.zeros(len(column) + 1, np.int32)
    np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False), out=bounds[1:])
    flat = column.flatten()
    children = dict(zip([field.name for field in flat.type], flat.flatten(), strict=True))
    columns = [_plain(children["key"]).cast(pa.string()), _bytes(children["value"])]
    pieces = pa.StructArray.from_arrays(columns, fields=list(HEADERS.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), pieces, type=HEADERS)


def milliseconds(column: pa.Array, otherwise_ms: int = _NO_TIMESTAMP) -> pa.Array:
    """Returns timestamps of any unit, or integers, in epoch milliseconds, rounded down; `otherwise_ms` for null."""
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


# -- target partitions


Target = tuple[str, int]


class Targets:
    """The partitions of topics, each with a number: in the order of the topics' names. `counts` has the number of
    partitions of each topic. Picklable."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(sorted(counts.items()))
        self._ends = list(accumulate(self._counts.values()))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, number: int) -> Target:
        if not 0 <= number < len(self):
            raise IndexError(number)
        at = bisect_right(self._ends, number)
        return list(self._counts)[at], number - (self._ends[at - 1] if at else 0)

    def __iter__(self) -> Iterator[Target]:
        return ((topic, number) for topic, count in self._counts.items() for number in range(count))

    def numbers(self, rows: pa.RecordBatch, topic: str | None) -> npt.NDArray[np.int32]:
        """Returns the number of each row's target.

        `topic` is the option, which overrides the column. A row goes to its column `partition`; else to the partition
        that Kafka's default partitioner selects for its key; else to one by the checksum of its value. Raises SinkError
        for a row without a topic, with an unknown one, or with an invalid partition.
        """
        names, count = rows.schema.names, rows.num_rows
        topics = pa.repeat(pa.scalar(topic, pa.string()), count) if topic is not None else rows.column("topic")
        if topics.null_count:
            raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
        encoded: Any = topics.cast(pa.string()).dictionary_encode()
        places, known = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
        parts = (
            _bytes(rows.column("key")) if "key" in names else pa.nulls(count, pa.binary()),
            _bytes(rows.column("value")),
            rows.column("partition").cast(pa.int32()) if "partition" in names else pa.nulls(count, pa.int32()),
        )
        bases = dict(zip(self._counts, [0, *self._ends], strict=False))
        found = np.zeros(count, np.int32)
        for place, name in enumerate(known):
            if name not in self._counts:
                raise SinkError(f"a row goes to topic {name!r}, whose partitions are unknown")
            where = np.flatnonzero(places == place)
            some = parts if len(known) == 1 else [part.take(pa.array(where)) for part in parts]
            found[where] = partitions_of(*some, count=self._counts[name], topic=name) + bases[name]
        return found


def partitions_of(
    keys: pa.Array, values: pa.Array, given: Any = None, *, count: int, topic: str
) -> npt.NDArray[np.int32]:
    """Returns the target partition of each row among `count`: by key and value where `given` has none. Raises SinkError
    for an invalid one in it."""
    given = pa.nulls(len(keys), pa.int32()) if given is None else given
    if given.null_count < len(given):
        lowest, highest = pc.min(given).as_py(), pc.max(given).as_py()
        if lowest < 0 or highest >= count:
            wrong = lowest if lowest < 0 else highest
            raise SinkError(f"a row goes to partition {wrong} of topic {topic!r}, which has {count} partitions")
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
    """Returns the bytes of a binary column, and the begin and end of each value in them; nulls are empty."""
    _, bounds, data = column.buffers()
    if not len(column) or bounds is None:
        return np.zeros(0, np.uint8), np.zeros(len(column), np.int64), np.zeros(len(column), np.int64)
    edges = np.frombuffer(bounds, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    # Only the bytes of a slice: it may be a small part of a large array.
    found = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[edges[0] : edges[-1]]
    edges -= edges[0]
    ends = edges[1:]
    if column.null_count:
        ends = np.where(column.is_null().to_numpy(zero_copy_only=False), edges[:-1], ends)
    return found, edges[:-1], ends


def murmur2(column: Any) -> npt.NDArray[np.int64]:
    """Returns `protocol.murmur2` of every value of a binary column, as unsigned numbers; null hashes as empty."""
    data, starts, ends = _extents(column)
    sizes = ends - starts
    long = np.flatnonzero(sizes > LONG_BYTES)  # each of their words would be a round for few values
    sizes[long] = 0
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    order = np.argsort(-sizes, kind="stable")  # the longest first: in each round the remaining values are a prefix
    ordered_starts, words = starts[order], sizes[order] >> 2
    fewer = -words
    found = hashes[order]
    for number in range(int(words[0]) if words.size else 0):
        left = int(np.searchsorted(fewer, -number, "left"))  # values with more words than `number`
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
    """Returns the four bytes at each place, little-endian."""
    word = data[at].astype(np.uint32)
    for number in (1, 2, 3):
        word |= data[at + number].astype(np.uint32) << np.uint32(8 * number)
    return word


def _checksums(values: pa.Array) -> npt.NDArray[np.int64]:
    data, starts, ends = _extents(values)
    view: Any = data.data
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter((zlib.crc32(view[start:end]) for start, end in pairs), np.int64, len(values))


# -- rows by target partition


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
