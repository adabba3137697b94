"""Exports compared with their logs: what differs is found, by offset, in folders and in tables; nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.broker import Embedded
from ottla.pipeline.backend import Selection
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Committer, Settings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla.pipeline.jobs.verify.compare import compare
from ottla.pipeline.jobs.verify.plan import plan
from ottla.pipeline.jobs.verify.report import VerifyReport
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.wire import WireBackend
from ottla.protocol.records.batch import Header, Record
from ottla_testing.pipeline.export_samples import DAY_MS, NOW_MS, a_log, exported, iceberg, visible
from ottla_testing.pipeline.wire_world import config

FORMATS: tuple[Format, ...] = ("parquet", "delta", "iceberg")
COUNT = 12


def some(first: int, count: int) -> list[Record]:
    """Records of two days, the first without a timestamp."""
    return [
        Record(n, NOW_MS + n % 2 * DAY_MS if n else -1, None if n == 3 else b"k", b"v%d" % n, (Header("h", None),))
        for n in range(first, first + count)
    ]


def verified(
    source: Path | WireBackend, root: Path, *, selection: Selection | None = None, **options: Any
) -> VerifyReport:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    backend = FileBackend([str(source)], part_bytes=300) if isinstance(source, Path) else source
    with backend as logs:
        made = plan(logs, str(root), selection or Selection(), **options)
        report = VerifyReport(made)
        for check in made.checks:
            report.add(check, compare(check))
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    return report


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for partition in (0, 1):
        batches = [some(at, 3) for at in range(0, COUNT, 3)]
        a_log(tmp_path / "data", "orders", partition, batches, segment_bytes=200)
    return tmp_path / "data"


def lake(data: Path, kind: Format) -> Path:
    exported(data, data.parent / "lake", form=Form(format=kind, rows_per_file=2), settings=Settings(kind))
    return data.parent / "lake"


def counts(report: VerifyReport, partition: int = 0) -> dict[str, int]:
    (found,) = (one.counts for key, one in report.partitions.items() if key.partition == partition)
    names = ("records", "rows", "missing", "extra", "repeated", "changed", "deleted", "unreadable")
    return {name: number for name in names if (number := getattr(found, name))}


def test_verify_equal(data: Path, kind: Format) -> None:
    root = lake(data, kind)
    report = verified(data, root)
    assert report.differences == 0
    assert [counts(report, n) for n in (0, 1)] == [{"records": COUNT, "rows": COUNT}] * 2
    assert report.to_text() == (
        "orders-0: 12 records in the log, 12 rows\norders-1: 12 records in the log, 12 rows\n"
        f"24 records, 24 rows in {root}: no difference\n"
    )


def test_verify_records_after_export_not_compared(data: Path, kind: Format) -> None:
    root = lake(data, kind)
    a_log(data, "orders", 0, [some(COUNT, 3)])
    a_log(data, "users", 0, [some(0, 3)])
    report = verified(data, root)
    assert report.differences == 0 and counts(report) == {"records": COUNT, "rows": COUNT}
    assert verified(data, root, selection=Selection(pattern="or.*")).differences == 0


def test_verify_topics_are_named_and_match() -> None:
    assert Selection.named(["orders", "users"], "o.*") == Selection(topics=("orders",))


def changed(root: Path, path: str, change: Callable[[pa.Table], pa.Table]) -> None:
    with pq.ParquetFile(root / path) as file:
        table = change(file.read())
    pq.write_table(table, root / path)


def replaced(name: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(name).to_pylist()
        values[row] = value
        index = table.schema.get_field_index(name)
        return table.set_column(index, table.schema.field(name), pa.array(values, table.schema.field(name).type))

    return change


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("value", b"other", "value is b'v2' in the log, b'other' in the export"),
        ("value", None, "value is b'v2' in the log, null in the export"),
        ("value", b"x" * 100, f"value is b'v2' in the log, {b'x' * 32!r}... (100 bytes) in the export"),
        ("key", b"", "key is b'k' in the log, b'' in the export"),
        ("headers", None, "headers is [{'key': 'h', 'value': None}] in the log, null in the export"),
        ("timestampType", 1, "timestampType is 0 in the log, 1 in the export"),
        ("timestamp", None, f"timestamp is {NOW_MS} in the log, -1 in the export"),
    ],
)
def test_verify_changed_value_found(data: Path, kind: Format, column: str, value: Any, text: str) -> None:
    root = lake(data, kind)
    (path,) = (path for path in visible(root) if "partition=0" in path and "2023-11-14" in path and "0002-" in path)
    changed(root, path, replaced(column, 0, value))
    report = verified(data, root)
    assert counts(report) == {"records": COUNT, "rows": COUNT, "changed": 1}
    assert counts(report, 1) == {"records": COUNT, "rows": COUNT}
    assert f"  ! offset 2: {text}\n" in report.to_text()
    assert [one for one in report.problems if "bytes, but was written with" not in one] == []


def test_verify_rows_missing_repeated_and_foreign(data: Path, kind: Format) -> None:
    root = lake(data, kind)
    first, second, *_ = (path for path in visible(root) if "partition=0" in path and "2023-11-15" in path)
    assert first.endswith(f"{1:020d}-{3:020d}.parquet")
    changed(root, first, lambda table: table.slice(1))
    changed(root, second, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    report = verified(data, root)
    assert counts(report) == {"records": COUNT, "rows": COUNT, "missing": 1, "repeated": 1}
    assert "  ! offset 1: not in the export\n" in report.to_text() and ": repeated\n" in report.to_text()
    changed(root, second, replaced("offset", -1, 5000))
    report = verified(data, root)
    assert counts(report)["missing"] == 1
    if kind == "parquet":  # the name of the file bounds its offsets no longer
        assert any("bytes, but was written with" in one for one in report.problems)


def test_verify_day_of_folder(data: Path) -> None:
    root = lake(data, "parquet")
    path = next(path for path in visible(root) if "2023-11-15" in path)
    other = root / path.replace("2023-11-15", "2023-11-17")
    other.parent.mkdir()
    (root / path).rename(other)
    report = verified(data, root)
    assert "day is 2023-11-15 in the log, 2023-11-17 in the export" in report.to_text()
    assert report.problems == [f"{path} is missing", f"{other.relative_to(root)} is not in the manifest"]


def test_verify_files_missing_or_damaged(data: Path, kind: Format) -> None:
    root = lake(data, kind)
    first, second, *_ = (path for path in visible(root) if "partition=1" in path)
    (root / first).unlink()
    whole = (root / second).read_bytes()
    (root / second).write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
    report = verified(data, root)
    assert f"{first} is missing" in report.problems
    assert f"{Path(second).name} cannot be read: " in report.to_text()
    assert counts(report, 1)["missing"] >= 2 and counts(report) == {"records": COUNT, "rows": COUNT}


def test_verify_table_compacted_by_others(data: Path) -> None:
    root = lake(data, "delta")
    from deltalake import DeltaTable

    DeltaTable(str(root)).optimize.compact()
    report = verified(data, root)
    assert report.differences == 0 and counts(report) == {"records": COUNT, "rows": COUNT}


def test_verify_iceberg_table_changed_by_others(data: Path) -> None:
    root = lake(data, "iceberg")
    with iceberg(root) as table:
        table.overwrite(table.scan().to_arrow())
    report = verified(data, root)
    assert report.differences == 0 and counts(report) == {"records": COUNT, "rows": COUNT}
    with iceberg(root) as table:
        table.delete("offset = 4 and partition = 0")
        table.append(table.scan(row_filter="offset = 6 and partition = 1").to_arrow())
    report = verified(data, root)
    assert counts(report) == {"records": COUNT, "rows": COUNT - 1, "missing": 1}
    assert counts(report, 1) == {"records": COUNT, "rows": COUNT + 1, "repeated": 1}
    with iceberg(root) as table:
        rows = table.scan(row_filter="offset = 6").to_arrow()
        table.append(rows.set_column(0, rows.schema.field(0), pa.array([99] * 3)))
    assert [counts(verified(data, root), n)["extra"] for n in (0, 1)] == [1, 2]


def test_verify_records_deleted_from_log(data: Path, kind: Format) -> None:
    """Rows before the start of the log are counted; a log that lost its end is a difference."""
    root = lake(data, kind)
    segments = sorted((data / "orders-0").glob("*.log"))
    for segment in segments[:2]:
        for file in segment.parent.glob(f"{segment.stem}.*"):
            file.unlink()
    start = int(segments[2].stem)
    report = verified(data, root)
    assert report.differences == 0 and counts(report) == {
        "records": COUNT - start,
        "rows": COUNT,
        "deleted": start,
    }
    for segment in segments[-1:]:
        for file in segment.parent.glob(f"{segment.stem}.*"):
            file.unlink()
    report = verified(data, root)
    end = int(segments[-1].stem)
    assert f"orders-0: the log ends at offset {end}, the export at 12" in report.problems
    assert counts(report)["extra"] == COUNT - end


def test_verify_log_cleaned_since(data: Path) -> None:
    root = lake(data, "parquet")
    segments = sorted((data / "orders-0").glob("*.log"))
    segments[1].unlink()
    first, count = int(segments[1].stem), int(segments[2].stem) - int(segments[1].stem)
    report = verified(data, root)
    assert counts(report)["extra"] == count and f"  ! offset {first}: not in the log\n" in report.to_text()
    report = verified(data, root, compacted=True)
    assert counts(report) == {"records": COUNT - count, "rows": COUNT, "deleted": count} and not report.differences


def test_verify_newest_generation_only(tmp_path: Path) -> None:
    a_log(tmp_path / "a", "orders", 0, [some(0, 6)], topic_id=b"a" * 16)
    exported(tmp_path / "a", tmp_path / "lake")
    a_log(tmp_path / "b", "orders", 0, [some(0, 2)], topic_id=b"b" * 16)
    with pytest.raises(ExportError, match="topic orders is not the one that was exported: its id is"):
        verified(tmp_path / "b", tmp_path / "lake")
    exported(tmp_path / "b", tmp_path / "lake", new_generation=True)
    report = verified(tmp_path / "b", tmp_path / "lake")
    assert report.differences == 0 and counts(report) == {"records": 2, "rows": 2}


def test_verify_against_brokers(broker: Embedded, directory: Path, tmp_path: Path) -> None:
    topics = Selection(topics=("v1-none", "v2-zstd", "transactions"))
    exported(directory, tmp_path / "lake", selection=topics)
    report = verified(WireBackend(config(broker)), tmp_path / "lake")
    assert report.differences == 0 and {key.topic for key in report.partitions} == set(topics.topics or ())
    assert sum(one.counts.rows for one in report.partitions.values()) > 240


def test_verify_refusals(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is not the folder of an export: it has no _ottla/export"):
        verified(data, data)
    root = lake(data, "parquet")
    with Committer(str(root), Settings()), pytest.raises(ExportError, match="is in use by an export"):
        verified(data, root)
    (root / layout.PENDING).write_text("{}")
    with pytest.raises(ExportError, match="has an interrupted commit: run that export again first"):
        verified(data, root)
    (root / layout.PENDING).unlink()
    a_log(tmp_path / "users", "users", 0, [some(0, 2)])
    report = verified(tmp_path / "users", root)
    assert report.absent == ["orders"] and "orders is not in the logs, and was not compared" in report.to_text()
    (root / "x.parquet").write_bytes(b"")
    with pytest.raises(ExportError, match=r"x\.parquet is not a file of an export"):
        verified(data, root)


def test_verify_report_document(data: Path) -> None:
    root = lake(data, "parquet")
    path = next(path for path in visible(root) if "partition=0" in path and f"{2:020d}-" in path)
    (root / path).unlink()
    report = json.loads(verified(data, root).to_json())
    assert (report["folder"], report["format"], report["differences"]) == (str(root), "parquet", 3)
    first, second = report["partitions"]
    assert first["first"] == [{"offset": offset, "text": "not in the export"} for offset in (2, 4)]
    assert second["first"] == [] and report["problems"] == [f"{path} is missing"]
