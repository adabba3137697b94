"""Data directories left by Kafka 2.8.2, 3.9.1 and 4.3.1, compared with the records that Kafka's own clients read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.pipeline.backend import OffsetRange, Selection, TopicPartition
from ottla.pipeline.readers.files import FileBackend
from ottla_testing.each import each
from ottla_testing.oracle.stored_directories import DIRECTORIES, INTERNAL, RELEASES, TopicContents, stored
from ottla_testing.pipeline.logs_samples import as_records, rows, wanted

KINDS = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
COLUMNS = ("key", "value", "offset", "timestamp", "timestampType", "headers")
TOPICS = {release: sorted(set(stored(release)) - {*INTERNAL, "killed"}) for release in RELEASES}
CASES = [(release, topic) for release in RELEASES for topic in TOPICS[release]]


def seen(
    backend: FileBackend, stored_log: TopicContents, key: TopicPartition, **options: bool
) -> list[tuple[object, ...]]:
    ranges = [OffsetRange(*key, stored_log.log_start_offset, stored_log.high_watermark)]
    found = rows(backend.pieces(ranges, wanted(*COLUMNS, **options), at_least=3))
    return [
        (record.offset, KINDS[row["timestampType"]], record.timestamp, record.key, record.value, record.headers)
        for row, record in zip(found, as_records(found), strict=True)
    ]


@each("release", RELEASES, strided=True)
def test_kafka_directory_partitions_and_ends(release: str) -> None:
    backend = FileBackend([str(DIRECTORIES / release)])
    found = backend.partitions(Selection())
    assert found == [TopicPartition(topic, 0) for topic in TOPICS[release]]
    internal = [path.name for path in (DIRECTORIES / release).iterdir() if path.name.startswith("__")]
    assert internal
    for name in internal:
        (key,) = FileBackend([str(DIRECTORIES / release / name)]).partitions(Selection())
        assert str(key) == name


@each(("release", "topic"), CASES, strided=True)
def test_kafka_directory_records_match_kafka_clients(release: str, topic: str) -> None:
    stored_log = stored(release)[topic]
    key = TopicPartition(topic, 0)
    backend = FileBackend([str(DIRECTORIES / release)], part_bytes=2000)
    assert backend.earliest([key]) == {key: stored_log.log_start_offset}
    assert backend.latest([key], committed=False) == {key: stored_log.high_watermark}
    assert backend.latest([key], committed=True) == {key: stored_log.last_stable_offset}
    assert seen(backend, stored_log, key) == stored_log.records
    assert [record[0] for record in seen(backend, stored_log, key, committed=True)] == stored_log.committed
    for time_ms, offset, _ in stored_log.times:
        assert backend.at_times({key: time_ms}) == {key: None if offset < 0 else offset}


@pytest.mark.parametrize("lost", ["index", "timeindex", "snapshot"])
@each("release", RELEASES, strided=True)
def test_kafka_directory_without_index_files_same_records(release: str, lost: str, tmp_path: Path) -> None:
    stored_log = stored(release)["transactions"]
    key = TopicPartition("transactions", 0)
    shutil.copytree(DIRECTORIES / release / "transactions-0", tmp_path / "transactions-0")
    for path in (tmp_path / "transactions-0").glob(f"*.{lost}"):
        path.unlink()
    backend = FileBackend([str(tmp_path)], part_bytes=2000)
    assert backend.latest([key], committed=True) == {key: stored_log.last_stable_offset}
    assert seen(backend, stored_log, key) == stored_log.records
    assert [record[0] for record in seen(backend, stored_log, key, committed=True)] == stored_log.committed
    for time_ms, offset, _ in stored_log.times:
        assert backend.at_times({key: time_ms}) == {key: None if offset < 0 else offset}


@each("release", RELEASES, strided=True)
def test_kafka_directory_after_kill(release: str) -> None:
    """Kafka preallocates indexes, which end with zeros after a kill."""
    stored_log = stored(release)["killed"]
    key = TopicPartition("killed", 0)
    backend = FileBackend([str(DIRECTORIES / f"{release}-killed" / "killed-0")], part_bytes=2000)
    assert backend.latest([key], committed=False) == {key: stored_log.high_watermark}
    assert seen(backend, stored_log, key) == stored_log.records
