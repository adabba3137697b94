"""Decoded values: JSON and Avro as columns, and values that do not decode."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.export import value_columns as decoding_module
from ottla.pipeline.jobs.export.commit import Settings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.tasks import Form
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, checked, exported, tables

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("name", pa.string()),
        ("ok", pa.bool_()),
        ("share", pa.float64()),
        ("price", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("by", pa.map_(pa.string(), pa.int32())),
        ("in", pa.struct([("x", pa.int32())])),
    ]
)
FULL = {
    "id": 2**62,
    "small": -3,
    "name": "ü\u0000\n",
    "ok": False,
    "share": 1,
    "price": 12.5,
    "at": "2026-11-21T08:00:00.000001+02:00",
    "day": "2026-11-21",
    "raw": base64.b64encode(b"\xff\x00").decode(),
    "tags": ["a", None],
    "by": {"k": 1, "l": None},
    "in": {"x": 7, "y": "left out"},
    "more": [1, {"left": "out"}],
}


def decoded(decoding: Decoding, *values: bytes | None) -> Any:
    return decoding.decoder().decode(pa.array(values, pa.binary()))


def test_json_schema_to_columns() -> None:
    found = decoded(Decoding.json(COLUMNS), json.dumps(FULL, indent=1).encode(), None, b" {} ")
    found.values.validate(full=True)
    assert found.values.type == pa.struct(list(COLUMNS)) and not found.problems
    assert found.values[0].as_py() == {
        "id": 2**62,
        "small": -3,
        "name": "ü\u0000\n",
        "ok": False,
        "share": 1.0,
        "price": Decimal("12.50"),
        "at": datetime(2026, 11, 21, 6, 0, 0, 1, UTC),
        "day": date(2026, 11, 21),
        "raw": b"\xff\x00",
        "tags": ["a", None],
        "by": [("k", 1), ("l", None)],
        "in": {"x": 7},
    }
    assert found.values[1].as_py() is None
    assert set(found.values[2].as_py().values()) == {None}


BAD_VALUES = (
    ("id", 1.5),
    ("id", True),
    ("id", "1"),
    ("id", 2**63),
    ("small", 2**15),
    ("name", 5),
    ("name", "\ud800"),
    ("ok", 0),
    ("share", "1"),
    ("share", True),
    ("price", 12.345),
    ("price", 12345678),
    ("price", "x"),
    ("at", "yesterday"),
    ("at", 5),
    ("day", "2026-02-30"),
    ("raw", "?"),
    ("tags", "a"),
    ("tags", [1]),
    ("by", [["k", 1]]),
    ("by", {"k": "1"}),
    ("in", []),
    ("in", {"x": "7"}),
)
BAD_TEXTS = (b"", b"null", b"1", b"[]", b'"{}"', b"{", b"{}{}", b"{} null", b'{"id":NaN}', b"\xff", b'{"name":"\xff"}')


def test_json_invalid_values_null_and_counted() -> None:
    """Each invalid value by itself and among valid ones, none of which is lost."""
    bad = [json.dumps({name: value}).encode() for name, value in BAD_VALUES] + list(BAD_TEXTS)
    decoding = Decoding.json(COLUMNS)
    for value in bad:
        found = decoded(decoding, value)
        assert (found.values.to_pylist(), len(found.problems), next(iter(found.problems))) == ([None], 1, 0), value
        assert found.problems[0]
    rng = random.Random(1)
    mixed: list[bytes | None] = [*bad, None, None, *(b'{"id":%d}' % n for n in range(50))]
    rng.shuffle(mixed)
    found = decoded(decoding, *mixed)
    assert len(found.problems) == len(bad)
    good = [None if value is None or value in bad else json.loads(value)["id"] for value in mixed]
    assert [one and one["id"] for one in found.values.to_pylist()] == good
    assert mixed[next(iter(found.problems))] in bad and not set(mixed[: next(iter(found.problems))]) & set(bad)


def test_json_without_schema_validated_text() -> None:
    found = decoded(Decoding.json(), b' {"a": [1, 2.50]} ', b"nul", None, b"null", b"\xff", b"NaN")
    assert found.values.to_pylist() == [' {"a": [1, 2.50]} ', None, None, "null", None, None]
    assert (len(found.problems), next(iter(found.problems))) == (3, 1)


def test_json_unsupported_schema_refused() -> None:
    for schema in (
        pa.int64(),
        pa.schema([("a", pa.time32("ms"))]),
        pa.schema([("a", pa.map_(pa.int32(), pa.int32()))]),
    ):
        with pytest.raises(ExportError):
            Decoding.json(schema)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)  # RFC 8259 has neither
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "name", "in", "x"]), inner),
)


@given(st.lists(JSON, max_size=6))
def test_json_random_documents_decoded_or_counted(documents: list[Any]) -> None:
    """Values that fit the columns are decoded, whatever the others are."""
    schema = pa.schema([("id", pa.int32()), ("name", pa.string()), ("in", pa.list_(pa.float64()))])

    def fits(one: Any) -> bool:
        if not isinstance(one, dict):
            return False
        number, name, inner = one.get("id"), one.get("name"), one.get("in")
        if number is not None and (type(number) is not int or not -(2**31) <= number < 2**31):
            return False
        if not (name is None or isinstance(name, str)) or not (inner is None or isinstance(inner, list)):
            return False
        return all(part is None or type(part) in (int, float) for part in inner or ())

    found = decoded(Decoding.json(schema), *(json.dumps(one).encode() for one in documents))
    found.values.validate(full=True)
    assert [one is not None for one in found.values.to_pylist()] == [fits(one) for one in documents]
    assert len(found.problems) == sum(not fits(one) for one in documents)


# --- Avro

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "share", "type": "float"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "ok", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "again", "type": ["Mark", "null"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "then", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "by", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "n", "type": "int"}, {"name": "by", "type": {"type": "map", "values": "int"}}],
                },
            },
        },
        {"name": "nothing", "type": "null"},
    ],
}
ORDER = {
    "id": 2**62,
    "count": -5,
    "share": 0.5,
    "name": None,
    "ok": True,
    "raw": b"\x00\xff",
    "mark": b"ab",
    "again": b"cd",
    "state": "DONE",
    "at": datetime(2026, 11, 21, 8, 0, 0, 1000, UTC),
    "then": datetime(2026, 11, 21, 8, 0, 0, 1, UTC),
    "day": date(2026, 11, 21),
    "clock": 5,
    "price": Decimal("-12.34"),
    "tags": ["a", "b"],
    "by": {"k": 1, "l": None},
    "lines": [{"n": 1, "by": {"z": 3}}, {"n": 2, "by": {}}],
    "nothing": None,
}


def written(order: dict[str, Any], schema: Any = AVRO) -> bytes:
    file = io.BytesIO()
    fields = [{**one, "type": "int"} if one["name"] == "clock" else one for one in schema["fields"]]
    fastavro.schemaless_writer(file, fastavro.parse_schema({**schema, "fields": fields}), order)
    return file.getvalue()


def test_avro_to_columns() -> None:
    value = written(ORDER)
    found = decoded(Decoding.avro(json.dumps(AVRO)), value, None, value[:-3], value + b"\0", b"", value)
    found.values.validate(full=True)
    expected = {
        **ORDER,
        "by": [("k", 1), ("l", None)],
        "lines": [{"n": 1, "by": [("z", 3)]}, {"n": 2, "by": []}],
    }
    assert found.values.to_pylist() == [expected, None, None, None, None, expected]
    assert (len(found.problems), next(iter(found.problems))) == (3, 2)
    assert found.values.type.field("at").type == found.values.type.field("then").type == pa.timestamp("us", tz="UTC")
    assert found.values.type.field("clock").type == pa.int32()


def test_avro_with_prefix() -> None:
    value, schema = written(ORDER), json.dumps(AVRO)
    print_ = bytes.fromhex(fingerprint(to_parsing_canonical_form(AVRO), "CRC-64-AVRO"))
    confluent, single = b"\0\0\0\1\2" + value, b"\xc3\x01" + print_ + value
    found = decoded(Decoding.avro(schema, "avro-confluent"), confluent, single, b"\0\0\0\1", b"\1" + confluent[1:])
    assert [one is not None for one in found.values.to_pylist()] == [True, False, False, False]
    found = decoded(Decoding.avro(schema, "avro-single"), single, confluent, single[:2] + bytes(8) + value)
    assert len(found.problems) == 2
    # According to the specification's implementation of CRC-64-AVRO, least byte first.
    crc = 0xC15D213AA4D7A795
    for byte in to_parsing_canonical_form(AVRO).encode():
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC15D213AA4D7A795 & -(crc & 1))
    assert print_ == crc.to_bytes(8, "little")


def test_avro_timestamps_outside_datetime() -> None:
    """Values that fit the column are decoded, others are counted."""
    schema = {"type": "record", "name": "T", "fields": [{"name": "at", "type": AVRO["fields"][9]["type"]}]}  # type: ignore[index]
    found = decoded(
        Decoding.avro(json.dumps(schema)), b"\x80\xa0\xc5\xbb\xb3\xd6\x87\x02", b"\xfe" + b"\xff" * 8 + b"\x01"
    )
    assert len(found.problems) == 1
    late = found.values.field(0).cast(pa.int64()).to_pylist()
    assert late[1] is None and late[0] > 253_402_300_800_000_000


def test_avro_unsupported_schema_refused() -> None:
    for schema, why in (
        ("{", "it is not an Avro schema"),
        ('{"type": "nothing"}', "it is not an Avro schema"),
        ('["int", "string"]', "Avro unions of several types cannot be decoded"),
        (
            '{"type":"record","name":"a.N","fields":[{"name":"n","type":["null","N"]}]}',
            "the recursive Avro record N cannot be decoded",
        ),
        ('{"type": "array", "items": "null"}', "Avro arrays of a type without bytes, such as null, cannot be decoded"),
        (
            '{"type":"array","items":{"type":"record","name":"N","fields":[{"name":"n","type":"null"}]}}',
            "Avro arrays of a type without bytes",
        ),
        ('{"type":"array","items":{"type":"fixed","name":"F","size":0}}', "Avro arrays of a type without bytes"),
    ):
        with pytest.raises(ExportError, match=why):
            Decoding.avro(schema)
    assert Decoding.avro('"string"').type == pa.string()
    assert decoded(Decoding.avro('["null", "long"]'), b"\x02\x04", b"\x00").values.to_pylist() == [2, None]


# --- in exports


def settings_of(decoding: Decoding) -> Settings:
    return Settings(decoding={"kind": decoding.kind, "schema": decoding.schema})


def test_export_with_decoded_column(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    count = scaled(60)
    values = [b'{"id":%d}' % n if n % 3 else b"no json" if n % 2 else None for n in range(count)]
    records = [Record(n, NOW_MS, None, value, ()) for n, value in enumerate(values)]
    a_log(tmp_path / "data", "orders", 0, [records[: count // 2], records[count // 2 :]])
    decoding = Decoding.json(pa.schema([("id", pa.int32())]))
    report = exported(tmp_path / "data", tmp_path / "out", form=Form(decoding=decoding), settings=settings_of(decoding))
    assert [row.value for row in checked(tmp_path / "out")] == values
    ((_, _, table),) = tables(tmp_path / "out")
    good = [{"id": n} if n % 3 else None for n in range(count)]
    assert table.column("decoded").to_pylist() == good
    bad = sum(value == b"no json" for value in values)
    assert report.undecoded == bad
    noun = "value does" if bad == 1 else "values do"
    assert f"! {bad} {noun} not decode, first at partition 0, offset 3: " in report.to_text()
    strict = Form(decoding=decoding, on_undecodable="fail")
    with pytest.raises(ReadError, match="the value at offset 3 does not decode: "):
        exported(tmp_path / "data", tmp_path / "strict", form=strict, settings=settings_of(decoding))


def test_decode_problem_text_is_short() -> None:
    found = decoded(Decoding.json(COLUMNS), json.dumps({"id": "x" * 10_000}).encode())
    assert len(found.problems[0]) <= decoding_module._SHOWN
