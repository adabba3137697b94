"""Tables whose values get a newer schema: its new fields become columns, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.pipeline.backend import Selection
from ottla.pipeline.jobs.export import commit as committing
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.new_columns import added
from ottla.pipeline.jobs.export.tasks import Format
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.verify.compare import compare
from ottla.pipeline.jobs.verify.plan import plan
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, checked, exported, iceberg
from ottla_testing.storage.simulated_files import Killed

OLD = pa.schema([("id", pa.int8()), ("lines", pa.list_(pa.struct([("sku", pa.string())])))])
NEW = pa.schema(
    [
        ("id", pa.int8()),
        ("note", pa.string()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("tags", pa.map_(pa.string(), pa.struct([("n", pa.int64())]))),
    ]
)
FIRST: dict[str, Any] = {"id": 1, "lines": [{"sku": "a"}]}
SECOND: dict[str, Any] = {
    "id": 2,
    "note": "x",
    "lines": [{"sku": "b", "count": 3}],
    "tags": {"t": {"n": 1}},
}


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param


def run(tmp_path: Path, kind: Format, schema: pa.Schema | None, *, add: bool = False, **more: Any) -> None:
    decoding = None if schema is None else Decoding.json(schema)
    settings = ExportSettings(format=kind, decoding=decoding, add_columns=add, **more)
    exported(tmp_path / "data", tmp_path / "lake", form=settings.form(), settings=settings.of_folder())


def log(tmp_path: Path, *documents: dict[str, Any]) -> None:
    records = [Record(n, NOW_MS, None, json.dumps(one).encode(), ()) for n, one in enumerate(documents)]
    a_log(tmp_path / "data", "orders", 0, [records])


def decoded(root: Path, kind: Format) -> list[Any]:
    if kind == "delta":
        from deltalake import DeltaTable

        table: pa.Table = DeltaTable(str(root)).to_pyarrow_table()
    else:
        with iceberg(root) as of:
            table = of.scan().to_arrow()
    return table.sort_by("offset").column("decoded").to_pylist()


def test_new_fields_become_columns(tmp_path: Path, kind: Format) -> None:
    log(tmp_path, FIRST)
    run(tmp_path, kind, OLD)
    log(tmp_path, SECOND)
    with pytest.raises(ExportError, match=r"has an export with decoding json .*use the same or another folder"):
        run(tmp_path, kind, NEW)
    for _ in range(2):
        run(tmp_path, kind, NEW, add=True)
    run(tmp_path, kind, NEW)  # the folder has the new decoding now
    assert decoded(tmp_path / "lake", kind) == [
        {"id": 1, "note": None, "lines": [{"sku": "a", "count": None}], "tags": None},
        {**SECOND, "tags": [("t", {"n": 1})]},
    ]
    assert len(checked(tmp_path / "lake")) == 2
    with FileBackend([str(tmp_path / "data")]) as logs:
        found = plan(logs, str(tmp_path / "lake"), Selection())
    assert [compare(check).differences for check in found.checks] == [0] * len(found.checks) and not found.problems


def test_decoded_column_added(tmp_path: Path, kind: Format) -> None:
    log(tmp_path, FIRST)
    run(tmp_path, kind, None)
    log(tmp_path, FIRST, {"id": "no number"})
    run(tmp_path, kind, OLD, add=True, on_undecodable="dead-letter")
    assert decoded(tmp_path / "lake", kind) == [None, FIRST, None]
    with pytest.raises(ExportError, match=r"has an export with decoding json .*, not none: use the same"):
        run(tmp_path, kind, None, add=True)
    with pytest.raises(ExportError, match="has an export with decoding json "):
        run(tmp_path, kind, OLD, add=True)  # without the dead letters


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            pa.schema([("id", pa.int8())]),
            r"decoded\.lines is in the table, but not in the schema: a table only",
        ),
        (
            pa.schema([("id", pa.string()), *list(OLD)[1:]]),
            r"decoded\.id is int(8|32) in the table, but string in the schema: a table only gets new fields",
        ),
        (
            pa.schema([("id", pa.int8()), ("lines", pa.string())]),
            r"decoded\.lines is a list in the table, but string in the schema",
        ),
    ],
)
def test_other_changes_refused(tmp_path: Path, kind: Format, schema: pa.Schema, message: str) -> None:
    log(tmp_path, FIRST)
    run(tmp_path, kind, OLD)
    log(tmp_path, FIRST)
    with pytest.raises(ExportError, match=message):
        run(tmp_path, kind, schema, add=True)
    run(tmp_path, kind, OLD)  # nothing has changed
    assert decoded(tmp_path / "lake", kind) == [FIRST, FIRST]


def test_killed_before_settings_are_written(tmp_path: Path, kind: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the columns, the folder the old decoding: runs with either continue."""
    log(tmp_path, FIRST)
    run(tmp_path, kind, OLD)

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(committing, "write_atomically", killed)
    with pytest.raises(Killed):
        run(tmp_path, kind, NEW, add=True)
    monkeypatch.undo()
    log(tmp_path, FIRST)
    run(tmp_path, kind, OLD)
    log(tmp_path, SECOND)
    run(tmp_path, kind, NEW, add=True)
    found = decoded(tmp_path / "lake", kind)
    assert [one["id"] for one in found] == [1, 1, 2] and [one["note"] for one in found] == [None, None, "x"]


def test_parquet_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="add_columns is for tables: files of Parquet have no common schema"):
        run(tmp_path, "parquet", OLD, add=True)


def test_added_of_types_of_libraries() -> None:
    """Libraries choose large types and names of list elements themselves."""
    large = pa.schema([("decoded", pa.struct([("a", pa.large_list(pa.field("x", pa.large_string())))]))])
    plain = pa.schema([("decoded", pa.struct([("a", pa.list_(pa.string())), ("b", pa.int32())])), ("c", pa.int8())])
    assert added(large, plain) == ["decoded.b", "c"] and added(large, large) == []
    keys = pa.schema([("decoded", pa.map_(pa.string(), pa.int32()))])
    with pytest.raises(ExportError, match=r"decoded\.value is int32 in the table, but int64 in the schema"):
        added(keys, pa.schema([("decoded", pa.map_(pa.string(), pa.int64()))]))
    with pytest.raises(ExportError, match="decoded is in the table, but not in the schema"):
        added(keys, pa.schema([]))
