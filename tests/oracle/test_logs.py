"""Partition folders of Kafka 2.8.2 and 3.9.1: opened, read, recovered without indexes, force-upgraded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ottla.protocol.records import formats
from ottla.protocol.records.batch import Record
from ottla.storage.config import LogConfig
from ottla.storage.io.files import DiskFiles
from ottla.storage.log.recovery import LogCheckpoints
from ottla.storage.log.upgrade import OnUpgrade
from ottla.storage.partition_log import LogOwner, PartitionLog, TopicIdPartition
from ottla_testing.each import each
from ottla_testing.oracle import golden

TOPICS = golden.topics()
NOW_MS = 1_900_000_000_000
# Kafka up to 3.8 makes at most one index entry for each Produce request; Ottla one for each batch or message that is
# far enough from the last entry, like 3.9. Here each request is one batch or wrapper, and the indexes are the same.
# v2-none is left out: in time indexes 2.8 wrote the record of an uncompressed batch, not the batch's last.
ONE_BY_ONE = [name for name in TOPICS if re.match("(v[012]|up)-(gzip|snappy|lz4|zstd)|up-none|recompressed", name)]


def open_log(folder: Path, *, clean: bool, upgrade: OnUpgrade | None = None) -> PartitionLog:
    config = LogConfig(index_interval_bytes=200, segment_bytes=1 << 20, retention_ms=-1)
    name = folder.name.rpartition("-")[0]
    return PartitionLog.open(
        DiskFiles(),
        folder,
        TopicIdPartition(name, 0),
        config=config,
        now_ms=NOW_MS,
        checkpoints=LogCheckpoints(clean_shutdown=clean),
        owner=LogOwner(upgrade=upgrade),
    )


def copied(name: str, target: Path) -> Path:
    return shutil.copytree(golden.LOGS / f"{name}-0", target / f"{name}-0")


def contents(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*" + suffix))}


def read_all(log: PartitionLog) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 700).records)
        found += data
        offset = [header for _, header in formats.headers(data)][-1].next_offset
    return found


def records_of(data: bytes) -> list[Record]:
    return [
        record._replace(headers=tuple(record.headers))
        for position, header in formats.headers(data)
        if not header.is_control
        for record in formats.records(data, position)
    ]


@each("name", TOPICS)
def test_kafkas_log_is_opened_in_place_and_read(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    log = open_log(folder, clean=True)
    assert log.log_end_offset == TOPICS[name].end_offset and log.cut_bytes == 0
    assert read_all(log) == b"".join(golden.segments(name).values())
    for stored in TOPICS[name].records:
        data = bytes(log.read(stored.record.offset, 1).records)
        assert stored.record.offset in [record.offset for record in formats.records(data)]
    log.close()
    assert contents(folder, ".log") == contents(golden.LOGS / f"{name}-0", ".log")
    if name in ONE_BY_ONE:
        for suffix in (".index", ".timeindex"):
            assert contents(folder, suffix) == contents(golden.LOGS / f"{name}-0", suffix), suffix


@each("name", TOPICS)
def test_recovery_keeps_every_byte_and_rebuilds_indexes(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    for path in (*folder.glob("*index"), *folder.glob("*.snapshot")):
        path.unlink()
    log = open_log(folder, clean=False)
    assert log.log_end_offset == TOPICS[name].end_offset and log.cut_bytes == 0
    assert read_all(log) == b"".join(golden.segments(name).values())
    log.close()
    assert contents(folder, ".log") == contents(golden.LOGS / f"{name}-0", ".log")
    if name in ONE_BY_ONE:
        for suffix in (".index", ".timeindex"):
            assert contents(folder, suffix) == contents(golden.LOGS / f"{name}-0", suffix), suffix


@each("name", TOPICS)
def test_forced_upgrade_keeps_every_record_and_leaves_only_v2(name: str, tmp_path: Path) -> None:
    folder = copied(name, tmp_path)
    log = open_log(folder, clean=True, upgrade=lambda _: None)
    assert records_of(read_all(log)) == [stored.record for stored in TOPICS[name].records]
    log.close()
    data = b"".join(contents(folder, ".log").values())
    assert {header.magic for _, header in formats.headers(data)} == {2}
    before = golden.stored_entries(name)
    after = [header for _, header in formats.headers(data)]
    assert [(h.last_offset, h.codec) for h in after] == [(h.last_offset, h.codec) for _, h in before]
    if TOPICS[name].magic == 2 and name != "mixed":
        assert contents(folder, ".log") == contents(golden.LOGS / f"{name}-0", ".log")
