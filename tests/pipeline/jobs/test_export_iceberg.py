"""Exports as Apache Iceberg tables, read by pyiceberg and by the files themselves."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipeline.jobs.export import arguments, layout
from ottla.pipeline.jobs.export.commit import Settings, opener, with_columns
from ottla.pipeline.jobs.export.iceberg import IcebergTable, catalog_of, widened
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.tasks import Form
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.iceberg_catalog import CatalogTable, location_of, path_of
from ottla.pipeline.jobs.iceberg_files import SyncedFileIO
from ottla.protocol.records.batch import Header, Record
from ottla.storage.io.files import DiskFiles, File
from ottla_testing.pipeline.export_samples import DAY_MS, NOW_MS, a_log, checked, exported, iceberg, visible

FORM = Form(format="iceberg")
SETTINGS = Settings("iceberg")


def some(first: int, count: int, value: bytes = b"%d") -> list[Record]:
    """Records of a day each; the first has no timestamp."""
    return [
        Record(
            n,
            NOW_MS + n * DAY_MS if n else -1,
            b"k",
            value.replace(b"%d", b"%d" % n),
            (Header("h", None), Header("h", b"1")),
        )
        for n in range(first, first + count)
    ]


def lake(tmp_path: Path, form: Form = FORM, records: list[Record] | None = None) -> Path:
    a_log(tmp_path / "data", "orders", 0, [some(0, 4) if records is None else records])
    exported(tmp_path / "data", tmp_path / "lake", form=form, settings=SETTINGS)
    return tmp_path / "lake"


def test_iceberg_rows_equal_log(tmp_path: Path) -> None:
    root = lake(tmp_path)
    with iceberg(root) as table:
        found = table.scan().to_arrow().sort_by("offset").to_pylist()
        names = [one.name for one in table.schema().fields]
        spec = [(one.name, str(one.transform)) for one in table.spec().fields]
    assert names == [*layout.COLUMNS, "topic", "partition", "date"]
    assert spec == [("topic", "identity"), ("partition", "identity"), ("date", "identity")]
    expected = checked(root)
    assert [(one["offset"], one["key"], one["value"]) for one in found] == [
        (row.offset, row.key, row.value) for row in expected
    ]
    assert [(one["topic"], one["partition"], one["date"]) for one in found] == [
        ("orders", 0, date(2023, 11, 14 + n) if n else None) for n in range(4)
    ]
    times = [None if one["timestamp"] is None else round(one["timestamp"].timestamp() * 1000) for one in found]
    assert times == [None, *(NOW_MS + n * DAY_MS for n in range(1, 4))]
    assert found[1]["headers"] == [{"key": "h", "value": None}, {"key": "h", "value": b"1"}]


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("topic = 'orders' and partition = 0", 4),
        ("topic = 'users'", 0),
        ("date = '2023-11-16'", 1),
        ("date is null", 1),
        ("offset >= 2", 2),
        ("timestamp < '2023-11-16T00:00:00+00:00'", 2),  # one has no bound: no timestamp
    ],
)
def test_iceberg_scan_skips_files(tmp_path: Path, condition: str, files: int) -> None:
    with iceberg(lake(tmp_path)) as table:
        assert len(list(table.scan(row_filter=condition).plan_files())) == files


def test_iceberg_files_have_field_ids_and_partition_columns(tmp_path: Path) -> None:
    """Readers without name mappings and without values from partitions read the files, too."""
    root = lake(tmp_path)
    with iceberg(root) as table:
        ids = {one.name: one.field_id for one in table.schema().fields}
        inner = table.schema().find_field("headers.element.value").field_id
    for path in visible(root):
        schema = pq.ParquetFile(root / path).schema_arrow
        assert {one.name: int(one.metadata[b"PARQUET:field_id"]) for one in schema} == ids
        value = schema.field("headers").type.value_type.field("value")
        assert int(value.metadata[b"PARQUET:field_id"]) == inner
        assert pq.ParquetFile(root / path).read().column("partition").to_pylist() == [0]


def test_iceberg_decoded_column_of_nested_types(tmp_path: Path) -> None:
    kind = pa.schema(
        [
            ("id", pa.int8()),
            ("tags", pa.list_(pa.int16())),
            ("by", pa.map_(pa.string(), pa.struct([("n", pa.int8()), ("s", pa.string())]))),
        ]
    )
    settings = ExportSettings(format="iceberg", decoding=Decoding.json(kind))
    document = {"id": 7, "tags": [1, None], "by": {"a": {"n": 1, "s": "x"}}}
    a_log(tmp_path / "data", "orders", 0, [[Record(0, NOW_MS, None, json.dumps(document).encode(), ())]])
    exported(tmp_path / "data", tmp_path / "lake", form=settings.form(), settings=settings.of_folder())
    with iceberg(tmp_path / "lake") as table:
        (found,) = table.scan().to_arrow().column("decoded").to_pylist()
        assert str(table.schema().find_field("decoded.by.value.n").field_type) == "int"
    assert found == {**document, "by": [("a", {"n": 1, "s": "x"})]}
    assert widened(pa.list_(pa.int8())).value_type == pa.int32()


def test_iceberg_timestamps_beyond_microseconds_clamped(tmp_path: Path) -> None:
    far = 1 << 62
    root = lake(tmp_path, records=[Record(0, far, None, b"x", ()), Record(1, NOW_MS, None, b"y", ())])
    with iceberg(root) as table:
        found = table.scan().to_arrow().column("timestamp").cast(pa.int64()).to_pylist()
    assert sorted(found) == [NOW_MS * 1000, (2**63 - 1) // 1000 * 1000]


def test_iceberg_table_in_folder_with_space(tmp_path: Path) -> None:
    root = lake(tmp_path).rename(tmp_path / "other")
    assert root.exists()
    exported(tmp_path / "data", tmp_path / "la ké%", form=FORM, settings=SETTINGS)
    with iceberg(tmp_path / "la ké%") as table:
        assert table.scan().to_arrow().num_rows == 4
    with pytest.raises(ExportError, match="does not support # in the path of a table"):
        arguments.check_folder("/lake/#1", "iceberg", [])


def test_iceberg_own_catalog_elsewhere(tmp_path: Path) -> None:
    """A catalog in any database of SQLAlchemy, with a name of its own; the folder keeps to the table."""
    uri = f"sqlite:///{tmp_path}/shared.db"
    settings = ExportSettings(format="iceberg", table="raw.kafka.all", catalog={"type": "sql", "uri": uri, "name": "x"})
    root = str(tmp_path / "lake")
    a_log(tmp_path / "data", "orders", 0, [some(0, 4)])
    where = settings.catalog_table(root)
    for _ in range(2):
        table = opener(root, settings.form(), where)
        exported(tmp_path / "data", root, form=settings.form(), settings=settings.of_folder(), table=table)
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("x", type="sql", uri=uri)
    assert catalog.load_table("raw.kafka.all").scan().to_arrow().num_rows == 4
    catalog.close()
    assert not (tmp_path / "lake" / layout.CATALOG).exists()
    assert uri not in (tmp_path / "lake" / layout.SETTINGS).read_text() + repr(settings) + repr(where)
    with pytest.raises(ExportError, match=r"with table raw\.kafka\.all, sql catalog, not ottla\.export, own catalog"):
        exported(tmp_path / "data", root, form=FORM, settings=ExportSettings(format="iceberg").of_folder())


def test_iceberg_other_tables_refused(tmp_path: Path) -> None:
    root = lake(tmp_path)
    mine = catalog_of(str(root))

    def refused(why: str, of: CatalogTable = mine, folder: Path = root, schema: pa.Schema = layout.SCHEMA) -> None:
        with pytest.raises(ExportError, match=why):
            IcebergTable(str(folder), schema, of)

    refused("is not of|it is of the export in file:", folder=tmp_path / "else")
    with iceberg(root) as table, table.update_spec() as spec:
        spec.remove_field("date")
    refused("its partitioning was changed: it must be topic, partition, date")
    (root / layout.CATALOG).unlink()
    refused(f"the catalog does not have it, but {root} has documents of an export")
    refused("cannot be opened: ", replace(mine, properties={"type": "sql", "uri": "nothing://x"}))
    refused("cannot be opened: ", replace(mine, properties={"type": "soap"}))
    with pytest.raises(Exception, match=r"'export' has no namespace: it must be NAMESPACE\.NAME"):
        CatalogTable("export", {})
    with pytest.raises(ExportError, match="table and catalog are for the format iceberg, not delta"):
        ExportSettings(format="delta", table="a.b").form()


@pytest.mark.parametrize("lands", [True, False])
def test_iceberg_lost_response_of_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    """A commit whose response is lost counts if the table has it; else the next run writes the rows again."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    a_log(tmp_path / "data", "orders", 0, [some(0, 4)])
    whole = SqlCatalog.commit_table

    def lost(*arguments: Any) -> None:
        if lands:
            whole(*arguments)
        raise CommitStateUnknownException("no response\nof the catalog")

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    if lands:
        assert exported(tmp_path / "data", tmp_path / "lake", form=FORM, settings=SETTINGS).records == 4
    else:
        with pytest.raises(ExportError, match=r"the Iceberg table ottla\.export cannot be written: no response$"):
            exported(tmp_path / "data", tmp_path / "lake", form=FORM, settings=SETTINGS)
    monkeypatch.undo()
    exported(tmp_path / "data", tmp_path / "lake", form=FORM, settings=SETTINGS)
    checked(tmp_path / "lake")
    with iceberg(tmp_path / "lake") as table:
        assert table.scan().to_arrow().num_rows == 4


def test_iceberg_changed_by_others(tmp_path: Path) -> None:
    """Another writer between two documents, and snapshots that expired: the number of the document stays."""
    root = lake(tmp_path)
    with iceberg(root) as table:
        rows = table.scan().to_arrow()
        table.overwrite(rows.combine_chunks())  # as a compaction does
        old = [one.snapshot_id for one in table.snapshots()][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    a_log(tmp_path / "data", "orders", 0, [some(4, 2)])
    assert exported(tmp_path / "data", root, form=FORM, settings=SETTINGS).records == 2
    with iceberg(root) as table:
        assert sorted(table.scan().to_arrow().column("offset").to_pylist()) == list(range(6))


def test_iceberg_number_of_snapshot_without_property(tmp_path: Path) -> None:
    """The property may be removed: the snapshots have the number, too."""
    root = lake(tmp_path)
    with iceberg(root) as table, table.transaction() as transaction:
        transaction.remove_properties("ottla.number")
    opened = IcebergTable(str(root), layout.SCHEMA, catalog_of(str(root)))
    assert opened.version() == 1
    opened.close()


def test_iceberg_metadata_durable_before_catalog_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    synced: list[str] = []
    named: list[str] = []

    class Noting(DiskFiles):
        def open(self, path: str, *, create: bool = False) -> File:
            synced.append(path)
            return super().open(path, create=create)

        def sync_directory(self, path: str) -> None:
            synced.append(path)
            super().sync_directory(path)

    whole = SqlCatalog.commit_table

    def commit(*arguments: Any) -> Any:
        done = whole(*arguments)
        named.append(path_of(done.metadata_location))
        written = {str(path) for path in (tmp_path / "lake" / "metadata").iterdir()}
        assert written <= set(synced) and named[-1] in written and str(tmp_path / "lake" / "metadata") in synced
        return done

    monkeypatch.setattr(SyncedFileIO, "files", Noting())
    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    lake(tmp_path)
    assert len(named) == 1 and str(tmp_path / "lake") in synced


def test_iceberg_columns_travel_to_workers(tmp_path: Path) -> None:
    root = lake(tmp_path)
    with iceberg(root) as table:
        columns = IcebergTable(str(root), layout.SCHEMA, catalog_of(str(root)))
        form = with_columns(FORM, columns)
        columns.close()
        ids = {one.name: str(one.field_id).encode() for one in table.schema().fields}
    back = pickle.loads(pickle.dumps(form))
    assert {one.name: one.metadata[b"PARQUET:field_id"] for one in back.columns} == ids


def test_locations() -> None:
    for folder in ("/a", "/a b", "/ké%41", "s3://bucket/x"):
        assert path_of(location_of(folder)) == folder
    assert path_of("file:/a") == "/a" and path_of("/a") == "/a"
