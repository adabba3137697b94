"""`ottla pipeline export` with a schema registry or a folder of schemas; its tasks run in this process."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs import spark_tasks
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.value_schemas.sources import schema_of
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, tables
from ottla_testing.pipeline.object_server import BUCKET, KEYS, object_server
from ottla_testing.pipeline.schema_registry import FakeRegistry, serving

SESSION = import_module("ottla.pipeline.session")
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
SECOND = {"type": "record", "name": "Order", "fields": [*FIRST["fields"], {"name": "x", "type": "int", "default": 0}]}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(spark: Any, items: Sequence[Any], task: Any, **_: Any) -> Iterator[Any]:
        for item in items:
            yield item, task(item)

    monkeypatch.setattr(spark_tasks, "run", run)
    monkeypatch.setattr(spark_tasks, "tasks", lambda spark, items, **_: len(items))
    monkeypatch.setattr(SESSION, "session", lambda master=None, **conf: SimpleNamespace(stop=lambda: None))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    schema_of.cache_clear()
    with serving() as served:
        yield served


def value(schema_id: int, schema: Any, **fields: int) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, schema_id))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), fields)
    return out.getvalue()


def logs(root: Path, *values: bytes, start: int = 0) -> str:
    records = [Record(start + n, NOW_MS + n, b"k", one, ()) for n, one in enumerate(values)]
    a_log(root, "orders", 0, [records])
    return str(root)


def ids(lake: Path) -> list[Any]:
    return [row for _, _, table in tables(lake) for row in table["decoded"].to_pylist()]


def test_columns_of_the_first_run_stay(registry: FakeRegistry, tmp_path: Path) -> None:
    registry.authorization = "Basic dTpw"
    login = tmp_path / "registry.properties"
    login.write_text("basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=u:p\n")
    first = registry.add("orders-value", json.dumps(FIRST))
    data = logs(tmp_path / "data", value(first, FIRST, id=1))
    lake = tmp_path / "lake"
    arguments = ["export", data, "--to", str(lake), "--topic", "orders", "--decode", "avro-confluent", "--quiet"]
    arguments += ["--schema-registry", registry.url, "--schema-registry-config", str(login)]
    assert pipeline(arguments) == 0
    assert ids(lake) == [{"id": 1}]
    second = registry.add("orders-value", json.dumps(SECOND))
    logs(tmp_path / "data", value(second, SECOND, id=2, x=5), start=1)
    assert pipeline(arguments) == 0
    assert ids(lake) == [{"id": 1}, {"id": 2}]
    assert "dTpw" not in "".join(path.read_text() for path in (lake / "_ottla").rglob("*.json"))
    other = tmp_path / "other"
    assert pipeline([*arguments[:3], str(other), *arguments[4:]]) == 0
    assert ids(other) == [{"id": 1, "x": 0}, {"id": 2, "x": 5}]


def test_columns_of_the_first_run_stay_in_an_object_store(
    registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    first = registry.add("orders-value", json.dumps(FIRST))
    data = logs(tmp_path / "data", value(first, FIRST, id=1))
    with object_server() as store:
        url = f"s3://{BUCKET}/lake"
        arguments = ["export", data, "--to", url, "--topic", "orders", "--decode", "avro-confluent", "--quiet"]
        arguments += [word for name, one in store.conf.items() for word in ("--store-conf", f"{name}={one}")]
        assert pipeline([*arguments, "--schema-registry", registry.url]) == 0
        second = registry.add("orders-value", json.dumps(SECOND))
        logs(tmp_path / "data", value(second, SECOND, id=2, x=5), start=1)
        assert pipeline([*arguments, "--schema-registry", registry.url]) == 0
        settings = json.loads(store.files("lake").read_bytes(f"{url}/{layout.SETTINGS}"))
        assert json.loads(settings["decoding"]["schema"]) == FIRST


def test_protobuf_schemas_of_a_folder(tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "3.proto").write_text(
        'syntax = "proto3"; message Other { int32 n = 1; } message Order { int32 id = 1; }'
    )
    data = logs(tmp_path / "data", struct.pack(">bI", 0, 3) + b"\x02\x02\x08\x07", b"x")
    lake = tmp_path / "lake"
    arguments = ["export", data, "--to", str(lake), "--decode", "protobuf-confluent", "--schemas", str(schemas)]
    assert pipeline([*arguments, "--message", "Order", "--undecodable", "dead-letter", "--quiet"]) == 0
    assert ids(lake) == [{"id": 7}, None]
    ((_, _, table),) = list(tables(lake))
    assert table["deadLetter"].to_pylist() == [None, {"value": b"x", "error": "it does not begin with a schema id"}]


def test_keys_and_values_by_schemas_of_their_own(registry: FakeRegistry, tmp_path: Path) -> None:
    number = registry.add("orders-key", json.dumps(FIRST))
    records = [
        Record(0, NOW_MS, value(number, FIRST, id=5), b'{"a": 1}', ()),
        Record(1, NOW_MS, b"k", b"{", ()),
        Record(2, NOW_MS, None, None, ()),
    ]
    a_log(tmp_path / "data", "orders", 0, [records])
    arguments = ["export", str(tmp_path / "data"), "--topic", "orders", "--decode", "json", "--quiet"]
    keys = ["--decode-key", "avro-confluent", "--schema-registry", registry.url, "--undecodable", "dead-letter"]
    lake = tmp_path / "lake"
    assert pipeline([*arguments, "--to", str(lake), *keys]) == 0
    ((_, _, table),) = list(tables(lake))
    assert table["decodedKey"].to_pylist() == [{"id": 5}, None, None]
    assert table["deadLetterKey"].to_pylist()[1] == {"value": b"k", "error": "it does not begin with a schema id"}
    assert [one is None for one in table["deadLetterKey"].to_pylist()] == [True, False, True]
    assert [one is None for one in table["deadLetter"].to_pylist()] == [True, False, True]
    assert table["decoded"].to_pylist() == ['{"a": 1}', None, None]


def test_decoding_of_keys_is_kept_and_may_be_added_to_a_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lake = str(tmp_path / "lake")
    data = logs(tmp_path / "data", b"1")
    arguments = ["export", data, "--to", lake, "--decode", "json", "--quiet", "--format", "delta"]
    assert pipeline(arguments) == 0
    logs(tmp_path / "data", b"2", start=1)
    keys = ["--decode-key", "json", "--key-schema", '{"type": "object", "properties": {"id": {"type": "integer"}}}']
    assert pipeline([*arguments, *keys]) == 1
    assert "has an export with key decoding none, not json" in capsys.readouterr().err
    assert pipeline([*arguments, *keys, "--add-columns"]) == 0
    assert pipeline(arguments) == 1
    assert "has an export with key decoding json" in capsys.readouterr().err
    found = {name: column for _, _, table in tables(lake) for name, column in table.to_pydict().items()}
    assert {"decoded", "decodedKey"} < set(found)
    capsys.readouterr()
    logs(tmp_path / "data", b"3", start=2)
    assert pipeline([*arguments, *keys, "--undecodable", "fail"]) == 1
    assert "the key at offset 2 does not decode" in capsys.readouterr().err


def test_json_schema_as_text(tmp_path: Path) -> None:
    data = logs(tmp_path / "data", b'{"id": 5, "more": 1}')
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    lake = tmp_path / "lake"
    assert pipeline(["export", data, "--to", str(lake), "--decode", "json", "--schema", schema, "--quiet"]) == 0
    assert ids(lake) == [{"id": 5}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--subject", "x"], "--subject needs --decode"),
        (["--undecodable", "dead-letter"], "--undecodable dead-letter needs --decode"),
        (
            ["--decode", "avro", "--schema-registry", "http://x"],
            "--schema-registry needs --decode json-confluent, avro",
        ),
        (["--decode", "avro-confluent"], "needs --schema, --schema-registry or --schemas"),
        (["--decode", "protobuf"], "--decode protobuf needs --schema"),
        (["--decode", "avro-confluent", "--schemas", "x", "--schema-registry", "http://x"], "not both"),
        (["--decode", "avro-confluent", "--schemas", "x", "--subject", "y"], "--subject needs --schema-registry"),
        (["--decode", "json", "--message", "y"], "--message needs --decode protobuf or protobuf-confluent"),
        (["--decode", "avro-confluent", "--schema-registry", "x:1"], "it must be http://HOST:PORT"),
        (["--decode", "avro-confluent", "--schema-registry", "http://x"], "needs --subject, or one --topic"),
        (["--decode", "avro-confluent", "--schemas", "/nowhere"], "cannot read /nowhere: No such file"),
        (["--decode", "protobuf", "--schema", "message A {"], "ends within a declaration"),
        (["--decode", "json", "--schema", '{"type": 5}'], "the JSON schema has no type"),
        (["--key-schema", "x"], "--key-schema needs --decode-key"),
        (["--decode-key", "json", "--key-subject", "y"], "--key-subject needs --schema-registry"),
        (["--decode-key", "avro-confluent", "--schema-registry", "http://x"], "needs --key-subject, or one --topic"),
    ],
)
def test_arguments_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    data = logs(tmp_path / "data", b"x")
    assert pipeline(["export", data, "--to", str(tmp_path / "lake"), *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (tmp_path / "lake").exists()


def test_schema_of_another_type_refused(
    capsys: pytest.CaptureFixture[str], registry: FakeRegistry, tmp_path: Path
) -> None:
    registry.add("orders-value", "message A { int32 a = 1; }", "PROTOBUF")
    data = logs(tmp_path / "data", b"x")
    arguments = ["export", data, "--to", str(tmp_path / "lake"), "--topic", "orders", "--decode", "avro-confluent"]
    assert pipeline([*arguments, "--schema-registry", registry.url]) == 2
    assert "is of the type PROTOBUF, not AVRO as --decode requires" in capsys.readouterr().err
