"""Segments that are deleted, created, merged and truncated between planning and reading, and during the read."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError
from ottla.pipeline.readers.files import FileBackend, FilePiece, catalog
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla_testing.pipeline.logs_samples import KEY, Folder, as_records, rows, wanted, write, written

NOW = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return written(tmp_path / "orders-3", [(2, 0, 4), (1, 0, 3), (2, 3, 5)] * 6, rolls=[5, 10])


def planned(folder: Folder, start: int = 0, end: int | None = None, **options: bool) -> list[FilePiece]:
    backend = FileBackend([str(folder.path)], part_bytes=3000)
    return backend.pieces([OffsetRange(*KEY, start, folder.end if end is None else end)], wanted(**options))


def remove(folder: Folder, number: int) -> None:
    for path in folder.path.glob(f"{folder.bases[number]:020d}.*"):
        path.unlink()


def merge(folder: Folder, kept: int) -> None:
    """Merges the first two segments, keeping every `kept`th entry, as a cleaner does."""
    entries = (folder.entries[0] + folder.entries[1])[::kept]
    remove(folder, 1)
    folder.bases = [folder.bases[0], *folder.bases[2:]]
    folder.entries = [entries, *folder.entries[2:]]
    new = Folder(folder.path.parent / "new-3", folder.bases, folder.entries)
    new.path.mkdir()
    write(new)
    for path in new.path.iterdir():
        os.replace(path, folder.path / path.name)  # another file with the same name, as after a swap
    new.path.rmdir()


def test_read_deleted_segment_raises_with_offsets(folder: Folder) -> None:
    pieces = planned(folder)
    remove(folder, 0)
    base = folder.bases[1]
    with pytest.raises(
        DataLoss, match=rf"^orders-3: offsets 0 to \d+ no longer exist: the log now begins at offset {base}$"
    ):
        rows(pieces)
    assert as_records(rows([piece for piece in pieces if piece.start >= base])) == [
        record for record in folder.records if record.offset >= base
    ]


def test_read_deleted_segment_without_fail_on_loss_reads_rest(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    pieces = planned(folder, fail_on_loss=False)
    remove(folder, 0)
    remove(folder, 1)
    with caplog.at_level(logging.WARNING):
        found = as_records(rows(pieces))
    assert found == [record for record in folder.records if record.offset >= folder.bases[2]]
    assert len(caplog.records) == len([piece for piece in pieces if piece.start < folder.bases[2]])
    shutil.rmtree(folder.path)
    assert rows(pieces) == []
    with pytest.raises(DataLoss, match="its folder was deleted"):
        rows([replace(piece, wanted=replace(piece.wanted, fail_on_loss=True)) for piece in pieces])


def test_read_range_before_log_start_raises_data_loss(folder: Folder) -> None:
    remove(folder, 0)
    with pytest.raises(DataLoss, match="offsets 2 to"):
        rows(planned(folder, 2))
    shutil.rmtree(folder.path)
    with pytest.raises(DataLoss, match="orders-3 no longer exists"):
        backend = FileBackend([str(folder.path.parent)])
        (folder.path.parent / "meta.properties").touch()
        backend.pieces([OffsetRange(*KEY, 0, 5)], wanted())


def test_read_truncated_log_raises_data_loss(folder: Folder) -> None:
    pieces = planned(folder)
    whole = folder.log().read_bytes()
    last = folder.entries[-1][-1]
    folder.log().write_bytes(whole[: -len(last)])
    with pytest.raises(
        DataLoss, match=rf"offsets \d+ to {folder.end - 1} no longer exist: the log now ends at offset \d+"
    ):
        rows(pieces)


@pytest.mark.parametrize("kept", [1, 3])
def test_read_merged_segments_returns_records(folder: Folder, kept: int) -> None:
    pieces = planned(folder)
    assert any(piece.anchor is not None for piece in pieces)
    bases = folder.bases
    merge(folder, kept)
    left = rows(planned(folder))
    assert {row["offset"] for row in left} >= {r.offset for r in folder.records if r.offset >= bases[2]}
    assert rows(pieces) == left


def test_read_segment_deleted_during_read_continues(folder: Folder) -> None:
    backend = FileBackend([str(folder.path)], window_bytes=2000)
    pieces = backend.pieces([OffsetRange(*KEY, 0, folder.end)], wanted())
    reading: list[Iterator[pa.RecordBatch]] = [piece.read() for piece in pieces]
    first = [next(one) for one in reading]
    for number in range(3):
        remove(folder, number)
    found = [
        row for begun, rest in zip(first, reading, strict=True) for part in [begun, *rest] for row in part.to_pylist()
    ]
    assert as_records(found) == folder.records


def test_read_during_segment_swap_waits(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the renames of a cleaner there is a moment in which a segment has neither name."""
    pieces = planned(folder)
    path = folder.log(1)
    swap = path.with_suffix(".log.swap")
    os.replace(path, swap)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.replace(swap, path)

    monkeypatch.setattr("ottla.pipeline.readers.files.catalog.time.sleep", wait)
    assert as_records(rows(pieces)) == folder.records
    assert len(waits) == 3


def test_read_unfinished_segment_swap_raises(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.path / f"{0:020d}.log.swap").touch()
    monkeypatch.setattr(catalog, "_SWAP_SECONDS", 0.01)
    with pytest.raises(ReadError, match=r"orders-3 has an unfinished segment swap \(0+.log.swap\)"):
        planned(folder)


def test_read_from_gap_at_segment_end_loses_nothing(folder: Folder) -> None:
    """A cleaner removed the last records of a segment: nothing is lost."""
    folder.entries[0] = folder.entries[0][:-2]
    write(folder)
    left = rows(planned(folder))
    assert [row["offset"] for row in left][-1] == folder.end - 1
    assert rows(planned(folder, folder.bases[1] - 1, folder.bases[1])) == []


def test_read_concurrent_with_append_roll_and_delete(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Whatever happens meanwhile, records are returned in order and once, and only deleted ones are missing."""
    config = LogConfig(segment_bytes=3000, index_interval_bytes=300, retention_ms=-1, retention_bytes=20_000)
    files, path = DiskFiles(), str(tmp_path / "orders-3")
    log = PartitionLog.open(
        files,
        path,
        TopicIdPartition("orders", 3, bytes(16)),
        config=config,
        now_ms=NOW,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    stop, enough = threading.Event(), min(max(600, scaled(6000)), 6000)

    def write_on() -> None:
        number = 0
        while not stop.is_set():
            log.append_records([Record(0, NOW + number, None, b"%d" % number * 10)], now_ms=NOW + number)
            number += 1
            if number % 50 == 0:
                log.delete_records_before(max(0, number - 200))
                for path in (tmp_path / "orders-3").glob("*.deleted"):
                    path.unlink()

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        backend = FileBackend([str(tmp_path)], part_bytes=1000, window_bytes=1000)
        reached, lost, given = 0, 0, 0
        while given < enough and writer.is_alive():
            end = backend.latest([KEY], committed=False).get(KEY, reached)
            try:
                pieces = backend.pieces([OffsetRange(*KEY, reached, end)], wanted("offset", "value"))
                found = [(row["offset"], row["value"]) for row in rows(pieces)]
            except DataLoss:
                lost += 1
                reached = backend.earliest([KEY])[KEY]
                continue
            assert found == [(at, b"%d" % at * 10) for at in range(reached, end)]
            reached, given = end, given + len(found)
    finally:
        stop.set()
        writer.join()
        log.close()
    assert given >= enough
