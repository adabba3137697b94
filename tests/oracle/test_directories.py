"""Whole data directories of Kafka 2.8.2, 3.9.1 and 4.3.1: read, trusted, verified, recovered, continued."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.protocol.records import batch, formats
from ottla.storage.check.directory import Verification
from ottla.storage.config import LogConfig
from ottla.storage.format.checkpoint import read_offsets
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla.storage.partition_log import PartitionLog
from ottla_testing.each import each
from ottla_testing.oracle.stored_directories import (
    DIRECTORIES,
    INTERNAL,
    RELEASES,
    committed,
    committed_fetches,
    differences,
    stored,
)

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(index_interval_bytes=200, segment_ms=2500, retention_ms=-1)
# Ottla always has one: for a log that ends in an old format it is empty.
EPOCHS, NO_EPOCHS = "leader-epoch-checkpoint", b"0\n0\n"
HINTS = (".index", ".timeindex", ".txnindex", ".snapshot")


def topics(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix("-0") for path in folder.iterdir() if path.is_dir())


CASES = [(release, topic) for release in RELEASES for topic in topics(DIRECTORIES / release)]
DATA = [case for case in CASES if case[1] not in INTERNAL]
# The cleaner writes index entries by its own buffers, and 2.8 writes different ones, see test_logs.py; deleted batches
# leave no producer state.
NOTED_ALIKE = [(r, topic) for r, topic in DATA if r != "2.8.2" and not topic.startswith(("compacted", "deleted"))]


def copied(name: str, target: Path, topic: str | None = None) -> Path:
    """Copies a directory, with all its topics or one."""
    others = () if topic is None else (f"{one}-0" for one in topics(DIRECTORIES / name) if one != topic)
    return shutil.copytree(DIRECTORIES / name, target / name, ignore=shutil.ignore_patterns(*others))


def opened(root: Path) -> DataDirectory:
    return DataDirectory.open(DiskFiles(), root, node_id=1)


def open_log(directory: DataDirectory, topic: str) -> PartitionLog:
    return directory.open_partition(topic, 0, config=CONFIG, now_ms=NOW_MS)


def kept(name: str, log_start_offset: int) -> bool:
    """Returns the snapshots that stay: those at or below the log start are removed when a log is opened, as in
    Kafka."""
    return not name.endswith(".snapshot") or int(name.partition(".")[0]) > log_start_offset


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Returns of each file the bytes, the inode and the modification time."""
    return {p.name: (p.read_bytes(), p.stat().st_ino, p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}


def contents(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.endswith(suffixes)}


def offsets(path: Path) -> dict[tuple[str, int], int]:
    """Returns the checkpointed offsets, without `__cluster_metadata`, for which Kafka has other files."""
    found = read_offsets(DiskFiles(), str(path))
    return {place: offset for place, offset in found.items() if place[0] != "__cluster_metadata"}


def wrong(root: Path) -> list[str]:
    found = Verification(root, deep=True, may_have_gaps=lambda topic: topic.startswith("compacted"))
    return [f"{one.file} {one.byte} {one.offset}: {one.what}" for one in found.findings() if one.wrong]


def test_directories_have_every_kind_of_log() -> None:
    """The tests below need them: three formats, five codecs, transactions, compacted logs."""
    headers = [
        header
        for path in DIRECTORIES.rglob("*.log")
        if not path.parent.name.startswith("__")
        for _, header in formats.headers(path.read_bytes())
    ]
    assert {(h.magic, h.codec) for h in headers} >= {(m, c) for m in range(3) for c in range(4 + m // 2)}
    assert any(header.is_control for header in headers)
    assert any(header.record_count == 0 for header in headers)
    assert any(header.attributes & 0x40 for header in headers), "a delete horizon"
    assert {path.parents[1].name for path in DIRECTORIES.rglob("*.txnindex") if path.stat().st_size} == set(RELEASES)
    assert all((DIRECTORIES / f"{release}-killed").is_dir() for release in RELEASES)
    for release in RELEASES:
        assert any(one.last_stable_offset < one.high_watermark for one in stored(release).values())
        assert any(one.log_start_offset for one in stored(release).values())


@each(("release", "topic"), DATA)
def test_log_is_read_as_by_kafkas_consumer_and_stays_unchanged(release: str, topic: str, tmp_path: Path) -> None:
    root = copied(release, tmp_path, topic)
    before = state(root / f"{topic}-0")
    directory = opened(root)
    assert directory.was_clean and not directory.warnings
    log = open_log(directory, topic)
    assert log.cut_bytes == 0
    assert differences(log, stored(release)[topic]) == []
    directory.close()
    start = stored(release)[topic].log_start_offset
    after = state(root / f"{topic}-0")
    if EPOCHS not in before:
        assert after.pop(EPOCHS)[0] == NO_EPOCHS
    assert after == {name: found for name, found in before.items() if kept(name, start)}


@pytest.mark.parametrize("release", RELEASES)
def test_directory_opened_and_closed_keeps_its_checkpoints(release: str, tmp_path: Path) -> None:
    root = copied(release, tmp_path)
    directory = opened(root)
    for topic in topics(root):
        open_log(directory, topic)
    directory.close()
    source = DIRECTORIES / release
    starts = {f"{topic}-0": one.log_start_offset for topic, one in stored(release).items()}
    for path in sorted(source.rglob("*")):
        ours = root / path.relative_to(source)
        if not kept(path.name, starts.get(path.parent.name, -1)):
            assert not ours.exists()
        elif path.is_dir():
            left = {one.name for one in path.iterdir() if kept(one.name, starts.get(path.name, -1))}
            assert {one.name for one in ours.iterdir()} - ({EPOCHS} - left) == left
        elif path.name.endswith("-offset-checkpoint"):
            assert offsets(ours) == offsets(path), path
        elif path.name not in ("meta.properties", ".kafka_cleanshutdown"):
            assert ours.read_bytes() == path.read_bytes(), path
    assert wrong(root) == []


@pytest.mark.parametrize("name", [*RELEASES, *(f"{release}-killed" for release in RELEASES)])
def test_verify_of_kafkas_directories_has_no_finding(name: str) -> None:
    assert wrong(DIRECTORIES / name) == []


@pytest.mark.parametrize("release", RELEASES)
def test_directory_of_killed_kafka_loses_no_record(release: str, tmp_path: Path) -> None:
    root = copied(f"{release}-killed", tmp_path)
    logs = contents(root / "killed-0", ".log")
    directory = opened(root)
    assert not directory.was_clean
    log = open_log(directory, "killed")
    assert log.cut_bytes == 0
    assert differences(log, stored(release)["killed"]) == []
    assert len(log.producers()) == 10
    directory.close()
    assert contents(root / "killed-0", ".log") == logs
    assert wrong(root) == []


@pytest.mark.parametrize("lost", [".snapshot", ".index", ".txnindex"])
@pytest.mark.parametrize("release", RELEASES)
def test_transactions_without_snapshots_or_indexes_are_the_same(release: str, lost: str, tmp_path: Path) -> None:
    """A missing snapshot is rebuilt from the log when a transaction index shows the need; a damaged index is
    rebuilt."""
    root = copied(release, tmp_path, "transactions")
    one = stored(release)["transactions"]
    theirs = contents(root / "transactions-0", lost)
    assert any(theirs.values())
    for name, data in theirs.items():
        if lost == ".txnindex":
            (root / "transactions-0" / name).write_bytes(data[:-1] if data else b"")
        else:
            (root / "transactions-0" / name).unlink()
    directory = opened(root)
    log = open_log(directory, "transactions")
    assert (log.last_stable_offset, committed_fetches(log, 1 << 20)) == (
        one.last_stable_offset,
        one.fetches,
    )
    assert committed(log, 1) == committed(log, 1 << 20) == one.committed
    directory.close()
    if lost == ".txnindex":
        assert contents(root / "transactions-0", lost) == theirs
    assert wrong(root) == []


@pytest.mark.parametrize(("release", "topic"), NOTED_ALIKE)
def test_rebuilt_indexes_and_snapshots_equal_kafkas(release: str, topic: str, tmp_path: Path) -> None:
    root = copied(release, tmp_path, topic)
    folder = root / f"{topic}-0"
    theirs = contents(folder, *HINTS)
    for name in theirs:
        (folder / name).unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (root / name).unlink()
    directory = opened(root)
    open_log(directory, topic)
    directory.close()
    ours = contents(folder, *HINTS)
    assert ours == theirs


@each(("release", "topic"), DATA)
def test_kafkas_log_accepts_further_appends(release: str, topic: str, tmp_path: Path) -> None:
    root = copied(release, tmp_path, topic)
    end = stored(release)[topic].high_watermark
    directory = opened(root)
    log = open_log(directory, topic)
    end = log.log_end_offset
    assert log.append(batch.build([batch.Record(0, NOW_MS, b"k", b"ours")]), now_ms=NOW_MS).base_offset == end
    log.append_records([batch.Record(0, NOW_MS, b"k", b"too")], now_ms=NOW_MS)
    directory.close()
    assert wrong(root) == []
    directory = opened(root)
    log = open_log(directory, topic)
    assert log.log_end_offset == end + 2
    data = bytes(log.read(end, 1 << 20).records)
    assert [r.value for at, _ in formats.headers(data) for r in formats.records(data, at)] == [b"ours", b"too"]
    directory.close()
