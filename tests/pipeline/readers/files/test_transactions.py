"""read_committed from files returns the records of storage's read_committed reads, whatever indexes and snapshots
contain."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import OffsetRange
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.logs_plays import KEY, NOW, Play, committed, consumed, opened
from ottla_testing.pipeline.logs_samples import rows, wanted


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60), data=st.data())
def test_read_committed_matches_storage(seed: int, steps: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "orders-0"
        log = opened(folder)
        play = Play(log)
        play.go(seed, steps)
        backend = FileBackend([root])
        for _ in range(2):
            assert backend.latest([KEY], committed=True) == {KEY: log.last_stable_offset}
            play.go(seed + 1, data.draw(st.integers(0, 20)))
        start = data.draw(st.integers(0, log.log_end_offset))
        found = committed(folder, start, part_bytes=data.draw(st.sampled_from([100, 600, 1 << 20])))
        assert found == consumed(log, start)
        log.close()
        assert committed(folder, start) == found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int], list[int]]:
    """Returns a folder with several segments, its committed offsets, and its markers."""
    folder = tmp_path_factory.mktemp("played") / "orders-0"
    log = opened(folder)
    Play(log).go(6, 200)
    found = consumed(log, 0)
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    markers = [header.base_offset for _, header in formats.headers(data) if header.is_control]
    log.close()
    assert len(list(folder.glob("*.log"))) > 8 and len(list(folder.glob("*.txnindex"))) > 4 and len(found) > 50
    return folder, found, markers


def test_read_committed_damaged_txnindex_uses_log(
    played: tuple[Path, list[int], list[int]], tmp_path: Path, stride: int
) -> None:
    folder, expected, _ = played
    every = list(enumerate(sorted(folder.glob("*.txnindex"))[:-1]))
    for number, path in every[random.randrange(min(stride, len(every))) :: stride]:
        for changed in (path.read_bytes()[:-1], b"\0\1" + path.read_bytes()[2:]):
            copy = tmp_path / f"{number}-{len(changed)}-{changed[1]}" / "orders-0"
            shutil.copytree(folder, copy)
            (copy / path.name).write_bytes(changed)
            assert committed(copy) == expected


def test_read_committed_damaged_or_missing_snapshot_uses_log(
    played: tuple[Path, list[int], list[int]], tmp_path: Path
) -> None:
    folder, expected, _ = played
    for number, change in enumerate((lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\xff"), Path.unlink)):
        copy = tmp_path / str(number) / "orders-0"
        shutil.copytree(folder, copy)
        for path in copy.glob("*.snapshot"):
            change(path)
        assert committed(copy) == expected


def test_read_committed_range_ends_at_last_stable_offset(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = opened(folder)
    plain = [Record(0, NOW, None, b"plain")]
    log.append(batch.build(plain), now_ms=NOW)
    log.append(
        batch.build(plain, batch.BatchFields(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)),
        now_ms=NOW,
    )
    log.append(batch.build(plain), now_ms=NOW)
    assert FileBackend([str(folder)]).latest([KEY], committed=True) == {KEY: 1}
    assert committed(folder, 0, 3) == [0]
    log.append_marker(1, 0, committed=False, coordinator_epoch=0, now_ms=NOW)
    assert committed(folder, 0, 3) == [0, 2]
    assert committed(folder) == [0, 2]
    log.close()


def test_markers_only_with_control_option(played: tuple[Path, list[int], list[int]]) -> None:
    folder, expected, markers = played
    backend = FileBackend([str(folder)])
    end = backend.latest([KEY], committed=False)[KEY]

    def offsets(**options: bool) -> list[int]:
        pieces = backend.pieces([OffsetRange(*KEY, 0, end)], wanted("offset", "control", **options))
        return [row["offset"] for row in rows(pieces) if row["control"] or not options.get("control")]

    assert offsets(control=True) == markers
    stable = backend.latest([KEY], committed=True)[KEY]
    assert offsets(control=True, committed=True) == [offset for offset in markers if offset < stable]
    assert offsets(committed=True) == expected
    assert len(offsets()) + len(markers) == end


def test_closed_log_without_snapshots_has_no_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka: otherwise all headers of a possibly large old log would be read."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data = batch.build(
        [Record(0, NOW, None, b"v")],
        batch.BatchFields(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
    )
    (folder / f"{0:020d}.log").write_bytes(data)
    assert FileBackend([str(tmp_path)]).latest([KEY], committed=True) == {KEY: 0}
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert FileBackend([str(tmp_path)]).latest([KEY], committed=True) == {KEY: 1}


def test_open_transactions_resume_from_last_offset(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    log = opened(tmp_path / "orders-0")
    backend = FileBackend([str(tmp_path)])
    play = Play(log)
    for seed in range(scaled(10)):
        play.go(seed, 12)
        assert backend.latest([KEY], committed=True) == {KEY: log.last_stable_offset}
    log.close()
