"""Messages of the formats v0 and v1, made by hand, and folders whose segments mix all three formats.

message  offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | (v1: timestamp 8) | key length 4, key | value ...
wrapper  such a message, whose value is compressed messages; v0 numbers them absolutely, v1 from 0
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.protocol.records import batch, compression, formats
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.simulated_files import SimulatedFiles

Row = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, timestamp: what an upgrade must not change."""


def _nullable(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int, offset: int, key: bytes | None, value: bytes | None, timestamp: int = -1, attributes: int = 0
) -> bytes:
    """Returns one plain message."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += _nullable(key) + _nullable(value)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(magic: int, codec: int, rows: Sequence[Row], *, append_time: int | None = None) -> bytes:
    """Returns one compressed wrapper of messages; `append_time` is the broker's time for all of them (v1)."""
    first, last = rows[0][0], rows[-1][0]
    inner = b"".join(
        message(magic, offset if magic == 0 else offset - first, key, value, timestamp)
        for offset, key, value, timestamp in rows
    )
    data = gzip.compress(inner) if codec == 1 else compression.compress(codec, inner, magic=magic)
    timestamp = max(row[3] for row in rows) if append_time is None else append_time
    return message(magic, last, None, data, timestamp, codec | (8 if append_time is not None else 0))


class Piece(NamedTuple):
    """A part of a segment: one entry, or some plain messages; and the expected rows."""

    data: bytes
    rows: list[Row]


def piece(
    magic: int,
    codec: int,
    first: int,
    steps: Iterable[int],
    times: Sequence[int],
    *,
    append_time: int | None = None,
) -> Piece:
    """Returns records in one format: the offsets are `first`, first + steps[0], ...; keys and values follow from
    them."""
    offsets = [first]
    for step in steps:
        offsets.append(offsets[-1] + step)
    rows: list[Row] = []
    for number, offset in enumerate(offsets):
        key = None if offset % 3 == 0 else b"k%d" % (offset % 5)
        value = None if offset % 7 == 3 else b"value %d " % offset * (1 + offset % 4)
        rows.append((offset, key, value, times[number % len(times)] if magic else -1))
    seen = rows if append_time is None or magic == 0 else [(*row[:3], append_time) for row in rows]
    if magic == 2:
        records = [batch.Record(offset, timestamp, key, value) for offset, key, value, timestamp in seen]
        made = batch.build(
            records,
            batch.BatchFields(log_append_time=append_time is not None),
            base_offset=first,
            codec=codec,
            leader_epoch=0,
        )
        return Piece(bytes(made), seen)
    if codec:
        return Piece(wrapper(magic, codec, rows, append_time=append_time if magic else None), seen)
    attributes = 8 if append_time is not None and magic else 0
    plain = [message(magic, offset, key, value, timestamp, attributes) for offset, key, value, timestamp in seen]
    return Piece(b"".join(plain), seen)


def lay_down(files: SimulatedFiles, segments: Sequence[tuple[int, Sequence[Piece]]], folder: str = FOLDER) -> list[Row]:
    """Writes durable segments (base offset, pieces) into a folder, as a dead broker left them; returns their rows."""
    files.make_directory(folder)
    for base, pieces in segments:
        for suffix, data in ((".log", b"".join(part.data for part in pieces)), (".index", b""), (".timeindex", b"")):
            file = files.open(f"{folder}/{base:020d}{suffix}", create=True)
            file.write(0, data)
            file.sync()
            file.close()
    files.steps = 0
    files.log.clear()
    return [row for _, pieces in segments for part in pieces for row in part.rows]


def logs_of(files: SimulatedFiles, folder: str = FOLDER) -> list[str]:
    return sorted(name for name in files.list(folder) if name.endswith(".log"))


def rows_of(files: SimulatedFiles, folder: str = FOLDER) -> list[Row]:
    """Returns the rows of all segments, in their order, with every checksum checked."""
    found: list[Row] = []
    for name in logs_of(files, folder):
        data = files.read_bytes(f"{folder}/{name}")
        end = 0
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            end = position + header.size_bytes
            found += [
                (record.offset, record.key, record.value, record.timestamp)
                for record in formats.records(data, position)
            ]
        assert end == len(data)
    return found


def magics_of(files: SimulatedFiles, folder: str = FOLDER) -> set[int]:
    """Returns the formats in the folder's segments."""
    datas = [files.read_bytes(f"{folder}/{name}") for name in logs_of(files, folder)]
    return {header.magic for data in datas for _, header in formats.headers(data)}
