"""Whole data directories as Kafka 2.8.2, 3.9.1 and 4.3.1 left them: read, believed, verified, recovered, continued."""

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
    committed_answers,
    differences,
    stored,
)

NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(index_interval_bytes=200, segment_ms=2500, retention_ms=-1)
# Ours has one always: of a log that ends in an old format it is empty.
EPOCHS, NO_EPOCHS = "leader-epoch-checkpoint", b"0\n0\n"
HINTS = (".index", ".timeindex", ".txnindex", ".snapshot")


def topics(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix("-0") for path in folder.iterdir() if path.is_dir())


CASES = [(release, topic) for release in RELEASES for topic in topics(DIRECTORIES / release)]
DATA = [case for case in CASES if case[1] not in INTERNAL]
# The cleaner notes index entries by its own buffers, and 2.8 notes other ones, see test_logs.py; what was deleted tells
# nothing of producers any more.
NOTED_ALIKE = [(r, topic) for r, topic in DATA if r != "2.8.2" and not topic.startswith(("compacted", "deleted"))]


def copied(name: str, target: Path, topic: str | None = None) -> Path:
    """A directory, with all its topics or one."""
    others = () if topic is None else (f"{one}-0" for one in topics(DIRECTORIES / name) if one != topic)
    return shutil.copytree(DIRECTORIES / name, target / name, ignore=shutil.ignore_patterns(*others))


def opened(root: Path) -> DataDirectory:
    return DataDirectory.open(DiskFiles(), root, node_id=1)


def open_log(directory: DataDirectory, topic: str) -> PartitionLog:
    return directory.open_partition(topic, 0, config=CONFIG, now_ms=NOW_MS)


def kept(name: str, log_start_offset: int) -> bool:
    """Snapshots at or below the log start go when a log is opened, here as in Kafka."""
    return not name.endswith(".snapshot") or int(name.partition(".")[0]) > log_start_offset


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Of each file the bytes, which file it is and when it was last written."""
    return {p.name: (p.read_bytes(), p.stat().st_ino, p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}


def contents(folder: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.endswith(suffixes)}


def offsets(path: Path) -> dict[tuple[str, int], int]:
    """Kafka keeps what belongs to `__cluster_metadata` elsewhere."""
    found = read_offsets(DiskFiles(), str(path))
    return {place: offset for place, offset in found.items() if place[0] != "__cluster_metadata"}


def wrong(root: Path) -> list[str]:
    found = Verification(root, deep=True, may_have_gaps=lambda topic: topic.startswith("compacted"))
    return [f"{one.file} {one.byte} {one.offset}: {one.what}" for one in found.findings() if one.wrong]


def test_every_kind_of_log_is_there() -> None:
    """Or the tests below would show nothing: three formats, five codecs, transactions, what a cleaner leaves."""
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
        assert any(told.last_stable_offset < told.high_watermark for told in stored(release).values())
        assert any(told.log_start_offset for told in stored(release).values())


@each(("release", "topic"), DATA)
def test_a_log_is_read_as_kafkas_consumer_read_it_and_no_file_of_it_changes(
    release: str, topic: str, tmp_path: Path
) -> None:
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
def test_a_whole_directory_is_opened_and_closed_and_keeps_all_that_it_says(release: str, tmp_path: Path) -> None:
    root = copied(release, tmp_path)
    directory = opened(root)
    for topic in topics(root):
        open_log(directory, topic)
    directory.close()
    source = DIRECTORIES / release
    starts = {f"{topic}-0": told.log_start_offset for topic, told in stored(release).items()}
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
def test_verify_finds_nothing_wrong(name: str) -> None:
    assert wrong(DIRECTORIES / name) == []


@pytest.mark.parametrize("release", RELEASES)
def test_after_a_kill_of_kafka_nothing_is_lost(release: str, tmp_path: Path) -> None:
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
def test_transactions_are_told_the_same_without_a_kind_of_hint(release: str, lost: str, tmp_path: Path) -> None:
    """A snapshot that is missing is made up for by the log, once a transaction index says that there is a need; an
    index that is damaged is made anew."""
    root = copied(release, tmp_path, "transactions")
    told = stored(release)["transactions"]
    theirs = contents(root / "transactions-0", lost)
    assert any(theirs.values())
    for name, data in theirs.items():
        if lost == ".txnindex":
            (root / "transactions-0" / name).write_bytes(data[:-1] if data else b"")
        else:
            (root / "transactions-0" / name).unlink()
    directory = opened(root)
    log = open_log(directory, "transactions")
    assert (log.last_stable_offset, committed_answers(log, 1 << 20)) == (told.last_stable_offset, told.answers)
    assert committed(log, 1) == committed(log, 1 << 20) == told.committed
    directory.close()
    if lost == ".txnindex":
        assert contents(root / "transactions-0", lost) == theirs
    assert wrong(root) == []


@pytest.mark.parametrize(("release", "topic"), NOTED_ALIKE)
def test_indexes_and_snapshots_made_anew_are_kafkas(release: str, topic: str, tmp_path: Path) -> None:
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
def test_a_log_goes_on_with_us(release: str, topic: str, tmp_path: Path) -> None:
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
