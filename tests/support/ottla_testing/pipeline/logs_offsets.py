"""Offsets of the records that a reader of logs returns, and records with given timestamps."""

from __future__ import annotations

from pathlib import Path

from ottla.pipeline.backend import OffsetRange
from ottla.pipeline.readers.files import FileBackend
from ottla_testing.pipeline.columnar_samples import some_records
from ottla_testing.pipeline.logs_samples import (
    KEY,
    rows,
    split,
    wanted,
    write,
    written,
)


def timed(path: Path, times: list[list[int]], **options: bool) -> FileBackend:
    """Writes a log with a segment for each list, and a batch for each timestamp in it."""
    folder = written(path / "orders-3", [(2, 0, 1)])
    records = some_records(1, 1)
    folder.entries, folder.bases = [], []
    offset = 0
    for of_segment in times:
        folder.bases.append(offset)
        folder.entries.append([])
        for time in of_segment:
            folder.entries[-1] += split([records[0]._replace(offset=offset, timestamp=time)], 2, 0, **options)
            offset += 1
    write(folder)
    return FileBackend([str(path)])


def offsets_of(backend: FileBackend, **options: int) -> list[int]:
    end = backend.latest([KEY], committed=False)[KEY]
    return [row["offset"] for row in rows(backend.pieces([OffsetRange(*KEY, 0, end)], wanted(**options)))]
