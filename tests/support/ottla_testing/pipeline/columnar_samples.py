"""Records of all kinds, entries of all formats, and the results of both decoders in one form for comparison."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.pipeline.readers.columnar import EncodeOptions, Options, batches, decode, encode
from ottla.pipeline.readers.columnar.columns import ALL_COLUMNS
from ottla.protocol.records import formats, legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords
from ottla_testing.protocol.batches import batch_of

NOW = 1_700_000_000_000
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in range(5 if magic == 2 else 4)]
INT64_MAX = 2**63 - 1


class Refused(NamedTuple):
    """The result for refused records, whatever the message."""

    refused: bool = True


REFUSED = Refused()


def some_records(count: int, seed: int, first: int = 0, headers: bool = True) -> list[Record]:
    """Returns records with nulls, empty values, lengths of one to three bytes, timestamps that go back, and up to 40
    headers."""
    chance = random.Random(seed)

    def blob() -> bytes | None:
        size = chance.choice([None, 0, 1, 63, 64, 200, chance.choice([8191, 8192, 20])])
        return None if size is None else chance.randbytes(size)

    def few() -> tuple[Header, ...]:
        count = chance.choice([0, 0, 0, 1, 3, 40]) if headers else 0
        return tuple(Header(chance.choice(["", "h", "ü", "key" * 30]), blob()) for _ in range(count))

    offset, found = first, []
    for _ in range(count):
        found.append(Record(offset, NOW + chance.choice([0, -5, 70, 10**7, 2**40]), blob(), blob(), few()))
        offset += chance.choice([1, 1, 1, 2, 100])
    return found


def entries(records: Sequence[Record], magic: int, codec: int, **options: Any) -> bytes:
    """Encodes these records as one entry, or as plain messages, with the plain encoders."""
    if magic == 2:
        return bytes(batch_of(records, base_offset=records[0].offset, codec=codec, **options))
    return bytes(legacy.build(records, magic=magic, codec=codec, **options))


def shown(records: Sequence[Record], magic: int) -> list[Record]:
    """Returns the records with the fields that the format has."""
    if magic == 2:
        return list(records)
    return [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in records]


def plainly(data: bytes | bytearray) -> list[Record] | Refused:
    """Decodes all entries with the plain decoder, including control records and entries with a wrong CRC."""
    found: list[Record] = []
    try:
        for position, _ in formats.headers(data):
            found += formats.records(data, position)
    except (CorruptRecords, InvalidRecords):
        return REFUSED
    if any(not -INT64_MAX - 1 <= record.offset <= INT64_MAX for record in found):
        return REFUSED  # a column holds 64 bits, the plain decoder has unbounded numbers
    return [r._replace(headers=tuple(Header(_as_java(key), value) for key, value in r.headers)) for r in found]


def _as_java(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def to_records(rows: pa.RecordBatch) -> list[Record]:
    """Converts rows to records."""
    rows.validate(full=True)
    found = rows.to_pylist()
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple(Header(header["key"], header["value"]) for header in row["headers"]),
        )
        for row in found
    ]


def in_columns(data: bytes | bytearray | memoryview, **options: Any) -> list[Record] | Refused:
    """Decodes the same with the columnar decoder."""
    options = {"control": True, "check_crc": False, "columns": ALL_COLUMNS} | options
    try:
        return [record for rows in decode(data, Options(**options)) for record in to_records(rows)]
    except (CorruptRecords, InvalidRecords):
        return REFUSED


def both_ways(data: bytes | bytearray | memoryview, **options: Any) -> list[Record] | Refused:
    """Decodes like `in_columns`, with batches walked one after the other and in step, and plain messages one by one and
    in runs; the results must be equal."""
    found = in_columns(data, **options)
    assert in_columns(data, keep=lambda position, header: True, **options) == found
    before = batches.TOGETHER
    batches.TOGETHER = 1
    try:
        assert in_columns(data, **options) == found
    finally:
        batches.TOGETHER = before
    return found


def rows_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Converts records to rows, with Arrow alone."""
    headers = [[{"key": key, "value": value} for key, value in r.headers] for r in records]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "offset": pa.array([r.offset for r in records], pa.int64()),
            "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
            "headers": pa.array(headers, kind),
        }
    )


def encoded(records: Sequence[Record], **options: Any) -> bytes:
    """Encodes records through Arrow to bytes with valid CRCs."""
    data = b"".join(encode(rows_of(records), EncodeOptions(**options)))
    assert all(formats.crc_matches(data, position, header) for position, header in formats.headers(data))
    return data
