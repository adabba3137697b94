"""Exports without Spark, on the real disk or on a failing one, and their contents."""

from __future__ import annotations

import contextlib
import io
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.backend import Backend, Selection
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Committer, ObjectCommitter, Settings, opener, with_columns
from ottla.pipeline.jobs.export.manifest import exported_files
from ottla.pipeline.jobs.export.plan import Plan, Request, plan
from ottla.pipeline.jobs.export.report import ExportReport
from ottla.pipeline.jobs.export.tasks import Form, Work, Written, write
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles, Files
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.pipeline.read_samples import Row

DISK = DiskFiles()
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def a_log(root: Path, topic: str, partition: int, batches: Sequence[Sequence[Record]], **options: Any) -> None:
    """Appends these batches to a partition with the storage of a broker, and closes it cleanly."""
    from ottla_testing.pipeline.read_samples import entry

    topic_id = options.pop("topic_id", None)
    config = LogConfig(segment_bytes=options.pop("segment_bytes", 1 << 30))
    directory = DataDirectory.open(DISK, root, node_id=1)
    given = {"topic_id": topic_id} if topic_id is not None else {}
    log = directory.open_partition(topic, partition, config=config, now_ms=NOW_MS, **given)
    for records in batches:
        log.append(bytearray(entry(list(records), 2, Codec.NONE, **options)), now_ms=NOW_MS)
    directory.close()


def exported(
    source: Path | Backend,
    root: Path | str,
    *,
    files: Files = DISK,
    form: Form | None = None,
    settings: Settings | None = None,
    part_bytes: int = 64 << 20,
    selection: Selection | None = None,
    table: Any = None,
    **request: Any,
) -> ExportReport:
    """Runs one export, with its tasks one after the other in this process, each with about `part_bytes` of the log."""
    form = form or Form(file_bytes=2 * part_bytes)
    settings = settings or Settings()
    table = opener(str(root), form) if table is None else table
    export_request = Request(selection or Selection(), committed=settings.isolation == "read_committed", **request)
    backend: Backend = FileBackend([str(source)], part_bytes=part_bytes) if isinstance(source, Path) else source
    with backend as logs, _committer(files)(str(root), settings, files=files, table=table) as opened:
        made = plan(logs, opened.manifest, export_request, str(root), with_columns(form, opened.table))
        report = ExportReport(str(root), settings.format, made)
        try:
            for work, written in done(made, files):
                report.add(opened.add(work, written, made.topics[work.topic].topic_id), written)
            opened.skip(made.gone)
        finally:
            opened.commit()
    return report


@contextlib.contextmanager
def iceberg(root: Path | str, table: str = "ottla.export", uri: str | None = None) -> Iterator[Any]:
    """Opens the Iceberg table of an export as another program does."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("ottla", type="sql", uri=uri or f"sqlite:///{root}/_ottla/catalog.db")
    try:
        yield catalog.load_table(table)
    finally:
        catalog.close()


def _committer(files: Files) -> type[Committer]:
    return ObjectCommitter if hasattr(files, "copy_all") else Committer


def done(made: Plan, files: Files) -> Iterator[tuple[Work, Written]]:
    for work in made.works:
        yield work, write(work, files)


def visible(root: Path | str, files: Files = DISK) -> list[str]:
    """Returns the files that a reader takes for a part of the table, relative to it."""
    found: list[str] = []

    def below(folder: str) -> None:
        for name in files.list(folder):
            if name.startswith(("_", ".")) or (name == "metadata" and folder == str(root)):  # of Iceberg
                continue
            path = posixpath.join(folder, name)
            try:
                inner = files.list(path)
            except (NotADirectoryError, FileNotFoundError):
                found.append(posixpath.relpath(path, str(root)))
            else:
                del inner
                below(path)

    if files.exists(str(root)):
        below(str(root))
    return sorted(found)


def tables(root: Path | str, files: Files = DISK) -> Iterator[tuple[layout.Place, layout.FileName, pa.Table]]:
    """Yields the visible files with the parts of their names."""
    for path in visible(root, files):
        folder, _, name = path.rpartition("/")
        place, of = layout.place(folder), layout.file_name(name)
        assert place is not None and of is not None and str(place) == folder and str(of) == name
        yield place, of, pq.read_table(io.BytesIO(files.read_bytes(posixpath.join(str(root), path))))


def rows(root: Path | str, files: Files = DISK) -> list[Row]:
    """Returns all visible rows, sorted by topic, partition and offset. Checks the names against the rows."""
    return rows_of(tables(root, files))


def rows_of(parts: Iterable[tuple[layout.Place, layout.FileName, pa.Table]]) -> list[Row]:
    found: list[Row] = []
    for place, name, table in parts:
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets) and (offsets[0], offsets[-1]) == (name.first, name.last)
        for one in table.to_pylist():
            time_ms = -1 if one["timestamp"] is None else ms(one["timestamp"])
            day = time_ms // DAY_MS if one["timestamp"] is not None else layout.NO_DAY
            assert place.day == day or (place.date is None and one["timestamp"] is None)
            headers = tuple((header["key"], header["value"]) for header in one["headers"] or ())
            found.append(
                Row(
                    place.topic,
                    place.partition,
                    one["offset"],
                    time_ms,
                    one["timestampType"],
                    one["key"],
                    one["value"],
                    headers,
                )
            )
    return sorted(found, key=lambda row: row[:3])


def ms(time: Any) -> int:
    from datetime import UTC, datetime

    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def checked(root: Path | str, files: Files = DISK) -> list[Row]:
    """Returns the rows of a complete export: each once, in files of the manifest, without other files."""
    named = list(exported_files(files, str(root)))
    assert visible(root, files) == sorted(file.path for _, file in named)
    by_path = {file.path: (one, file) for one, file in named}
    assert len(by_path) == len(named)
    parts = list(tables(root, files))
    for place, name, table in parts:
        one, file = by_path[f"{place}/{name}"]
        assert (one.topic, one.partition, one.generation) == (place.topic, place.partition, name.generation)
        assert one.start <= file.first_offset == name.first <= name.last == file.last_offset < one.end
        assert file.rows == table.num_rows
        times = [ms(time) for time in table.column("timestamp").drop_null().to_pylist()]
        assert (file.min_timestamp, file.max_timestamp) == ((min(times), max(times)) if times else (None, None))
    found = rows_of(parts)
    if not any(one.generation for one, _ in named):
        assert len({row[:3] for row in found}) == len(found)
    assert not files.list(posixpath.join(str(root), layout.UNFINISHED))
    assert not files.exists(posixpath.join(str(root), layout.PENDING))
    return found
