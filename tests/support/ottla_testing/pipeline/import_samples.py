"""Small exports to import again, and the imported records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.backend import OffsetRange, Selection, TopicPartition, Wanted
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.tasks import Form
from ottla.pipeline.jobs.export.tasks import Work as ExportWork
from ottla.pipeline.jobs.export.tasks import write as export_piece
from ottla.pipeline.jobs.import_ import files, plan, tasks
from ottla.pipeline.jobs.import_.tasks import Work, Written
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Header, Record

COLUMNS = ("key", "value", "offset", "timestamp", "headers")
NOW_MS = 1_700_000_000_000
Seen = tuple[int, int | None, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def exported(source: Path, target: Path, *, rows_per_file: int | None = None, codec: str = "zstd") -> None:
    """Writes the logs of a directory as Parquet, with the tasks of the job."""
    backend = FileBackend([str(source)])
    keys = backend.partitions(Selection())
    starts, ends = backend.earliest(keys), backend.latest(keys, committed=False)
    unfinished = target / layout.UNFINISHED
    unfinished.mkdir(parents=True, exist_ok=True)
    for key in keys:
        for piece in backend.pieces([OffsetRange(*key, starts[key], ends[key])], Wanted(layout.READ)):
            form = Form(codec=codec, rows_per_file=rows_per_file)
            work = ExportWork(piece, str(target), *key, piece.start, piece.end, 0, piece.size_bytes, form)
            for name, file in export_piece(work).files:
                (target / file.path).parent.mkdir(parents=True, exist_ok=True)
                os.replace(unfinished / name, target / file.path)


def put(target: Path, name: str, **columns: Any) -> Path:
    """Writes a Parquet file with these columns."""
    path = target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def put_records(target: Path, topic: str, partition: int, records: Sequence[Record], name: str = "part") -> Path:
    """Writes a file in the form of an export."""
    return put(
        target,
        f"topic={quote(topic, safe='')}/partition={partition}/date=2026-11-21/{name}.parquet",
        offset=pa.array([r.offset for r in records], pa.int64()),
        timestamp=pa.array([None if r.timestamp == -1 else r.timestamp for r in records], pa.timestamp("ms", "UTC")),
        key=pa.array([r.key for r in records], pa.binary()),
        value=pa.array([r.value for r in records], pa.binary()),
        headers=pa.array(
            [[{"key": h.key, "value": h.value} for h in r.headers] or None for r in records],
            layout.SCHEMA.field("headers").type,
        ),
    )


def planned(folder: Path, **options: Any) -> tuple[plan.Plan, str]:
    """Returns the plan of an import, and the identity of these files."""
    found = [files.look(file) for file in files.listed(folder)]
    return plan.plan(found, **options), files.identity(found, sorted(options.items()))


def here(works: Sequence[Work]) -> Iterator[tuple[Work, Written]]:
    """Runs the tasks, one after the other."""
    for work in works:
        yield work, tasks.write(work)


def read(path: Path | str) -> dict[TopicPartition, list[Seen]]:
    """Returns every record of every partition: offset, timestamp (None: none), key, value, headers."""
    backend = FileBackend([str(path)])
    keys = backend.partitions(Selection())
    starts, ends = backend.earliest(keys), backend.latest(keys, committed=False)
    found: dict[TopicPartition, list[Seen]] = {}
    for key in keys:
        of = found[key] = []
        for piece in backend.pieces([OffsetRange(*key, starts[key], ends[key])], Wanted(COLUMNS)):
            for rows in piece.read():
                times = rows.column("timestamp").view(pa.int64()).to_pylist()
                of += _shown(rows, times)
    return found


def _shown(rows: pa.RecordBatch, times: Sequence[int]) -> list[Seen]:
    columns = [rows.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
    return [
        (
            offset,
            None if time == -1000 else time // 1000,
            key,
            value,
            tuple((header["key"], header["value"]) for header in headers or ()),
        )
        for time, offset, key, value, headers in zip(times, *columns, strict=True)
    ]


def seen(records: Sequence[Record]) -> list[Seen]:
    """Converts records to the form of `read`."""
    return [(r.offset, None if r.timestamp == -1 else r.timestamp, r.key, r.value, pairs(r)) for r in records]


def pairs(record: Record) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header.key, header.value) for header in record.headers)


def some(count: int, first: int = 0, *, time_ms: int = NOW_MS, gap: int = 1) -> list[Record]:
    """Returns plain records."""
    return [
        Record(
            first + gap * i, time_ms + i, b"k%d" % (i % 7), b"v%d" % (first + gap * i), (Header("h", b"x"),) * (i % 3)
        )
        for i in range(count)
    ]
