"""Tables of Delta and Iceberg as sources of an import: the rows of their newest version, and no others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipeline.backend import ReadError, TopicPartition
from ottla.pipeline.jobs.export.commit import Settings, opener
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla.pipeline.jobs.import_ import files, sources
from ottla.pipeline.jobs.import_.adoption import Target, fill
from ottla.pipeline.jobs.import_.plan import plan
from ottla.pipeline.jobs.import_.report import ImportReport
from ottla.pipeline.jobs.import_.tasks import Layout
from ottla.protocol.records.batch import Header, Record
from ottla.storage.io.files import DiskFiles
from ottla_testing.pipeline.export_samples import DAY_MS, a_log, exported, iceberg
from ottla_testing.pipeline.import_samples import NOW_MS, here, read


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for topic in ("orders", "users"):
        for partition in (0, 1):
            records = [
                Record(n, NOW_MS + n % 2 * DAY_MS, b"k%d" % n, None if n == 2 else b"v", (Header("h", b"x"),))
                for n in range(8)
            ]
            a_log(tmp_path / "logs", topic, partition, [records])
    return tmp_path / "logs"


def imported(tmp_path: Path, found: sources.SourceFiles, **options: Any) -> ImportReport:
    looked = [files.look(file) for file in found.files]
    target = Target(DiskFiles(), str(tmp_path / "data"))
    return fill(plan(looked, **options), found.name, target, files.identity(looked), Layout(), here, now_ms=NOW_MS)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_import_of_exported_table(logs: Path, tmp_path: Path, kind: Format) -> None:
    exported(logs, tmp_path / "lake", form=Form(format=kind, rows_per_file=3), settings=Settings(kind))
    report = imported(tmp_path, sources.listed(tmp_path / "lake"))
    assert report.records == 32 and report.source == str(tmp_path / "lake")
    assert read(tmp_path / "data") == read(logs)


def test_import_of_table_in_catalog(logs: Path, tmp_path: Path) -> None:
    """By catalog and name, without the folder; or with both."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}
    settings = ExportSettings(format="iceberg", table="raw.kafka", catalog=properties)
    root = str(tmp_path / "lake")
    table = opener(root, settings.form(), settings.catalog_table(root))
    exported(logs, root, form=settings.form(), settings=settings.of_folder(), table=table)
    with pytest.raises(ReadError, match=r"has the Iceberg table raw\.kafka, sql catalog: give its catalog"):
        sources.listed(root)
    found = sources.listed(None, "raw.kafka", properties)
    assert found == sources.listed(root, "raw.kafka", properties) and found.name == "raw.kafka"
    assert imported(tmp_path, found, topics=["users"]).records == 16
    assert read(tmp_path / "data") == {key: rows for key, rows in read(logs).items() if key.topic == "users"}


def test_import_of_current_snapshot(logs: Path, tmp_path: Path) -> None:
    exported(logs, tmp_path / "lake", form=Form(format="iceberg"), settings=Settings("iceberg"))
    with iceberg(tmp_path / "lake") as table:
        table.delete("partition = 1")
        table.delete("offset = 3")
    report = imported(tmp_path, sources.listed(tmp_path / "lake"))
    assert report.records == 14 and {one.partition for one in report.partitions} == {0}


@contextmanager
def a_catalog(tmp_path: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("ottla", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/wh")
    catalog.create_namespace("a")
    try:
        yield catalog
    finally:
        catalog.close()


def in_catalog(tmp_path: Path, name: str) -> sources.SourceFiles:
    return sources.listed(None, name, {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"})


def test_import_of_table_of_another_program(tmp_path: Path) -> None:
    """Values as columns, a topic in a column or by a partition, and no offsets."""
    rows = pa.table({"topic": ["t", "u", "t"], "value": ["a", "b", "c"], "n": [1, 2, 3]})
    with a_catalog(tmp_path) as catalog:
        table = catalog.create_table("a.b", schema=rows.schema)
        table.append(rows)
        with table.update_spec() as spec:
            spec.add_identity("topic")
        table.append(rows)
    imported(tmp_path, in_catalog(tmp_path, "a.b"))
    found = read(tmp_path / "data")
    assert {key: sorted(row[3] or b"" for row in of) for key, of in found.items()} == {
        TopicPartition("t", 0): [b"a", b"a", b"c", b"c"],
        TopicPartition("u", 0): [b"b", b"b"],
    }


def renamed(table: Any) -> None:
    with table.update_schema() as schema:
        schema.rename_column("n", "key")


def removed(table: Any) -> None:
    table.delete("n > 0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (renamed, r"the Iceberg table a\.b had the column key under another name"),
        (removed, r"the Iceberg table a\.b has no rows"),
    ],
)
def test_import_of_unsuitable_table_refused(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    rows = pa.table({"value": ["a"], "n": [1]})
    with a_catalog(tmp_path) as catalog:
        table = catalog.create_table("a.b", schema=rows.schema)
        table.append(rows)
        change(table)
    with pytest.raises(ReadError, match=message):
        in_catalog(tmp_path, "a.b")


def test_import_of_iceberg_folder_without_catalog_refused(tmp_path: Path) -> None:
    rows = pa.table({"value": ["a"]})
    with a_catalog(tmp_path) as catalog:
        catalog.create_table("a.b", schema=rows.schema).append(rows)
    with pytest.raises(ReadError, match=r"/wh/a/b is an Iceberg table: name its catalog"):
        sources.listed(tmp_path / "wh")
    with pytest.raises(ReadError, match=r"the table a needs its catalog: .* is not an export with a catalog"):
        sources.listed(tmp_path, "a")
    with pytest.raises(ReadError, match="there is nothing to import"):
        sources.listed(None)
    with pytest.raises(ReadError, match=r"the Iceberg table a\.c cannot be read: Table does not exist: a\.c"):
        in_catalog(tmp_path, "a.c")
