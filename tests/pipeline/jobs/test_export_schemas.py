"""Exports of values whose schemas are known by id: columns, versions, dead letters, and the command's arguments."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.pipeline.jobs.export.commit import Settings
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.tasks import Format
from ottla.pipeline.jobs.export.value_columns import Decoding, of_identity
from ottla.pipeline.jobs.export.value_schemas.json_schema import columns_of
from ottla.pipeline.jobs.export.value_schemas.registry import Registry
from ottla.pipeline.jobs.export.value_schemas.sources import Schema, SourceError, schema_of
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, exported, tables
from ottla_testing.pipeline.schema_registry import FakeRegistry, serving

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "old", "type": "string"}],
}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    schema_of.cache_clear()
    with serving() as served:
        yield served


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(decoding: Decoding, *values: bytes | None) -> Any:
    return decoding.decoder().decode(pa.array(values, pa.binary()))


# --- Avro


def test_avro_values_of_all_versions_in_the_columns_of_one(registry: FakeRegistry) -> None:
    first, second = registry.add("o-value", json.dumps(FIRST)), registry.add("o-value", json.dumps(SECOND))
    other = registry.add("other", '"string"')
    proto = registry.add("proto", "message A { int32 a = 1; }", "PROTOBUF")
    source = Registry.of(registry.url)
    decoding = Decoding.avro(source.latest("o-value"), "avro-confluent", source)
    assert str(decoding.type) == "struct<id: int64, at: timestamp[us, tz=UTC], note: string>"
    old, new = framed(first, avro(FIRST, {"id": 7, "old": "x"})), framed(second, avro(SECOND, {"id": 2**40, "at": 5}))
    found = decoded(
        decoding, old, new, None, framed(9, b"x"), framed(other, b"\x02a"), framed(proto, b""), b"\x05", old
    )
    ids = [one and one["id"] for one in found.values.to_pylist()]
    assert ids == [7, 2**40, None, None, None, None, None, 7]
    assert found.problems[3] == f"schema 9 is not in {registry.url}"
    assert found.problems[5] == f"schema {proto} is of the type PROTOBUF, not AVRO"
    assert found.problems[6] == "it does not begin with a schema id"
    assert sorted(found.problems) == [3, 4, 5, 6] and (len(found.problems), next(iter(found.problems))) == (4, 3)
    paths = [path for path in registry.requests if path.startswith("/schemas/ids/")]
    assert sorted(paths) == sorted({*paths})  # each id once


def test_avro_writer_by_which_few_bytes_end_the_process_is_a_problem_of_its_values(registry: FakeRegistry) -> None:
    """A value of five bytes announces 2^31 nulls; a recursive record controls the depth of the C stack."""

    def record(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "N", "fields": [{"name": "id", "type": "long"}, *fields]})

    nulls = registry.add("nulls", record({"name": "more", "type": {"type": "array", "items": "null"}}))
    nested = registry.add("nested", record({"name": "next", "type": ["null", "N"]}))
    decoding = Decoding.avro(record(), "avro-confluent", Registry.of(registry.url))
    found = decoded(decoding, framed(nulls, b"\x0e\x80\x80\x80\x80\x10\x00"), framed(nested, b"\x0e\x00"))
    assert list(found.problems.values()) == [
        "Avro arrays of a type without bytes, such as null, cannot be decoded",
        "the recursive Avro record N cannot be decoded",
    ]


def test_avro_references_are_inlined(registry: FakeRegistry) -> None:
    money = {"type": "record", "name": "Money", "namespace": "common", "fields": [{"name": "units", "type": "long"}]}
    order = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "price", "type": "common.Money"},
            {"name": "more", "type": {"type": "array", "items": "common.Money"}},
        ],
    }
    registry.add("money", json.dumps(money))
    number = registry.add("o", json.dumps(order), "AVRO", [{"name": "common.Money", "subject": "money", "version": 1}])
    source = Registry.of(registry.url)
    decoding = Decoding.avro(source.latest("o"), "avro-confluent", source)
    named: dict[str, Any] = {}
    fastavro.parse_schema(money, named_schemas=named)
    out = io.BytesIO()
    value = {"price": {"units": 3}, "more": [{"units": 4}]}
    fastavro.schemaless_writer(out, fastavro.parse_schema(order, named_schemas=named), value)
    found = decoded(decoding, framed(number, out.getvalue()))
    assert found.values.to_pylist() == [value] and not found.problems


def test_registry_failure_ends_the_export(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "pause", lambda seconds: None)
    decoding = Decoding.avro(json.dumps(FIRST), "avro-confluent", Registry.of(registry.url))
    registry.broken = [(500, b"")] * 4
    with pytest.raises(SourceError, match="cannot be read: 500"):
        decoded(decoding, framed(1, b"x"))


# --- Protobuf and JSON


def test_protobuf_values_by_number_and_message(registry: FakeRegistry) -> None:
    first = "syntax='proto3'; package p; message Order { int32 id = 1; message Line { string s = 1; } } message User {}"
    second = (
        "syntax='proto3'; package p; message Order { int64 number = 1; string note = 2; message Line {int32 n = 1;} }"
    )
    old, new = registry.add("o", first, "PROTOBUF"), registry.add("o", second, "PROTOBUF")
    source = Registry.of(registry.url)
    decoding = Decoding.protobuf(source.latest("o"), None, "protobuf-confluent", source)
    found = decoded(
        decoding,
        framed(old, b"\x00\x08\x05"),
        framed(new, b"\x02\x00\x08\x06\x12\x01x"),
        framed(old, b"\x02\x02"),
        framed(old, b"\x04\x00\x00"),
        framed(old, b"\x02\x08"),
        framed(old, b"\x00\x0a\x01x"),
    )
    assert found.values.to_pylist()[:2] == [{"number": 5, "note": ""}, {"number": 6, "note": "x"}]
    assert list(found.problems.values()) == [
        "it is a p.User, and the columns are those of p.Order",
        "it is a p.Order.Line, and the columns are those of p.Order",
        "its schema has no message with the indexes [4]",
        "field 1 (number) has wire type 2 instead of 0",
    ]


def test_json_values_after_an_id() -> None:
    text = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    found = decoded(Decoding.json_schema(text, "json-confluent"), framed(1, b'{"id": 5}'), b'{"id": 5}')
    assert found.values.to_pylist() == [{"id": 5}, None]
    found = decoded(Decoding.json(kind="json-confluent"), framed(1, b"[5]"), b"[5]")
    assert found.values.to_pylist() == ["[5]", None]


JSON_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "small": {"type": "integer", "connect.type": "int16"},
        "raw": {"type": "string", "connect.type": "bytes"},
        "share": {"type": ["number", "null"]},
        "mixed": {"type": ["integer", "number"]},
        "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "state": {"enum": ["NEW", "DONE", None]},
        "kind": {"const": "order"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "line": {"$ref": "#/$defs/line~1x"},
        "price": {"$ref": "money.json"},
        "currency": {"$ref": "money.json#/properties/currency"},
        "by": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "in": {"properties": {"x": {"type": "integer"}}},
    },
    "$defs": {"line/x": {"type": "object", "properties": {"sku": {"type": "string"}}}},
}
MONEY = {"type": "object", "properties": {"units": {"type": "integer"}, "currency": {"type": "string"}}}


def test_json_schema_columns() -> None:
    references = (("money.json", Schema("JSON", json.dumps(MONEY))),)
    found = columns_of(Schema("JSON", json.dumps(JSON_SCHEMA), references))
    micros = "timestamp[us, tz=UTC]"
    assert {field.name: str(field.type) for field in found} == {
        "id": "int64", "small": "int16", "raw": "binary", "share": "double", "mixed": "double", "name": "string",
        "state": "string", "kind": "string", "at": micros, "day": "date32[day]", "mail": "string",
        "tags": "list<item: string>", "line": "struct<sku: string>",
        "price": "struct<units: int64, currency: string>", "currency": "string", "by": "map<string, bool>",
        "in": "struct<x: int64>",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "must be of an object with properties"),
        ({"type": "object"}, "the JSON schema is an object without properties"),
        ({"properties": {"a": {}}}, "a has no type"),
        ({"properties": {"a": True}}, "a has no type"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "a has the types integer, string"),
        ({"properties": {"a": {"type": "text"}}}, "a has the type 'text'"),
        ({"properties": {"a": {"type": "null"}}}, "a has no type"),
        ({"properties": {"a": {"type": "array"}}}, "a is an array without a type of its items"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, "a has 2 types by its anyOf"),
        ({"properties": {"a": {"type": "array", "items": {"properties": {"b": {}}}}}}, "a[].b has no type"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "a refers to #/nowhere, which is not there"),
        ({"properties": {"a": {"$ref": "#"}}}, "is recursive, or nested too deeply"),
        ([], "it must be an object"),
    ],
)
def test_json_schema_without_columns_refused(schema: Any, words: str) -> None:
    with pytest.raises(ExportError) as refused:
        Decoding.json_schema(json.dumps(schema))
    assert words in str(refused.value)


def test_json_schema_known_again_with_its_columns_in_order() -> None:
    properties = {name: {"type": "integer"} for name in ("b", "a", "c")}
    schema = {"type": "object", "properties": properties}
    made = Decoding.json_schema(json.dumps(schema))
    assert Decoding.json_schema(json.dumps(schema, indent=2)) == made
    assert of_identity("json", made.schema or "", None) == made
    assert [field.name for field in made.type] == ["b", "a", "c"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"text": 5, "references": {}}', '{"text": "x", "references": []}'])
def test_invalid_schema_of_an_earlier_export_refused(text: str) -> None:
    for kind in ("json-confluent", "protobuf"):
        with pytest.raises(ExportError):
            of_identity(kind, text, None)


# --- files


@pytest.fixture
def log(registry: FakeRegistry, tmp_path: Path) -> tuple[int, int, Path]:
    """Returns a data directory with values of two versions, and some that do not decode."""
    first, second = registry.add("orders-value", json.dumps(FIRST)), registry.add("orders-value", json.dumps(SECOND))
    values = [
        framed(first, avro(FIRST, {"id": 1, "old": "x"})),
        framed(second, avro(SECOND, {"id": 2, "note": "y"})),
        b"foreign",
        None,
        framed(second, b"\x80"),
    ]
    records = [Record(n, NOW_MS + n, b"k", value, ()) for n, value in enumerate(values)]
    a_log(tmp_path / "data", "orders", 0, [records])
    return first, second, tmp_path / "data"


def test_dead_letters_have_bytes_and_error(log: tuple[int, int, Path], registry: FakeRegistry, tmp_path: Path) -> None:
    source = Registry.of(registry.url)
    decoding = Decoding.avro(source.latest("orders-value"), "avro-confluent", source)
    settings = ExportSettings(decoding=decoding, on_undecodable="dead-letter")
    report = exported(log[2], tmp_path / "lake", form=settings.form(), settings=settings.of_folder())
    ((_, _, table),) = list(tables(tmp_path / "lake"))
    assert table.schema.field("decoded").type == decoding.type
    assert [one and one["id"] for one in table["decoded"].to_pylist()] == [1, 2, None, None, None]
    letters = table["deadLetter"].to_pylist()
    assert [one and one["value"] for one in letters] == [None, None, b"foreign", None, framed(log[1], b"\x80")]
    assert letters[2]["error"] == "it does not begin with a schema id" and letters[4]["error"]
    assert report.topics["orders"].undecoded == 2
    with pytest.raises(ExportError, match="use the same or another folder"):
        plain = ExportSettings(decoding=decoding)
        exported(log[2], tmp_path / "lake", form=plain.form(), settings=plain.of_folder())


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_typed_columns_and_dead_letters_in_each_format(format: Format, tmp_path: Path) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; message Line { bool ok = 1; }
    message Order { int64 id = 1; uint64 large = 2; google.protobuf.Timestamp at = 3; repeated Line lines = 4;
    map<string, Line> by = 5; float f = 6; }"""
    value = b"\x08\x05\x10\x07\x1a\x02\x08\x3c\x22\x02\x08\x01\x2a\x07\x0a\x01k\x12\x02\x08\x01"
    records = [Record(n, NOW_MS + n, b"k", one, ()) for n, one in enumerate((value, b"\xff"))]
    a_log(tmp_path / "data", "orders", 0, [records])
    settings = ExportSettings(decoding=Decoding.protobuf(text, "Order"), on_undecodable="dead-letter", format=format)
    exported(tmp_path / "data", tmp_path / "lake", form=settings.form(), settings=settings.of_folder())
    ((_, _, table),) = list(tables(tmp_path / "lake"))
    first, second = table["decoded"].to_pylist()
    assert (first["id"], int(first["large"]), first["at"].second, first["lines"]) == (5, 7, 0, [{"ok": True}])
    assert dict(first["by"]) == {"k": {"ok": True}} and second is None
    assert table["deadLetter"].to_pylist() == [None, {"value": b"\xff", "error": "a number is cut short"}]


def test_files_without_dead_letters_have_null_there(tmp_path: Path) -> None:
    a_log(tmp_path / "data", "orders", 0, [[Record(0, NOW_MS, b"k", b'{"id":1}', ())]])
    settings = ExportSettings(decoding=Decoding.json(), on_undecodable="dead-letter", format="delta")
    exported(tmp_path / "data", tmp_path / "lake", form=settings.form(), settings=settings.of_folder())
    ((_, _, table),) = list(tables(tmp_path / "lake"))
    assert table["deadLetter"].to_pylist() == [None]


def test_settings_of_earlier_exports_stay_valid() -> None:
    """Folders of earlier releases have no treatment of undecodable values in their settings."""
    decoding = Decoding.avro(json.dumps(FIRST), "avro-confluent")
    assert ExportSettings(decoding=decoding).of_folder() == Settings(
        decoding={"kind": "avro-confluent", "schema": decoding.schema}
    )
    assert decoding.schema == json.dumps(FIRST, sort_keys=True)
