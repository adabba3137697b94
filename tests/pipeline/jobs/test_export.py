"""The result of an export: each record once, as other clients read it; days, names, sizes; and what a second run
adds."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ottla.broker import Embedded
from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.jobs.export import layout, tasks
from ottla.pipeline.jobs.export.commit import Settings
from ottla.pipeline.jobs.export.manifest import ExportError, Range, commits, exported_files, merged, without
from ottla.pipeline.jobs.export.tasks import CODECS, Form
from ottla.pipeline.offsets import AtOffsets, AtTime
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.wire import WireBackend
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla.storage.config import LogConfig
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.pipeline.export_samples import DAY_MS, DISK, NOW_MS, a_log, checked, exported, rows, tables, visible
from ottla_testing.pipeline.read_samples import FORMATS, Row, by_aiokafka, entry, some
from ottla_testing.pipeline.wire_world import config

UNCOMMITTED = Settings(isolation="read_uncommitted")
ID = bytes(range(16))


def expected_rows(folder: Path, *topics: str) -> list[Row]:
    """Returns the rows that aiokafka reads from there."""
    names = [name for topic in topics for name in sorted(folder.glob(f"{topic}-*"))]
    return sorted((row for name in names for row in by_aiokafka(name)), key=lambda row: row[:3])


def plain(first: int, count: int, time_ms: int = NOW_MS, step_ms: int = 1) -> list[Record]:
    return [Record(first + n, time_ms + n * step_ms, b"k%d" % (first + n), b"v", ()) for n in range(count)]


# --- content


def test_export_all_formats(directory: Path, tmp_path: Path) -> None:
    report = exported(directory, tmp_path / "out", settings=UNCOMMITTED)
    readable = [topic for topic in FORMATS if topic != "v0-lz4"]
    found = checked(tmp_path / "out")
    # aiokafka does not read the lz4 frames of v0, which have the same records.
    assert [row for row in found if row.topic != "v0-lz4"] == expected_rows(
        directory, *readable, "events", "transactions"
    )
    of_v0 = {topic: [row[2:] for row in found if row.topic == topic] for topic in ("v0-lz4", "v0-gzip")}
    assert of_v0["v0-lz4"] == of_v0["v0-gzip"]
    assert report.records == len(found) and report.skipped == 0
    assert {row.timestamp_ms for row in found if row.topic.startswith("v0")} == {-1}
    assert {row.timestamp_type for row in found} == {-1, 0}


def test_export_skips_aborted_and_open_transactions(directory: Path, tmp_path: Path) -> None:
    report = exported(directory, tmp_path / "out", selection=Selection(topics=("transactions",)))
    found = checked(tmp_path / "out")
    # Eight records and a marker per round; every second round is aborted; the last transaction is open.
    assert [row.offset for row in found] == [
        offset
        for turn in range(4)
        for offset in range(9 * turn, 9 * turn + 8)
        if turn % 2 == 0 or 3 <= offset - 9 * turn < 5
    ]
    assert report.topics["transactions"].partitions[0].offsets == [Range(0, 36)]


def test_export_internal_topics_only_if_named(directory: Path, tmp_path: Path) -> None:
    a_log(tmp_path / "data", "__consumer_offsets", 0, [plain(0, 3)])
    a_log(tmp_path / "data", "orders", 0, [plain(0, 3)])
    exported(tmp_path / "data", tmp_path / "a")
    assert {row.topic for row in checked(tmp_path / "a")} == {"orders"}
    exported(tmp_path / "data", tmp_path / "b", selection=Selection(topics=("__consumer_offsets",)))
    assert {row.topic for row in checked(tmp_path / "b")} == {"__consumer_offsets"}


def test_export_from_broker_equals_files(broker: Embedded, directory: Path, tmp_path: Path) -> None:
    topics = Selection(topics=("v0-gzip", "v1-none", "v2-zstd", "events", "transactions"))
    exported(directory, tmp_path / "files", selection=topics)
    exported(WireBackend(config(broker)), tmp_path / "wire", selection=topics)
    assert checked(tmp_path / "wire") == checked(tmp_path / "files")
    report = exported(WireBackend(config(broker)), tmp_path / "wire", selection=topics)
    assert (report.files, report.skipped) == (0, 400 * 3 + 3 * 120 + 36)
    assert report.topics["events"].topic_id is not None


def test_export_readable_by_other_libraries(directory: Path, tmp_path: Path) -> None:
    """pyarrow by the folders, and pandas: topic names that look like numbers stay strings."""
    exported(directory, tmp_path / "out", selection=Selection(topics=("v0-none", "v2-none")))
    hive = ds.partitioning(layout.PARTITIONING, flavor="hive")
    table = ds.dataset(tmp_path / "out", partitioning=hive).to_table()
    assert table.schema.names == [*layout.COLUMNS, "topic", "partition", "date"]
    assert table.schema.field("timestamp").type == layout.TIMESTAMP
    assert (table.num_rows, table.column("date").null_count) == (240, 120)
    frame = pd.read_parquet(tmp_path / "out" / "topic=v2-none")
    assert len(frame) == 120 and set(map(str, frame["date"])) == {"2023-11-14"}
    for _, _, part in tables(tmp_path / "out"):
        assert part.schema == layout.SCHEMA.remove_metadata()


@pytest.mark.parametrize("codec", CODECS)
def test_export_codecs(tmp_path: Path, codec: str) -> None:
    a_log(tmp_path / "data", "orders", 0, [some(0, 50, 2)])
    exported(tmp_path / "data", tmp_path / "out", form=Form(codec=codec))
    assert checked(tmp_path / "out") == expected_rows(tmp_path / "data", "orders")
    (path,) = visible(tmp_path / "out")
    group = pq.ParquetFile(tmp_path / "out" / path).metadata.row_group(0)
    assert group.column(4).compression == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert (group.column(0).statistics.min, group.column(0).statistics.max) == (0, 49)
    assert not group.column(4).is_stats_set


# --- days, names, sizes


@pytest.mark.slow
def test_export_many_days_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scaled: Callable[[int], int]
) -> None:
    """In bounded memory, with few files open: a day whose file was closed meanwhile continues in another file."""
    monkeypatch.setattr(tasks, "GROUP_BYTES", 2000)
    monkeypatch.setattr(tasks, "WAITING_BYTES", 3000)
    monkeypatch.setattr(tasks, "OPEN_FILES", 2)
    rng = random.Random(9)
    times = [-1, 0, DAY_MS - 1, DAY_MS, -2, -DAY_MS, NOW_MS, NOW_MS + DAY_MS]
    count = max(450, scaled(900))  # fewer do not fill a file for each day
    records = [Record(n, rng.choice(times), None, b"%d" % n, ()) for n in range(count)]
    records.sort(key=lambda record: rng.random() < 0.5 and record.timestamp)
    records = [record._replace(offset=n) for n, record in enumerate(records)]
    a_log(tmp_path / "data", "days", 0, [records[n : n + 30] for n in range(0, count, 30)])
    exported(FileBackend([str(tmp_path / "data")], window_bytes=4000), tmp_path / "out")
    found = checked(tmp_path / "out")
    assert [(row.offset, row.timestamp_ms) for row in found] == [(one.offset, one.timestamp) for one in records]
    dates = {place.date for place, _, _ in tables(tmp_path / "out")}
    assert dates == {None, "1970-01-01", "1970-01-02", "1969-12-31", "2023-11-14", "2023-11-15"}
    assert len(visible(tmp_path / "out")) > len(dates)


def test_export_timestamps_outside_datetime(tmp_path: Path) -> None:
    late = (layout.LAST_DAY + 1) * DAY_MS
    records = [Record(n, time, None, None, ()) for n, time in enumerate((late - 1, late, 9 * 10**15))]
    a_log(tmp_path / "data", "late", 0, [records])
    exported(tmp_path / "data", tmp_path / "out")
    found = {
        place.date: table.column("timestamp").cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
        for place, _, table in tables(tmp_path / "out")
    }
    assert found == {"9999-12-31": [late - 1], None: [late, 9 * 10**15]}


def test_export_file_names_and_sizes(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "orders", 0, [plain(n, 10) for n in range(0, 100, 10)])
    exported(tmp_path / "data", tmp_path / "rows", form=Form(rows_per_file=40))
    folder = "topic=orders/partition=0/date=2023-11-14"
    assert visible(tmp_path / "rows") == [
        f"{folder}/{first:020d}-{last:020d}.parquet" for first, last in ((0, 39), (40, 79), (80, 99))
    ]
    exported(tmp_path / "data", tmp_path / "bytes", form=Form(file_bytes=1))
    assert [name.last for _, name, _ in tables(tmp_path / "bytes")] == [99]  # row groups are not split
    assert checked(tmp_path / "rows") == checked(tmp_path / "bytes") == expected_rows(tmp_path / "data", "orders")
    a_log(tmp_path / "data", "small", 0, [plain(n, 10) for n in range(0, 100, 10)], segment_bytes=300)
    assert len(list((tmp_path / "data" / "small-0").glob("*.log"))) == 10
    for part_bytes, count in ((10**6, 1), (1000, 2), (10, 10)):
        out, only = tmp_path / str(part_bytes), Selection(topics=("small",))
        exported(tmp_path / "data", out, selection=only, part_bytes=part_bytes, form=Form(file_bytes=2 * part_bytes))
        assert len(checked(out)) == 100 and len(visible(out)) == count
    place = layout.Place("a/b=c %", 3, layout.NO_DAY)
    assert layout.place(str(place)) == place and str(place).startswith("topic=a%2Fb%3Dc%20%25/")
    assert layout.place("topic=a/partition=1/date=2023-02-30") is layout.place("topic=a/date=x") is None
    assert layout.file_name(str(layout.FileName(3, 7, 2))) == (3, 7, 2)
    assert layout.file_name("part-0000.parquet") is layout.file_name("g0-1-2.parquet") is None


# --- further runs


def test_export_second_run_adds_new_records_only(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """For any division of the log into segments and pieces, and any earlier range."""
    rng = random.Random(4)
    at = {0: 0, 1: 0}
    for turn in range(min(scaled(6), 30)):
        for partition in at:
            batches = [plain(at[partition] + 10 * n, 10) for n in range(rng.randint(0, 4))]
            at[partition] += 10 * len(batches)
            a_log(tmp_path / "data", "orders", partition, batches, segment_bytes=600)
        before = {path: (tmp_path / "out" / path).stat().st_ino for path in visible(tmp_path / "out")}
        first = {TopicPartition("orders", n): rng.randint(0, end) for n, end in at.items()}
        request: dict[str, Any] = {"starting": AtOffsets(first)} if turn % 2 else {}
        report = exported(tmp_path / "data", tmp_path / "out", part_bytes=rng.choice((200, 10**6)), **request)
        after = {path: (tmp_path / "out" / path).stat().st_ino for path in visible(tmp_path / "out")}
        assert before.items() <= after.items() and len(after) == len(before) + report.files
        checked(tmp_path / "out")
    exported(tmp_path / "data", tmp_path / "out")
    assert checked(tmp_path / "out") == expected_rows(tmp_path / "data", "orders")
    assert exported(tmp_path / "data", tmp_path / "out").skipped == sum(at.values())


def test_export_between_timestamps(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "orders", 0, [plain(n, 10, NOW_MS + n) for n in range(0, 100, 10)])
    ends: dict[str, Any] = {"starting": AtTime(NOW_MS + 35), "ending": AtTime(NOW_MS + 61)}
    report = exported(tmp_path / "data", tmp_path / "out", **ends)
    assert [row.offset for row in checked(tmp_path / "out")] == list(range(35, 61))
    report = exported(tmp_path / "data", tmp_path / "out")
    assert report.topics["orders"].partitions[0].offsets == [Range(0, 35), Range(61, 100)]
    assert checked(tmp_path / "out") == expected_rows(tmp_path / "data", "orders")


def test_export_offsets_without_records_read_once(directory: Path, tmp_path: Path) -> None:
    """Markers, aborted records, and records removed by compaction: read once, without a file."""
    ends = {TopicPartition("transactions", 0): 9}, {TopicPartition("transactions", 0): 12}
    only = Selection(topics=("transactions",))
    report = exported(
        directory, tmp_path / "out", selection=only, starting=AtOffsets(ends[0]), ending=AtOffsets(ends[1])
    )
    assert (report.records, report.files, report.topics["transactions"].partitions[0].offsets) == (0, 0, [(9, 12)])
    report = exported(directory, tmp_path / "out", selection=only)
    assert report.topics["transactions"].partitions[0].offsets == [(0, 9), (12, 36)] and report.skipped == 3


def test_export_deleted_records_reported_once(tmp_path: Path) -> None:
    """Exported records stay; the others are reported as deleted once."""
    a_log(tmp_path / "data", "orders", 0, [plain(n, 10) for n in range(0, 40, 10)], segment_bytes=300)
    exported(tmp_path / "data", tmp_path / "out", ending=AtOffsets({TopicPartition("orders", 0): 15}))
    logs = sorted((tmp_path / "data" / "orders-0").glob("*.log"))
    for path in logs[:3]:
        path.unlink()
    assert int(logs[3].stem) == 30
    with pytest.raises(DataLoss, match="orders-0: offsets 15 to 29 were deleted before they were exported"):
        exported(tmp_path / "data", tmp_path / "out", fail_on_loss=True)
    report = exported(tmp_path / "data", tmp_path / "out")
    assert report.topics["orders"].partitions[0].gone == Range(15, 30) and report.gone == 15
    assert "! partition 0: offsets 15 to 29 were deleted before they were exported" in report.to_text()
    assert [row.offset for row in checked(tmp_path / "out")] == [*range(15), *range(30, 40)]
    assert exported(tmp_path / "data", tmp_path / "out").gone == 0
    assert [(*one.range, one.gone) for commit in commits(DISK, str(tmp_path / "out")) for one in commit.exported] == [
        (0, 15, False),
        (30, 40, False),
        (15, 30, True),
    ]
    # For a log that was never exported, nothing is known to be missing.
    assert exported(tmp_path / "data", tmp_path / "other", fail_on_loss=True).records == 10


def test_export_records_deleted_during_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_log(tmp_path / "data", "orders", 0, [plain(n, 10) for n in range(0, 40, 10)], segment_bytes=300)
    pieces = FileBackend.pieces

    def deleted_then(self: FileBackend, ranges: list[OffsetRange], *others: Any, **options: Any) -> Any:
        found = pieces(self, ranges, *others, **options)
        min((tmp_path / "data" / "orders-0").glob("*.log")).unlink()
        return found

    monkeypatch.setattr(FileBackend, "pieces", deleted_then)
    with pytest.raises(DataLoss):
        exported(tmp_path / "data", tmp_path / "out", fail_on_loss=True)
    report = exported(tmp_path / "data", tmp_path / "other")
    assert [row.offset for row in checked(tmp_path / "other")] == list(range(20, 40))
    assert "! orders-0: offsets 10 to 19 no longer exist" in report.to_text()
    (one,) = {one for one, _ in exported_files(DISK, str(tmp_path / "other"))}
    assert (one.start, one.end) == (10, 40) and one.lost.startswith(
        "orders-0: offsets 10 to 19 no longer exist: the log now begins"
    )


def recreated(tmp_path: Path, topic_id: bytes, batches: int) -> None:
    for path in sorted((tmp_path / "data").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    a_log(tmp_path / "data", "orders", 0, [plain(10 * n, 10, NOW_MS + 5) for n in range(batches)], topic_id=topic_id)


def test_export_recreated_topic(tmp_path: Path) -> None:
    recreated(tmp_path, ID, 2)
    exported(tmp_path / "data", tmp_path / "out")
    for topic_id, batches, why in (
        (ID[::-1], 3, "its id is Dw4NDAsKCQgHBgUEAwIBAA, but was AAECAwQFBgcICQoLDA0ODw"),
        (ID, 1, "orders-0 ends at offset 10, but was exported up to 20"),
        (bytes(16), 1, "orders-0 ends at offset 10, but was exported up to 20"),
    ):
        recreated(tmp_path, topic_id, batches)
        with pytest.raises(ExportError, match=f"topic orders is not the one that was exported before: {why}"):
            exported(tmp_path / "data", tmp_path / "out")
    assert len(checked(tmp_path / "out")) == 20
    recreated(tmp_path, ID[::-1], 3)
    report = exported(tmp_path / "data", tmp_path / "out", new_generation=True)
    assert (report.records, report.topics["orders"].generation) == (30, 1)
    assert sorted(name.generation for _, name, _ in tables(tmp_path / "out")) == [0, 1]
    assert len(checked(tmp_path / "out")) == 50
    assert exported(tmp_path / "data", tmp_path / "out").skipped == 30
    assert exported(tmp_path / "data", tmp_path / "out", new_generation=True).skipped == 30


# --- folders


def test_export_foreign_folder_refused(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "orders", 0, [plain(0, 10)])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ExportError, match="full is not empty, and is not an export"):
        exported(tmp_path / "data", tmp_path / "full")
    with pytest.raises(ExportError, match="x is not a folder"):
        exported(tmp_path / "data", tmp_path / "full" / "x")
    out = tmp_path / "out"
    exported(tmp_path / "data", out)
    with pytest.raises(
        ExportError, match="with isolation read_committed, not read_uncommitted: use the same or another folder"
    ):
        exported(tmp_path / "data", out, settings=UNCOMMITTED)
    with pytest.raises(ExportError, match="with decoding none, not json: use the same or another folder"):
        exported(tmp_path / "data", out, settings=Settings(decoding={"kind": "json", "schema": None}))
    held = DISK.lock(posixpath.join(str(out), layout.LOCK))
    with pytest.raises(ExportError, match="out is in use by another export"):
        exported(tmp_path / "data", out)
    held.release()
    (document,) = (out / layout.MANIFEST).iterdir()
    whole = document.read_text()
    for damaged, why in (
        (whole[:-9], "is not a document of an export"),
        (whole.replace('"version": 1', '"version": 2'), "has version 2, this release supports 1"),
        (whole.replace('"number": 1', '"number": 2'), "is out of order"),
    ):
        document.write_text(damaged)
        with pytest.raises(ExportError, match=why):
            exported(tmp_path / "data", out)
    document.write_text(whole)
    (out / layout.SETTINGS).write_text("{}")
    with pytest.raises(ExportError, match=r"_ottla/export.json is not a valid settings file"):
        exported(tmp_path / "data", out)
    (out / layout.SETTINGS).unlink()
    with pytest.raises(ExportError, match=r"has files, but no _ottla/export.json"):
        exported(tmp_path / "data", out)


def test_export_damage_fails_or_skipped(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "orders", 0, [plain(n, 10) for n in range(0, 40, 10)], segment_bytes=300)
    log = sorted((tmp_path / "data" / "orders-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(ReadError, match="does not match its CRC"):
        exported(tmp_path / "data", tmp_path / "out", part_bytes=300)
    assert [row.offset for row in rows(tmp_path / "out")] == list(range(10))  # pieces committed before the error stay
    report = exported(tmp_path / "data", tmp_path / "out", on_corrupt="skip")
    assert [row.offset for row in checked(tmp_path / "out")] == [*range(10), *range(20, 40)]
    assert report.skipped == 10


def test_export_directory_in_use(tmp_path: Path) -> None:
    """Takes no lock, and leaves records above the high watermark to a later run."""
    a_log(tmp_path / "data", "orders", 0, [plain(0, 10)])
    directory = DataDirectory.open(DISK, tmp_path / "data", node_id=1)
    log = directory.open_partition("orders", 0, config=LogConfig(), now_ms=NOW_MS)
    log.append(bytearray(entry(plain(10, 5), 2, Codec.NONE)), now_ms=NOW_MS)
    assert exported(tmp_path / "data", tmp_path / "out").records == 10
    directory.close()
    assert exported(tmp_path / "data", tmp_path / "out").records == 5
    assert len(checked(tmp_path / "out")) == 15


# --- ranges


def test_ranges() -> None:
    rng = random.Random(2)

    def some_ranges() -> Iterator[Range]:
        for _ in range(rng.randint(0, 6)):
            start = rng.randint(0, 30)
            yield Range(start, start + rng.randint(0, 8))

    for _ in range(300):
        given = list(some_ranges())
        inside = {offset for one in given for offset in range(*one)}
        covered = merged(given)
        assert [offset for one in covered for offset in range(*one)] == sorted(inside)
        assert all(one.end < other.start for one, other in pairwise(covered))
        left = without(Range(5, 25), covered)
        assert [offset for one in left for offset in range(*one)] == sorted(set(range(5, 25)) - inside)


def test_manifest_lists_files(tmp_path: Path) -> None:
    recreated(tmp_path, ID, 2)
    exported(tmp_path / "data", tmp_path / "out")
    ((one, file),) = exported_files(DISK, str(tmp_path / "out"))
    assert (one.topic, one.topic_id, one.start, one.end, one.records) == ("orders", "AAECAwQFBgcICQoLDA0ODw", 0, 20, 20)
    assert (file.rows, file.min_timestamp, file.max_timestamp) == (20, NOW_MS + 5, NOW_MS + 14)
    assert file.bytes == (tmp_path / "out" / file.path).stat().st_size
