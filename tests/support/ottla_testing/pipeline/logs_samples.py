"""Partition folders written by hand, with indexes, and the expected results of readers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from ottla.pipeline.backend import OffsetRange, TopicPartition, Wanted
from ottla.pipeline.readers.columns import FIELDS
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records import formats
from ottla.protocol.records.batch import BatchHeader, Header, Record
from ottla_testing.pipeline.columnar_samples import entries, shown, some_records

KEY = TopicPartition("orders", 3)
EPOCH_MS = 1_700_000_000_000


@dataclass
class Folder:
    """A partition's folder. `entries` has the bytes of each entry by segment."""

    path: Path
    bases: list[int]
    entries: list[list[bytes]]
    records: list[Record] = field(default_factory=list)
    magics: list[int] = field(default_factory=list)
    "One for each record."

    @property
    def start(self) -> int:
        return self.bases[0]

    @property
    def end(self) -> int:
        if not self.entries[-1]:
            return self.bases[-1]
        return formats.read_header(self.entries[-1][-1]).next_offset

    def log(self, number: int = -1) -> Path:
        return self.path / f"{self.bases[number]:020d}.log"

    def placed(self) -> list[tuple[int, int, BatchHeader]]:
        """Returns (segment, position, header) of each entry."""
        found: list[tuple[int, int, BatchHeader]] = []
        for number, of_segment in enumerate(self.entries):
            position = 0
            for data in of_segment:
                found.append((number, position, formats.read_header(data)))
                position += len(data)
        return found


def split(records: Sequence[Record], magic: int, codec: int, **options: Any) -> list[bytes]:
    """Returns these records as entries: one, or a message for each."""
    if magic < 2 and not codec:
        return [entries([record], magic, codec) for record in records]
    return [entries(records, magic, codec, **options)]


def written(
    path: Path,
    parts: Iterable[tuple[int, int, int]],
    *,
    seed: int = 1,
    first: int = 0,
    rolls: Sequence[int] = (),
    interval_bytes: int | None = 200,
) -> Folder:
    """Writes a folder with entries of (magic, codec, number of records); a new segment begins before the entries whose
    numbers are in `rolls`. Without an interval there are no indexes."""
    path.mkdir(parents=True, exist_ok=True)
    folder = Folder(path, [first], [[]])
    offset = first
    for number, (magic, codec, count) in enumerate(parts):
        if number in rolls:
            folder.bases.append(offset)
            folder.entries.append([])
        records = some_records(count, seed * 1000 + number, offset, headers=magic == 2)
        folder.entries[-1] += split(records, magic, codec)
        folder.records += shown(records, magic)
        folder.magics += [magic] * count
        offset = records[-1].offset + 1
    write(folder, interval_bytes)
    return folder


def write(folder: Folder, interval_bytes: int | None = 200) -> None:
    """Writes the files of the folder."""
    for base, of_segment in zip(folder.bases, folder.entries, strict=True):
        (folder.path / f"{base:020d}.log").write_bytes(b"".join(of_segment))
        if interval_bytes is not None:
            index, times = indexed(base, of_segment, interval_bytes)
            (folder.path / f"{base:020d}.index").write_bytes(index)
            (folder.path / f"{base:020d}.timeindex").write_bytes(times)


def indexed(base: int, of_segment: Sequence[bytes], interval_bytes: int) -> tuple[bytes, bytes]:
    """Returns both indexes of a segment, by the rules of FORMAT.md."""
    index, times = b"", b""
    since = position = 0
    largest = (-1, 0)
    noted = -1
    for data in of_segment:
        header = formats.read_header(data)
        if header.max_timestamp > largest[0]:
            largest = (header.max_timestamp, header.last_offset - base)
        if since > interval_bytes:
            index += struct.pack(">ii", header.last_offset - base, position)
            if largest[0] > noted:
                times += struct.pack(">qi", *largest)
                noted = largest[0]
            since = 0
        since += len(data)
        position += len(data)
    if largest[0] > noted:
        times += struct.pack(">qi", *largest)
    return index, times


def wanted(*columns: str, **options: Any) -> Wanted:
    return Wanted(columns or ("key", "value", "offset", "timestamp", "headers"), **options)


def read(
    path: Path | str,
    what: Wanted,
    start: int | None = None,
    end: int | None = None,
    *,
    at_least: int | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Returns the rows of some offsets, read through pieces."""
    backend = FileBackend([str(path)], **options)
    (key,) = backend._catalog.refresh()
    begin = backend.earliest([key])[key] if start is None else start
    stop = backend.latest([key], committed=False)[key] if end is None else end
    return rows(backend.pieces([OffsetRange(*key, begin, stop)], what, at_least=at_least))


def rows(pieces: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns the rows of pieces, and checks the columns of every batch."""
    found: list[dict[str, Any]] = []
    for piece in pieces:
        for part in piece.read():
            part.validate(full=True)
            assert part.num_rows
            if set(part.schema.names) <= set(FIELDS):
                assert part.schema.equals(pa.schema([FIELDS[name] for name in piece.wanted.columns]))
            found += part.to_pylist()
    return found


def as_records(found: Iterable[dict[str, Any]]) -> list[Record]:
    """Converts rows to records, as far as they have the columns."""
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000) if row.get("timestamp") is not None else -1,
            row["key"],
            row["value"],
            tuple(Header(header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in found
    ]


def ms(row: dict[str, Any]) -> int:
    """Returns the timestamp of a row in milliseconds."""
    return row["timestamp"] // timedelta(milliseconds=1)
