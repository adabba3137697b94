"""Inconsistent files of a log after a crash or an incomplete copy: an index or snapshot may contradict the log."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange, ReadError
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN
from ottla_testing.pipeline.logs_offsets import offsets_of, timed
from ottla_testing.pipeline.logs_plays import KEY, NOW, Play, committed, consumed, opened
from ottla_testing.pipeline.logs_samples import rows, wanted


def data_of(producer_id: int, sequence: int = 0, time_ms: int = NOW) -> bytearray:
    """Returns a batch of a transaction; without one if the id is -1."""
    records = [Record(0, time_ms, None, b"v")]
    if producer_id < 0:
        return batch.build(records)
    return batch.build(
        records,
        batch.BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True),
    )


@given(data=st.data(), times=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=2))
def test_time_index_without_last_entries_hides_no_records(data: st.DataObject, times: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        backend = timed(Path(root), times)
        for path in sorted(Path(root).glob("*/*.timeindex")):
            entries = path.read_bytes()
            kept = data.draw(st.integers(0, len(entries) // 12), "entries kept")
            path.write_bytes(entries[: kept * 12])
        for path in sorted(Path(root).glob("*/*.index")):
            entries = path.read_bytes()
            kept = data.draw(st.sampled_from([len(entries) // 8, 0]), "entries kept")
            path.write_bytes(entries[: kept * 8])
        flat = [time for of_segment in times for time in of_segment]
        for from_ms in {0, *flat, *(time + 1 for time in flat)}:
            expected = [offset for offset, time in enumerate(flat) if time >= from_ms]
            assert offsets_of(backend, from_ms=from_ms) == expected
            (found,) = backend.at_times(dict.fromkeys(backend._catalog.refresh(), from_ms)).values()
            assert found == (expected[0] if expected else None)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60), data=st.data())
def test_abort_missing_in_index_after_crash_is_aborted(seed: int, steps: int, data: st.DataObject) -> None:
    """A marker is written to the log before its entry to the index: a kill in between loses the entry, and a power
    failure may lose more."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "orders-0"
        log = opened(folder)
        Play(log).go(seed, steps)
        copy = Path(root) / "killed" / "orders-0"
        shutil.copytree(folder, copy)
        start = data.draw(st.integers(0, log.log_end_offset), "start")
        expected = consumed(log, start)
        log.close()
        for index in sorted(copy.glob("*.txnindex")):
            entries = index.read_bytes()
            kept = entries[: data.draw(st.integers(0, len(entries)), "bytes kept")]
            index.write_bytes(kept) if kept else index.unlink()
        part_bytes = data.draw(st.sampled_from([100, 600, 1 << 20]), "bytes of a part")
        assert committed(copy, start, part_bytes=part_bytes) == expected


def test_truncated_txnindex_of_closed_directory_is_damage(tmp_path: Path) -> None:
    log = opened(tmp_path / "orders-0")
    for sequence, commit in enumerate((True, False)):
        log.append(data_of(1, sequence), now_ms=NOW)
        log.append_marker(1, 0, committed=commit, coordinator_epoch=0, now_ms=NOW)
    log.close()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    (index,) = (tmp_path / "orders-0").glob("*.txnindex")
    index.write_bytes(index.read_bytes()[:-1])
    assert committed(tmp_path / "orders-0") == [0]


def test_recreated_topic_has_no_transactions_of_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    backend = FileBackend([str(folder)])
    for first, then in ((1, -1), (-1, 1)):
        log = opened(folder)
        for producer_id in (-1, first):
            log.append(data_of(producer_id), now_ms=NOW)
        assert backend.latest([KEY], committed=True) == {KEY: log.last_stable_offset}
        log.close()
        folder.rename(tmp_path / f"gone{first}")
        log = opened(folder)
        for producer_id in (then, -1, -1, -1):
            log.append(data_of(producer_id), now_ms=NOW)
        assert backend.latest([KEY], committed=True) == {KEY: log.last_stable_offset} == {KEY: 0 if then > 0 else 4}
        log.close()
        shutil.rmtree(folder)


def test_log_end_of_recreated_topic_ignores_cached_position(tmp_path: Path) -> None:
    """The file of a recreated topic may have the inode of the old one."""
    (tmp_path / "orders-0").mkdir()
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    backend = FileBackend([str(tmp_path)])
    for size in (10, 37):
        records = [Record(n, NOW, None, b"x" * size) for n in range(size)]
        path.write_bytes(b"".join(batch.build([record], base_offset=record.offset) for record in records))
        assert backend.latest([KEY], committed=False) == {KEY: size}


def damaged_between(path: Path) -> Path:
    """Returns a folder with a transaction whose marker is after an entry with a wrong size, which only the index can
    skip."""
    log = opened(path)
    log.append(data_of(1), now_ms=NOW)
    for _ in range(9):
        log.append(data_of(-1, time_ms=NOW + 5), now_ms=NOW)
    log.append_marker(1, 0, committed=True, coordinator_epoch=0, now_ms=NOW)
    for _ in range(9):
        log.append(data_of(-1, time_ms=NOW + 9), now_ms=NOW)
    log.close()
    (path.parent / CLEAN_SHUTDOWN).touch()
    for snapshot in path.glob("*.snapshot"):  # a snapshot would show that nothing is open
        snapshot.unlink()
    (path / f"{0:020d}.txnindex").touch()
    first = min(path.glob("*.log"))
    data = bytearray(first.read_bytes())
    position, _ = list(formats.headers(data))[3]
    data[position + 8] = 0x7F
    first.write_bytes(data)
    return first


def test_damage_before_marker_does_not_lower_last_stable_offset(tmp_path: Path) -> None:
    path = damaged_between(tmp_path / "orders-0")
    backend = FileBackend([str(tmp_path)])
    assert backend.latest([KEY], committed=True) == {KEY: 20}
    whole = [OffsetRange(*KEY, 0, 20)]
    with pytest.raises(ReadError, match=f"{path} at byte .*, offset 3: "):
        rows(backend.pieces(whole, wanted("offset", committed=True)))
    found = rows(backend.pieces(whole, wanted("offset", committed=True, on_corrupt="skip")))
    assert {row["offset"] for row in found} >= {0, 1, 2, *range(14, 20)}


def test_at_times_after_damage_raises(tmp_path: Path) -> None:
    path = damaged_between(tmp_path / "orders-0")
    with pytest.raises(ReadError, match=f"{path} at byte "):
        FileBackend([str(tmp_path)]).at_times({KEY: NOW + 7})


def test_at_times_torn_tail_ignored(tmp_path: Path) -> None:
    log = opened(tmp_path / "orders-0")
    log.append(data_of(-1), now_ms=NOW)
    log.close()
    (path,) = (tmp_path / "orders-0").glob("*.log")
    path.write_bytes(path.read_bytes() + path.read_bytes()[:-1])
    assert FileBackend([str(tmp_path)]).at_times({KEY: NOW + 7}) == {KEY: None}
