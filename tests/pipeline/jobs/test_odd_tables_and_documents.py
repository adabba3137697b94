"""Exports, imports and replays with unusual input: timestamps, tables, names, sizes, and invalid manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.broker.metadata.adopted_data import HOLES_MAX
from ottla.pipeline.backend import OffsetRange, ReadError
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export import arguments, layout
from ottla.pipeline.jobs.export.commit import Settings
from ottla.pipeline.jobs.export.manifest import Commit, Exported, ExportedFile, ExportError
from ottla.pipeline.jobs.import_ import files, rows
from ottla.pipeline.jobs.import_ import plan as pieces
from ottla.pipeline.jobs.import_.adoption import Target, fill
from ottla.pipeline.jobs.import_.tasks import Layout
from ottla.pipeline.jobs.replay import schedule
from ottla.pipeline.jobs.replay.tasks import COLUMNS
from ottla.pipeline.jobs.verify.listing import listed as verified_files
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla.storage.io.files import DiskFiles
from ottla_testing.pipeline.export_samples import a_log, exported, tables, visible
from ottla_testing.pipeline.import_samples import here, planned, put, put_records, some
from ottla_testing.pipeline.logs_samples import wanted

NANOSECONDS = 1_700_000_000_000_000_000  # nanoseconds in the place of milliseconds, as some producers write them
TIMES = [NANOSECONDS, NANOSECONDS + 1, -1, 0, 2**62]


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """Writes a log with such timestamps."""
    for number, time in enumerate(TIMES):  # one batch each: timestamp deltas are bounded
        a_log(tmp_path / "data", "far", 0, [[Record(number, time, None, b"v", ())]])
    return tmp_path / "data"


# -- timestamps


def test_timestamps_beyond_spark_round_trip(far: Path, tmp_path: Path) -> None:
    exported(far, tmp_path / "lake")
    plan, identity = planned(tmp_path / "lake")
    fill(plan, "lake", Target(DiskFiles(), str(tmp_path / "back")), identity, Layout(), here, now_ms=0)
    columns = wanted("offset", layout.EXACT_TIME.name)
    logs = FileBackend([str(tmp_path / "back")]).pieces([OffsetRange("far", 0, 0, len(TIMES))], columns)
    found = [row for piece in logs for some_rows in piece.read() for row in some_rows.to_pylist()]
    assert [(row["offset"], row["timestampMs"]) for row in found] == list(enumerate(TIMES))


def test_replay_keeps_extreme_timestamps(far: Path) -> None:
    logs = FileBackend([str(far)]).pieces([OffsetRange("far", 0, 0, len(TIMES))], wanted(*COLUMNS))
    assert [int(time) for piece in logs for found in piece.read() for time in schedule.milliseconds(found)] == TIMES


def test_delta_table_clamps_timestamps(far: Path, tmp_path: Path) -> None:
    from ottla.pipeline.jobs.export.tasks import Form

    exported(far, tmp_path / "lake", form=Form(format="delta"), settings=Settings("delta"))
    times = [table.column("timestamp").cast("int64") for _, _, table in tables(tmp_path / "lake")]
    found = {time for column in times for time in column.to_pylist()}
    assert found == {None, 0, (2**63 - 1) // 1000 * 1000}


# -- Delta


def test_delta_table_in_folder_with_space(tmp_path: Path) -> None:
    from ottla.pipeline.jobs.export.tasks import Form

    a_log(tmp_path / "data", "a.b_c-1", 0, [some(5)])
    exported(tmp_path / "data", tmp_path / "la ké#", form=Form(format="delta"), settings=Settings("delta"))
    (file,) = files.listed(tmp_path / "la ké#")
    assert Path(file.path).is_file() and file.topic == "a.b_c-1"
    with pytest.raises(ExportError, match="does not support %"):
        arguments.check_folder("/lake/100%25", "delta", [])
    arguments.check_folder("/lake/100%25", "parquet", [])


def test_nested_delta_table_refused(tmp_path: Path) -> None:
    import deltalake

    for value in (b"old", b"new"):
        deltalake.write_deltalake(str(tmp_path / "all" / "one"), pa.table({"value": [value]}), mode="overwrite")
    assert len(files.listed(tmp_path / "all" / "one")) == 1
    with pytest.raises(ReadError, match=r"one is a Delta table: import it alone"):
        files.listed(tmp_path / "all")


FIRST_ROW = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000",
    "sizeInBytes": 34,
    "cardinality": 1,
}
"""A deletion vector with row 0: its magic number and a bitmap, in Z85."""


def test_deleted_rows_of_table_not_read(tmp_path: Path) -> None:
    import deltalake

    deltalake.write_deltalake(str(tmp_path), pa.table({"value": [b"x"]}))
    log = tmp_path / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (added,) = (line["add"] for line in first if "add" in line)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    log_line = json.dumps({"protocol": {**protocol, **features}}) + "\n"
    (log / f"{1:020d}.json").write_text(log_line)
    assert len(files.listed(tmp_path)) == 1  # no row is deleted yet
    removed = {"path": added["path"], "dataChange": True, "deletionTimestamp": 1}
    lines = [json.dumps(one) + "\n" for one in ({"remove": removed}, {"add": {**added, "deletionVector": FIRST_ROW}})]
    (log / f"{2:020d}.json").write_text("".join(lines))
    for listed in (files.listed, lambda path: verified_files(str(path), Settings("delta"))):
        with pytest.raises(ReadError, match="has deleted rows in deletion vectors: purge them first"):
            listed(tmp_path)


def test_renamed_columns_of_table_not_imported(tmp_path: Path) -> None:
    import deltalake

    deltalake.write_deltalake(str(tmp_path), pa.table({"value": [b"x"]}))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["columnMapping"]}
    log = tmp_path / "_delta_log" / f"{1:020d}.json"
    log.write_text(json.dumps({"protocol": {**protocol, **features}}) + "\n")
    with pytest.raises(ReadError, match=r"has columns under other names in its files \(columnMapping\)"):
        files.listed(tmp_path)


# -- unusual Parquet


@pytest.mark.parametrize("name", [b"value", b"topic", b"other"])
def test_column_name_invalid_utf8_refused(tmp_path: Path, name: bytes) -> None:
    path = put(tmp_path, "a.parquet", value=[b"x"], topic=["t"], other=[1])
    data = path.read_bytes()
    assert name in data
    path.write_bytes(data.replace(name, b"\xff" + name[1:]))
    with pytest.raises(ReadError, match=r"a\.parquet"):
        planned(tmp_path, to_topic="t")


def test_rows_of_mixed_sizes_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    value = np.random.default_rng(1).bytes(1 << 20)
    with pq.ParquetWriter(path, pa.schema({"value": pa.binary()}), compression="none", use_dictionary=False) as writer:
        writer.write_table(pa.table({"value": [b"x"] * 60_000}))
        writer.write_table(pa.table({"value": [value] * 24}))
    sizes = [found.nbytes for found in rows.of_file(rows.FilePart(str(path), None, None, 0, True))]
    assert sum(sizes) > 24 << 20 and max(sizes) <= rows.READ_BYTES + (3 << 20)


def test_row_group_not_loaded_at_once(tmp_path: Path) -> None:
    path, value = tmp_path / "a.parquet", np.random.default_rng(2).bytes(8 << 10)
    table = pa.table({"value": pa.array([value] * 6_000)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    assert pq.read_metadata(path).num_row_groups == 1
    del table
    before, most = pa.total_allocated_bytes(), 0
    for _ in rows.of_file(rows.FilePart(str(path), None, None, 0, True)):
        most = max(most, pa.total_allocated_bytes() - before)
    assert path.stat().st_size > 45 << 20 and most < 40 << 20


def test_many_overlapping_files_not_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "OPEN_FILES", 4)
    count, each = 9, 7
    for number in range(count):
        put_records(tmp_path, "t", 0, some(each, number, gap=count), name=f"{number}")
    plan, _ = planned(tmp_path)
    open_now, most = 0, 0
    real = rows.opened

    @contextmanager
    def counted(*of: Any) -> Iterator[Any]:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        with real(*of) as file:
            yield file
        open_now -= 1

    monkeypatch.setattr(rows, "opened", counted)
    (piece,) = plan.pieces
    assert [at for found in piece.read() for at in found.column("offset").to_pylist()] == list(range(count * each))
    assert most == 1


def test_plan_inspects_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real: Any = pieces._Source.plain_bytes.fget  # type: ignore[attr-defined]

    def counted(source: Any) -> int:
        nonlocal looks
        looks += 1
        return real(source)

    monkeypatch.setattr(pieces._Source, "plain_bytes", property(counted))
    found = [
        files.Found(files.ParquetFile(f"/l/{n}", f"{n}", "t", 0), 10, 10, "", (files.Part("t", 0, 1, n, n, True),))
        for n in range(500)
    ]
    assert sum(piece.rows for piece in pieces.plan(found).pieces) == 500
    assert looks <= 1000


def test_topic_generations_not_mixed(tmp_path: Path) -> None:
    # The offsets of both would fit into each other.
    for number, offsets in enumerate((range(0, 10, 2), range(1, 10, 2))):
        name = str(layout.FileName(offsets[0], offsets[-1], number)).removesuffix(".parquet")
        put_records(tmp_path, "t", 0, [some(1, at)[0] for at in offsets], name=name)
    put_records(tmp_path, "other", 0, some(2))
    with pytest.raises(ReadError, match=r"several generations of topic t \(their names begin with no g and g1-\)"):
        planned(tmp_path)
    assert planned(tmp_path, topics=["other"])[0].rows == 2


def test_partition_with_too_many_gaps_refused(tmp_path: Path) -> None:
    put_records(tmp_path, "t", HOLES_MAX, some(1))
    assert planned(tmp_path)[0].partitions == {"t": HOLES_MAX + 1}
    put_records(tmp_path, "t", HOLES_MAX + 2, some(1))
    with pytest.raises(ReadError, match="topic t has rows of partition 10002, but none of 10001 below it"):
        planned(tmp_path)


# -- invalid manifests


@pytest.mark.parametrize("path", ["../kept", "{root}/kept", "topic=t/partition=0/date=2026-01-01/../../../../kept", 7])
def test_manifest_with_foreign_path_refused(tmp_path: Path, path: str | int) -> None:
    a_log(tmp_path / "data", "t", 0, [some(3)])
    exported(tmp_path / "data", tmp_path / "lake")
    (tmp_path / "kept").write_text("not of the export")
    name = path.format(root=tmp_path) if isinstance(path, str) else path
    lie = Commit(2, (Exported("t", None, 0, 0, 3, 4, files=(ExportedFile(name, 1, 1, 3, 3, None, None),)),))  # type: ignore[arg-type]
    (tmp_path / "lake" / layout.PENDING).write_bytes(lie.to_json())
    with pytest.raises(ExportError, match=r"pending\.json is not a document of an export"):
        exported(tmp_path / "data", tmp_path / "lake")
    assert (tmp_path / "kept").exists() and len(visible(tmp_path / "lake")) == 1


def test_manifest_with_invalid_numbers_refused(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "t", 0, [some(3)])
    exported(tmp_path / "data", tmp_path / "lake")
    place = tmp_path / "lake" / layout.MANIFEST / f"{1:020d}.json"
    place.write_text(place.read_text().replace('"end": 3', '"end": "3"'))
    with pytest.raises(ExportError, match=r"0001\.json is not a document of an export"):
        exported(tmp_path / "data", tmp_path / "lake")


# -- commands


@pytest.mark.parametrize("flags", [["--rate", "1e-320"], ["--speed", "1e30"], ["--rate", "nan"], ["--speed", "inf"]])
def test_replay_rate_or_speed_out_of_range_refused(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert pipeline(["replay", "data", "--bootstrap", "127.0.0.1:1", *flags]) == 2
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and f"{flags[0]} " in output and "from 1e-06 to 1e+09" in output


def test_export_into_data_directory_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_log(tmp_path / "data", "t", 0, [some(3)])
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for to in (tmp_path / "data" / "lake", tmp_path / "link" / "lake", tmp_path / "data" / "t-0"):
        assert pipeline(["export", str(tmp_path / "data"), "--to", str(to)]) == 2
        assert "the data directory of a broker" in capsys.readouterr().err
    assert not (tmp_path / "data" / "lake").exists()
    arguments.check_folder(str(tmp_path / "data2"), "parquet", [str(tmp_path / "data")])
