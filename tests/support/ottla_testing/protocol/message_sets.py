"""Message sets for the tests of validation, written by independent code, and reading of validated sets."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from ottla.protocol.records import batch, compression, formats
from ottla.protocol.records.batch import BatchHeader, Header, Record
from ottla.protocol.records.rules import Prepared, Rules
from ottla.protocol.records.validate import place, prepare

NOW = 1_700_000_000_000
HOUR = 3_600_000
LOG_APPEND_TIME = 8

SAMPLE = [
    Record(0, NOW, b"a", b"1"),
    Record(1, NOW + 20, b"", b"2" * 200),
    Record(2, NOW + 10, b"c", None),
]


def sealed(offset: int, covered: bytes) -> bytes:
    """Returns an entry of format v0 or v1 with these bytes under its CRC."""
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def message(
    offset: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    """Returns one message, or a wrapper if its attributes have a codec."""
    head = struct.pack(">bbq", magic, attributes, timestamp) if magic else struct.pack(">bb", magic, attributes)
    parts = [struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (key, value)]
    return sealed(offset, head + b"".join(parts))


def wrapper(
    inner: bytes, codec: int = 1, *, magic: int = 1, offset: int = 0, timestamp: int = NOW, attributes: int = 0
) -> bytes:
    """Returns a compressed set around the bytes of its messages."""
    packed = compression.compress(codec, inner, magic=magic)
    return message(offset, None, packed, magic=magic, timestamp=timestamp, attributes=attributes | codec)


def plain(records: Sequence[Record] = SAMPLE, magic: int = 1) -> bytes:
    """Returns plain messages."""
    return b"".join(
        message(record.offset, record.key, record.value, magic=magic, timestamp=record.timestamp) for record in records
    )


def made(magic: int, codec: int, records: Sequence[Record] = SAMPLE) -> bytes:
    """Returns the set of a producer that writes this format and codec."""
    if magic == 2:
        return bytes(batch.build(records, codec=codec))
    if not codec:
        return plain(records, magic)
    times = [record.timestamp for record in records]
    return wrapper(plain(records, magic), codec, magic=magic, offset=records[-1].offset, timestamp=max(times))


def read(ready: Prepared) -> list[Record]:
    """Returns all records of a validated set, after a check of every field of the result."""
    assert len(ready.buffer) == sum(header.size_bytes for header in ready.headers)
    records: list[Record] = []
    position = 0
    for header in ready.headers:
        stored = formats.read_header(ready.buffer, position)
        assert stored == header
        assert formats.crc_matches(ready.buffer, position, header)
        found = list(formats.records(ready.buffer, position))
        assert found[-1].offset == header.last_offset
        assert header.record_count in (-1, len(found))
        records += found
        position += header.size_bytes
    if records:
        assert ready.header == ready.headers[0]
        assert [record.offset for record in records] == list(range(ready.base_offset, ready.next_offset))
    return records


def store(data: bytes, rules: Rules, version: int = 2, base_offset: int = 0) -> tuple[list[BatchHeader], list[Record]]:
    """Returns headers and records as they would be stored."""
    ready = prepare(bytearray(data), rules, NOW, version, base_offset)
    assert ready.base_offset == (0 if rules.target_magic == 2 else base_offset)
    read(ready)
    ready = place(ready, base_offset, 0)
    return list(ready.headers), read(ready)


def without_headers(records: Sequence[Record]) -> list[Record]:
    """Returns the records as the older formats hold them."""
    return [record._replace(headers=()) for record in records]


HEADERS = (Header("h", b"x"),)
