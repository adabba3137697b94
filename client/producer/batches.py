"""Encodes records to a batch in the message format of the broker's Produce version.

Owns the loop that runs for every produced record. A record is a tuple (timestamp, key, value, headers); its offset and
sequence follow from its index. Format v2 is for Produce v3 and later, v1 for v2, v0 below; headers and zstd in an older
format raise UnsupportedVersion.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...protocol.records import compression
from ...protocol.records.batch import TRANSACTIONAL_BIT, Record, sealed
from ...protocol.records.errors import UnsupportedCodec
from ...protocol.records.layout import HEADER_COVERED
from ...protocol.records.legacy import build as build_legacy
from ...protocol.records.rows import READY_VARINTS, ready_varints
from ...protocol.records.walk import zigzag
from ..net.errors import ConfigError, InvalidRequest, UnsupportedVersion

Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[int, bytes | None, bytes | None, Headers]

CODECS = {None: 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ZSTD = 4
ZSTD_FROM_PRODUCE = 7
# Bytes of a record besides key and value: typical, and at most.
RECORD_OVERHEAD = 12
RECORD_BYTES_MAX_OVERHEAD = 36


def magic_of(produce_version: int) -> int:
    """Returns the message format of a version of Produce."""
    return 2 if produce_version >= 3 else 1 if produce_version == 2 else 0


def headers_bytes(headers: Headers) -> int:
    """Returns the approximate size of headers."""
    return sum(4 + len(key) + (len(value) if value is not None else 0) for key, value in headers)


def _put_headers(headers: Headers) -> bytes:
    pieces = [zigzag(len(headers))]
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        pieces += (zigzag(len(name)), name)
        pieces += (b"\x01",) if value is None else (zigzag(len(value)), value)
    return b"".join(pieces)


def _put_rows(rows: Sequence[Row], base_timestamp: int) -> tuple[bytes, int]:
    """Returns the records section of a v2 batch, and the highest timestamp."""
    ready, most = ready_varints(), READY_VARINTS
    pieces: list[bytes] = []
    highest = -1
    delta = -1
    for timestamp, key, value, headers in rows:
        delta += 1
        if timestamp > highest:
            highest = timestamp
        number = timestamp - base_timestamp
        time = ready[number] if 0 <= number < most else zigzag(number)
        index = ready[delta] if delta < most else zigzag(delta)
        if key is None:
            key_length = b"\x01"
            key = b""
        else:
            number = len(key)
            key_length = ready[number] if number < most else zigzag(number)
        if value is None:
            value_length = b"\x01"
            value = b""
        else:
            number = len(value)
            value_length = ready[number] if number < most else zigzag(number)
        tail = _put_headers(headers) if headers else b"\x00"
        number = 1 + len(time) + len(index) + len(key_length) + len(key) + len(value_length) + len(value) + len(tail)
        pieces += (
            ready[number] if number < most else zigzag(number),
            b"\x00",
            time,
            index,
            key_length,
            key,
            value_length,
            value,
            tail,
        )
    return b"".join(pieces), highest


def encode(
    rows: Sequence[Row],
    produce_version: int,
    codec: int,
    level: int | None,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Encodes a batch. Raises UnsupportedVersion, InvalidRequest, ConfigError."""
    if codec == ZSTD and produce_version < ZSTD_FROM_PRODUCE:
        raise UnsupportedVersion(
            f"zstd needs Produce v{ZSTD_FROM_PRODUCE} (Kafka 2.1), the broker has v{produce_version}"
        )
    magic = magic_of(produce_version)
    if magic < 2:
        return _encode_legacy(rows, magic, codec, level)
    base_timestamp = rows[0][0]
    data, highest = _put_rows(rows, base_timestamp)
    if codec:
        try:
            data = compression.compress(codec, data, level)
        except (UnsupportedCodec, ValueError) as error:
            raise ConfigError(f"compression: {error}") from error
    attributes = codec | TRANSACTIONAL_BIT if is_transactional else codec
    count = len(rows)
    try:
        covered = HEADER_COVERED.pack(
            attributes, count - 1, base_timestamp, highest, producer_id, epoch, base_sequence, count
        )
    except struct.error as error:
        raise InvalidRequest(f"value out of range in a record batch: {error}") from error
    return bytes(sealed(data, covered, 0, -1))


def _encode_legacy(rows: Sequence[Row], magic: int, codec: int, level: int | None) -> bytes:
    if any(row[3] for row in rows):
        raise UnsupportedVersion(f"record headers need Produce v3 (Kafka 0.11); message format v{magic} has none")
    records = [Record(offset, row[0], row[1], row[2]) for offset, row in enumerate(rows)]
    try:
        return bytes(build_legacy(records, magic=magic, codec=codec, level=level))
    except struct.error as error:
        raise InvalidRequest(f"value out of range in message format v{magic}: {error}") from error
    except (UnsupportedCodec, ValueError) as error:
        raise ConfigError(f"compression: {error}") from error
