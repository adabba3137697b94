"""Parquet to segments: every record is imported, and a data directory gets all of them or none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.backend import ReadError, TopicPartition
from ottla.pipeline.jobs.import_.adoption import Target, fill
from ottla.pipeline.jobs.import_.report import ImportReport
from ottla.pipeline.jobs.import_.staging_folder import staging_path
from ottla.pipeline.jobs.import_.tasks import Layout
from ottla.protocol.records import formats
from ottla.storage.check.directory import Verification
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import LOCK
from ottla_testing.each import each
from ottla_testing.oracle.stored_directories import DIRECTORIES, RELEASES
from ottla_testing.pipeline.columnar_samples import FORMATS
from ottla_testing.pipeline.import_samples import NOW_MS, exported, here, planned, put_records, read, seen, some
from ottla_testing.pipeline.logs_samples import written
from ottla_testing.pipeline.wire_world import consumed


def imported(source: Path, target: Path, layout: Layout | None = None, **options: object) -> ImportReport:
    plan, identity = planned(source, **options)
    return fill(plan, str(source), Target(DiskFiles(), str(target)), identity, layout or Layout(), here, now_ms=NOW_MS)


def sound(target: Path) -> None:
    assert [finding for finding in Verification(target).findings() if finding.wrong] == []


def test_import_export_round_trip_all_formats(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    logs, target = tmp_path / "logs", tmp_path / "data"
    for number, (magic, of_codec) in enumerate(FORMATS):
        written(logs / f"t{magic}-{of_codec}", [(magic, of_codec, 1 + 5 * n) for n in range(scaled(4))], seed=number)
    written(logs / "mixed-0", [(m, c, 9) for m, c in FORMATS], seed=77, first=2**33, rolls=(5,))
    exported(logs, tmp_path / "parquet", rows_per_file=17)
    layout = Layout(codec=4, segment_bytes=20_000, batch_bytes=3_000, index_interval_bytes=500)
    report = imported(tmp_path / "parquet", target, layout)
    before = read(logs)
    assert read(target) == before
    assert any(time is None for found in before.values() for _, time, *_ in found)  # those of v0
    assert report.records == sum(map(len, before.values()))
    found = {(one.topic, one.partition): (one.first, one.end) for one in report.partitions}
    assert found == {tuple(key): (seen[0][0], seen[-1][0] + 1) for key, seen in before.items()}
    sound(target)
    assert not Path(staging_path(str(target))).exists()
    assert json.loads(report.to_json())["records"] == report.records
    assert f"{report.records} records" in report.to_text()


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_import_each_codec(tmp_path: Path, codec: int) -> None:
    put_records(tmp_path / "in", "t", 0, some(300))
    imported(tmp_path / "in", tmp_path / "data", Layout(codec=codec, batch_bytes=1000))
    (path,) = (tmp_path / "data" / "t-0").glob("*.log")
    assert {header.codec for _, header in formats.headers(path.read_bytes())} == {codec}
    assert read(tmp_path / "data") == {TopicPartition("t", 0): seen(some(300))}


@each("release", RELEASES, strided=True)
def test_import_kafka_records_readable_by_broker(tmp_path: Path, release: str) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(DIRECTORIES / release, logs)
    exported(logs, tmp_path / "parquet")
    imported(tmp_path / "parquet", tmp_path / "data", Layout(codec=4, segment_bytes=50_000))
    before = read(logs)
    with Embedded(data_dir=tmp_path / "data") as broker:
        for key, records in before.items():
            if key.partition == 0:
                found = [(one[1], None if one[2] == -1 else one[2], *one[4:]) for one in consumed(broker, key.topic)]
                assert found == records, key


def test_import_segments_equal_broker_segments(tmp_path: Path) -> None:
    put_records(tmp_path / "in", "t", 2, some(3000, 10, gap=2))
    report = imported(
        tmp_path / "in", tmp_path / "data", Layout(segment_bytes=20_000, batch_bytes=2_000, leader_epoch=3)
    )
    folder = tmp_path / "data" / "t-2"
    logs = sorted(path.name for path in folder.glob("*.log"))
    assert len(logs) == report.partitions[0].segments > 2 and logs[0] == f"{10:020d}.log"
    assert all(path.stat().st_size <= 20_000 for path in folder.glob("*.log"))
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n1\n3 10\n"
    assert (folder / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    assert [path.name for path in sorted(folder.glob("*.snapshot"))][-1] == f"{10 + 2 * 2999 + 1:020d}.snapshot"
    sound(tmp_path / "data")


def test_import_pieces_joined_to_partition(tmp_path: Path) -> None:
    records = some(400)
    for start in range(0, 400, 100):
        put_records(tmp_path / "in", "t", 0, records[start : start + 90], f"{start:03d}")
    put_records(tmp_path / "in", "t", 0, records[190:200], "late")  # after 100..189, before 200
    plan, _ = planned(tmp_path / "in", piece_bytes=1)
    assert len(plan.pieces) == 5
    imported(tmp_path / "in", tmp_path / "data", piece_bytes=1)
    kept = [r for r in records if r.offset % 100 < 90 or 190 <= r.offset < 200]
    assert read(tmp_path / "data") == {TopicPartition("t", 0): seen(kept)}
    assert sorted(p.name for p in (tmp_path / "data" / "t-0").iterdir()) == sorted(
        [f"{base:020d}.{end}" for base in (0, 100, 190, 200, 300) for end in ("log", "index", "timeindex")]
        + [f"{base:020d}.snapshot" for base in (190, 200, 390)]
        + ["leader-epoch-checkpoint", "partition.metadata"]
    )
    sound(tmp_path / "data")


# -- targets


def test_import_existing_topic_refused(tmp_path: Path) -> None:
    put_records(tmp_path / "in", "t", 0, some(5))
    imported(tmp_path / "in", tmp_path / "data")
    with pytest.raises(ReadError, match=r"topic t exists already in .*data: choose another name with --to-topic"):
        imported(tmp_path / "in", tmp_path / "data")
    imported(tmp_path / "in", tmp_path / "data", to_topic="u")
    found = read(tmp_path / "data")
    assert found[TopicPartition("t", 0)] == found[TopicPartition("u", 0)] == seen(some(5))
    sound(tmp_path / "data")
    with Embedded(data_dir=tmp_path / "data") as broker:
        for topic in ("t", "u"):
            assert [one[5] for one in consumed(broker, topic)] == [b"v%d" % n for n in range(5)]


def test_import_to_directory_with_metadata_log(tmp_path: Path) -> None:
    put_records(tmp_path / "in", "t", 0, some(5))
    put_records(tmp_path / "in", "t", 2, some(7))
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("mine")
        with pytest.raises(ReadError, match="in use by a broker"):
            imported(tmp_path / "in", tmp_path / "data")
    report = imported(tmp_path / "in", tmp_path / "data")
    assert report.records == 12
    with pytest.raises(ReadError, match="topic mine exists already"):
        imported(tmp_path / "in", tmp_path / "data", to_topic="mine")
    with Embedded(data_dir=tmp_path / "data") as broker:
        assert len(broker.topic("t").partitions) == 3
        assert [one[1] for one in consumed(broker, "t")] == [*range(5), *range(7)]
    assert not Path(staging_path(str(tmp_path / "data"))).exists()


def test_import_foreign_folder_refused(tmp_path: Path) -> None:
    put_records(tmp_path / "in", "t", 0, some(5))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.txt").write_text("dear")
    with pytest.raises(ReadError, match=r"not a data directory: it has letter\.txt"):
        imported(tmp_path / "in", tmp_path / "data")
    with pytest.raises(ReadError, match="is not a folder"):
        imported(tmp_path / "in", tmp_path / "data" / "letter.txt")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["letter.txt"]


# -- interruptions


class Killed(BaseException):
    """The process ended here."""


class Killing(DiskFiles):
    """The real disk; after `left` changes the process ends."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        if create:
            self._count()
        return super().open(path, create=create)

    def make_directory(self, path: str) -> None:
        self._count()
        super().make_directory(path)

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)

    def remove_directory(self, path: str) -> None:
        self._count()
        super().remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def in_process(files: DiskFiles):  # type: ignore[no-untyped-def]
    """Runs `ottla import-dir` on a disk that may end the process."""
    from ottla.tools.disk.import_dir import run_import

    def call(arguments):  # type: ignore[no-untyped-def]
        import re

        given = list(arguments)
        output: list[str] = []
        code = run_import(
            files,
            given[0],
            [Path(given[given.index("--data-dir") + 1])],
            output.append,
            wanted=re.compile(given[given.index("--topics") + 1]),
            dry_run="--dry-run" in given,
            move="--move" in given,
            now_ms=NOW_MS,
        )
        return code, "".join(output)

    return call


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["new", "kafka", "history"])
def test_import_interrupted_anywhere_second_run_completes(
    tmp_path: Path, kind: str, scaled: Callable[[int], int]
) -> None:
    for partition in (0, 1):
        for start in (0, 50):
            put_records(tmp_path / "in", "t", partition, some(50, start), f"{start}")
    put_records(tmp_path / "in", "u", 0, some(5, 7))
    plan, identity = planned(tmp_path / "in", piece_bytes=1)
    before = tmp_path / "before"
    if kind != "new":
        put_records(tmp_path / "old", "old", 0, some(3))
        imported(tmp_path / "old", before)
    if kind == "history":
        with Embedded(data_dir=before):
            pass
    expected = {TopicPartition("t", n): seen(some(50) + some(50, 50)) for n in (0, 1)}
    expected[TopicPartition("u", 0)] = seen(some(5, 7))
    if kind != "new":
        expected[TopicPartition("old", 0)] = seen(some(3))
    target = tmp_path / "data"

    def attempt(files: DiskFiles) -> ImportReport:
        def run(works):  # type: ignore[no-untyped-def]
            from ottla.pipeline.jobs.import_.tasks import write

            for work in works:
                yield work, write(work, files)

        place = Target(files, str(target), in_process(files))
        return fill(plan, "in", place, identity, Layout(), run, now_ms=NOW_MS)

    count = Killing(10**9)
    if kind != "new":
        shutil.copytree(before, target)
    attempt(count)
    steps = 10**9 - count.left
    shutil.rmtree(target)
    shutil.rmtree(staging_path(str(target)), ignore_errors=True)
    every = max(1, steps // scaled(4))
    for last in range(0, steps, every):
        if kind != "new":
            shutil.copytree(before, target)
        with pytest.raises(Killed):
            attempt(Killing(last))
        if kind == "new":
            assert not target.exists() or read(target) == expected, last
        elif kind == "history":
            known = Target(DiskFiles(), str(target)).existing(["t", "u"])
            whole = {key for key, found in read(target).items() if found == expected.get(key)}
            for topic in known:
                assert {key for key in expected if key.topic == topic} <= whole, last
        try:
            attempt(DiskFiles())
        except ReadError as error:
            # Everything was done, and the staging folder no longer has its identity.
            assert "exists already" in str(error), last
        found = read(target)
        assert {key: found[key] for key in expected} == expected, last
        sound(target)
        assert not [path for path in target.iterdir() if path.name.endswith("-delete")]
        shutil.rmtree(target)
        shutil.rmtree(staging_path(str(target)), ignore_errors=True)


def test_import_refused_while_another_is_unfinished(tmp_path: Path) -> None:
    put_records(tmp_path / "in", "t", 0, some(5))
    put_records(tmp_path / "more", "u", 0, some(5))
    staging = Path(staging_path(str(tmp_path / "data")))
    staging.mkdir()
    (staging / "adding.json").write_text("{}")
    with pytest.raises(ReadError, match=r"another import to .* was interrupted"):
        imported(tmp_path / "in", tmp_path / "data")
    (staging / "adding.json").unlink()
    lock = DiskFiles().lock(str(staging / LOCK))
    try:
        with pytest.raises(ReadError, match=r"another import to .* is running"):
            imported(tmp_path / "in", tmp_path / "data")
    finally:
        lock.release()
    imported(tmp_path / "more", tmp_path / "data")
    assert read(tmp_path / "data") == {TopicPartition("u", 0): seen(some(5))}
