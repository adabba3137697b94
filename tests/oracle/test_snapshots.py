"""Producer snapshots of Apache Kafka 2.8.2 and 3.9.1: read, written again, and rebuilt from the logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.protocol.records import formats
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.partition_log import PartitionLog, TopicIdPartition
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import Producer, advance
from ottla.storage.producers.txn_index import read_marker
from ottla_testing.each import each
from ottla_testing.oracle import golden

SNAPSHOTS = sorted(golden.LOGS.glob("*/*.snapshot"))
EMPTY = snapshot.dump({})
WITH_PRODUCERS = [path for path in SNAPSHOTS if path.read_bytes() != EMPTY]


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{int(path.stem)}"


def offset_of(path: Path) -> int:
    return int(path.stem)


@each("path", SNAPSHOTS)
def test_snapshots_are_read_and_written_back_unchanged(path: Path) -> None:
    data = path.read_bytes()
    found = snapshot.parse(data, offset_of(path))
    assert found is not None
    assert snapshot.dump(found) == data


def test_some_snapshots_have_producers() -> None:
    assert len(SNAPSHOTS) > 40 and len(WITH_PRODUCERS) == 2
    first, second = (snapshot.parse(path.read_bytes()) or {} for path in WITH_PRODUCERS)
    assert [(p.epoch, p.batches[-1][:4], p.transaction_first_offset) for p in first.values()] == [(0, (0, 2, 0, 2), 0)]
    assert [(p.epoch, p.batches[-1][:4], p.coordinator_epoch) for p in second.values()] == [(0, (6, 8, 8, 10), 0)]


@each("path", SNAPSHOTS)
def test_replay_of_the_log_gives_kafkas_snapshots(path: Path) -> None:
    producers: dict[int, Producer] = {}
    for data in golden.segments(path.parent.name.removesuffix("-0")).values():
        for position, header in formats.headers(data):
            if header.next_offset <= offset_of(path) and header.producer_id >= 0:
                marker = read_marker(data, position, header)
                advance(producers, header, 0, coordinator_epoch=marker.coordinator_epoch if marker else -1)
    assert snapshot.dump(producers) == path.read_bytes()


def opened(folder: Path, *, clean: bool) -> PartitionLog:
    topic = folder.name.removesuffix("-0")
    config = LogConfig(index_interval_bytes=200, segment_bytes=1 << 20)
    return PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition(topic, 0),
        config=config,
        now_ms=1_900_000_000_000,
        checkpoints=LogCheckpoints(clean_shutdown=clean),
    )


@each("clean", [True, False])
@each("kept", [True, False])
@each("name", golden.topics())
def test_appends_write_kafkas_snapshots(name: str, kept: bool, clean: bool, tmp_path: Path) -> None:
    """Opened and closed, with Kafka's snapshots or none, after a clean shutdown or a kill."""
    folder = shutil.copytree(golden.LOGS / f"{name}-0", tmp_path / f"{name}-0")
    bases = {int(path.stem) for path in folder.glob("*.log")}
    end = golden.topics()[name].end_offset
    theirs = {path.name: path.read_bytes() for path in folder.glob("*.snapshot") if offset_of(path) in {*bases, end}}
    assert theirs
    if not kept:
        for path in folder.glob("*.snapshot"):
            path.unlink()
    log = opened(folder, clean=clean)
    known = log.producers()
    log.close()
    ours = {path.name: path.read_bytes() for path in folder.glob("*.snapshot")}
    if not kept and clean:  # segments that were not read have no snapshot
        theirs = {snapshot.file_name(end): theirs[snapshot.file_name(end)]}
    assert ours == theirs
    assert snapshot.dump(known) == ours[snapshot.file_name(end)]


# ---- five producers over several segments, see make_producers.py


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1"])
@pytest.mark.parametrize("end", ["clean", "killed", "clean, no snapshots", "killed, no snapshots"])
def test_snapshots_of_several_producers_equal_kafkas(release: str, end: str, tmp_path: Path) -> None:
    """Kafka's snapshots of each roll and its close are kept, or rebuilt from the batches, byte for byte."""
    source = golden.GOLDEN / "producers" / release / "t-0"
    theirs = {path.name: path.read_bytes() for path in source.glob("*.snapshot")}
    assert len(theirs) > 4 and {len(data) for data in theirs.values()} == {10 + 5 * 46}
    folder = shutil.copytree(source, tmp_path / "t-0")
    if "no snapshots" in end:
        for path in folder.glob("*.snapshot"):
            path.unlink()
    log = opened(folder, clean=end.startswith("clean"))
    known = log.producers()
    last = max(theirs)
    assert snapshot.dump(known) == theirs[last] and len(known) == 5
    if end != "clean":
        assert all(len(producer.batches) == 5 for producer in known.values())
    # Each producer continues, and a repeated newest batch is a duplicate.
    log.close()
    ours = {path.name: path.read_bytes() for path in folder.glob("*.snapshot")}
    assert ours == ({last: theirs[last]} if end == "clean, no snapshots" else theirs)
