"""Data directories as Kafka 2.8.2, 3.9.1 and 4.3.1 left them, as Kafka's own clients read them there."""

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


def seen(backend: FileBackend, told: TopicContents, key: TopicPartition, **options: bool) -> list[tuple[object, ...]]:
    asked = [OffsetRange(*key, told.log_start_offset, told.high_watermark)]
    found = rows(backend.pieces(asked, wanted(*COLUMNS, **options), at_least=3))
    return [
        (record.offset, KINDS[row["timestampType"]], record.timestamp, record.key, record.value, record.headers)
        for row, record in zip(found, as_records(found), strict=True)
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_there(release: str) -> None:
    backend = FileBackend([str(DIRECTORIES / release)])
    found = backend.partitions(Selection())
    assert found == [TopicPartition(topic, 0) for topic in TOPICS[release]]
    internal = [path.name for path in (DIRECTORIES / release).iterdir() if path.name.startswith("__")]
    assert internal
    for name in internal:
        (key,) = FileBackend([str(DIRECTORIES / release / name)]).partitions(Selection())
        assert str(key) == name


@each(("release", "topic"), CASES)
def test_as_kafkas_clients_read_it(release: str, topic: str) -> None:
    told = stored(release)[topic]
    key = TopicPartition(topic, 0)
    backend = FileBackend([str(DIRECTORIES / release)], part_bytes=2000)
    assert backend.earliest([key]) == {key: told.log_start_offset}
    assert backend.latest([key], committed=False) == {key: told.high_watermark}
    assert backend.latest([key], committed=True) == {key: told.last_stable_offset}
    assert seen(backend, told, key) == told.records
    assert [record[0] for record in seen(backend, told, key, committed=True)] == told.committed
    for time_ms, offset, _ in told.times:
        assert backend.at_times({key: time_ms}) == {key: None if offset < 0 else offset}


@pytest.mark.parametrize("lost", ["index", "timeindex", "snapshot"])
@pytest.mark.parametrize("release", RELEASES)
def test_without_a_kind_of_hint_it_is_the_same(release: str, lost: str, tmp_path: Path) -> None:
    told = stored(release)["transactions"]
    key = TopicPartition("transactions", 0)
    shutil.copytree(DIRECTORIES / release / "transactions-0", tmp_path / "transactions-0")
    for path in (tmp_path / "transactions-0").glob(f"*.{lost}"):
        path.unlink()
    backend = FileBackend([str(tmp_path)], part_bytes=2000)
    assert backend.latest([key], committed=True) == {key: told.last_stable_offset}
    assert seen(backend, told, key) == told.records
    assert [record[0] for record in seen(backend, told, key, committed=True)] == told.committed
    for time_ms, offset, _ in told.times:
        assert backend.at_times({key: time_ms}) == {key: None if offset < 0 else offset}


@pytest.mark.parametrize("release", RELEASES)
def test_after_a_kill_of_kafka(release: str) -> None:
    """Its indexes have room for more entries, with zeros in it."""
    told = stored(release)["killed"]
    key = TopicPartition("killed", 0)
    backend = FileBackend([str(DIRECTORIES / f"{release}-killed" / "killed-0")], part_bytes=2000)
    assert backend.latest([key], committed=False) == {key: told.high_watermark}
    assert seen(backend, told, key) == told.records
