"""Decoding with schema files: Avro compared with fastavro, Protobuf with its library, and decompression bombs."""

from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker.record_schemas import protobuf
from ottla.broker.record_schemas.avro import AvroDecoder
from ottla.broker.record_schemas.decoder import DECODED_BYTES, DecodeError, SchemaError
from ottla.broker.record_schemas.protobuf import ProtobufDecoder
from ottla.broker.record_schemas.schemas import FILE_BYTES_MAX, load, pair_of
from ottla_testing.broker.schema_samples import ORDER, descriptor_set, encoded, message_class, order
from ottla_testing.each import each

SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(allow_nan=False, allow_infinity=False, width=32)),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("string", st.text(max_size=20)),
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 0) -> tuple[Any, Any]:
    """A schema and a value of it."""
    kinds = ["simple"] if depth > 2 else ["simple", "array", "map", "record", "union"]
    kind = draw(st.sampled_from(kinds))
    if kind == "simple":
        schema, values = draw(st.sampled_from(SIMPLE))
        return schema, draw(values)
    if kind in ("array", "map"):
        schema, value = draw(schemas(depth + 1))
        count = draw(st.integers(0, 3))
        if kind == "array":
            return {"type": "array", "items": schema}, [value] * count
        return {"type": "map", "values": schema}, {f"k{n}": value for n in range(count)}
    if kind == "union":
        values: Any = None
        schema, values = draw(st.sampled_from(SIMPLE[1:]))
        return ["null", schema], draw(st.none() | values)
    fields = draw(st.lists(schemas(depth + 1), max_size=3))
    name = f"R{draw(st.uuids()).hex}"
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{n}", "type": one} for n, (one, _) in enumerate(fields)],
    }
    return schema, {f"f{n}": value for n, (_, value) in enumerate(fields)}


TWO_READINGS = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "f0", "type": "boolean"}, {"name": "f1", "type": {"type": "map", "values": "boolean"}}],
}


@given(schemas())
@example((TWO_READINGS, {"f0": False, "f1": {"k0": False}}))
def test_avro_values_match_fastavro(case: tuple[Any, Any]) -> None:
    """A value without prefix may begin like one, with a 0, and what follows five bytes later may be a value, too: then
    it is decoded as one with a prefix, and the schema id is reported.
    """
    schema, value = case
    data = encoded(schema, value)
    parsed = fastavro.parse_schema(schema)
    expected = fastavro.schemaless_reader(io.BytesIO(data), parsed, None)
    decoder = AvroDecoder(json.dumps(schema))
    plain = decoder.decode(data)
    if plain.note:
        rest = io.BytesIO(data[5:])
        assert data[0] == 0 and plain.note == f"schema id {int.from_bytes(data[1:5], 'big')}"
        assert plain.value == fastavro.schemaless_reader(rest, parsed, None) and not rest.read()
    else:
        assert plain.value == expected
    if data:
        reported = decoder.decode(struct.pack(">bI", 0, 7) + data)
        assert reported.value == expected and reported.note == "schema id 7"


@given(st.binary(max_size=200))
def test_avro_random_bytes_give_a_value_or_a_reason(data: bytes) -> None:
    try:
        json.dumps(AvroDecoder(json.dumps(ORDER)).decode(data).value, allow_nan=False)
    except DecodeError as error:
        assert "\n" not in str(error)


def test_avro_logical_types_and_names() -> None:
    decoder = AvroDecoder(json.dumps(ORDER))
    reported = decoder.decode(encoded(ORDER, order(order()))).value
    assert decoder.name == "shop.Order" and reported["previous"]["previous"] is None
    shown = {name: value for name, value in reported.items() if name != "previous"}
    assert shown == {
        "id": 1, "price": "-1.05", "at": "2023-11-14T22:13:20Z", "day": "1970-01-02", "state": "PAID", "note": "é",
        "parts": [{"a": 0.5}, {}], "raw": {"base64": "/wA="},
    }  # fmt: skip


def long(value: int) -> bytes:
    """A number in Avro's encoding."""
    value = (value << 1) ^ (value >> 63)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@each(
    ("schema", "data", "why"),
    [
        ({"type": "array", "items": "null"}, long(2**60) + b"\0", "elements, more than its bytes can contain"),
        ({"type": "array", "items": "null"}, (long(80) + b"") * 50_000, "more (elements )?than its bytes|account"),
        ({"type": "map", "values": "null"}, long(-(2**60)) + long(1) + b"\0", "more than its bytes"),
        ({"type": "array", "items": "string"}, long(2) + long(2**40), "bytes expected"),
        ("bytes", long(2**62), "bytes expected"),
        ("bytes", long(-5), "invalid length -5"),
        ("string", long(1) + b"\xff", "not UTF-8"),
        ("long", b"\xff" * 11, "more than ten bytes"),
        ("long", b"\xff", "within a number"),
        ("int", long(1) + b"more", "4 bytes follow the end"),
        ("boolean", b"\2", "0 or 1, not 2"),
        (["null", "int"], long(2), "no branch 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, long(1), "no symbol 1"),
        (NODE, long(1) * 10_000 + long(0), "nested deeper than 64"),
        ("bytes", b"x" * (DECODED_BYTES + 1), "exceed the limit"),
    ],
)
def test_avro_bombs_are_refused(schema: Any, data: bytes, why: str) -> None:
    decoder = AvroDecoder(json.dumps(schema))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match=why):
            decoder.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data) + (1 << 24)
    finally:
        tracemalloc.stop()


def test_protobuf_values_are_decoded_with_and_without_confluent_prefix() -> None:
    decoder = ProtobufDecoder(descriptor_set())
    assert (decoder.kind, decoder.name) == ("Protobuf", "shop.Order")
    order = message_class("shop.Order")(id=2**53 + 1, note_text="é")
    order.lines.add(sku="a")
    data = order.SerializeToString()
    value = {"id": str(2**53 + 1), "note_text": "é", "lines": [{"sku": "a"}]}
    assert decoder.decode(data) == (value, "")
    prefix = struct.pack(">bI", 0, 9)
    assert decoder.decode(prefix + b"\0" + data) == (value, "schema id 9")
    line = message_class("shop.Order.Line")(sku="b").SerializeToString()
    assert decoder.decode(prefix + long(2) + long(0) + long(0) + line) == ({"sku": "b"}, "schema id 9, shop.Order.Line")
    other = message_class("shop.Other")(flag=True).SerializeToString()
    assert decoder.decode(prefix + long(1) + long(1) + other).value == {"flag": True}
    named = ProtobufDecoder(descriptor_set(), "shop.Other")
    assert named.decode(other).value == {"flag": True} and named.decode(prefix + b"\0" + other).value == {"flag": True}
    assert (
        "2 unknown fields"
        in named.decode(message_class("shop.Order")(note_text="x", lines=[{}]).SerializeToString()).note
    )
    for data, why in (
        (b"\x0a\xff", "not a shop.Order"),
        (prefix + long(99), "99 message indexes"),
        (prefix + long(1) + long(7), r"no message with the indexes \[7\]"),
        (prefix + b"\xff", "within a number"),
        (b"x" * (DECODED_BYTES + 1), "exceed the limit"),
    ):
        with pytest.raises(DecodeError, match=why):
            decoder.decode(data)


def test_deeply_nested_protobuf_message_is_refused() -> None:
    decoder = ProtobufDecoder(descriptor_set())
    data = b""
    for _ in range(5000):
        data = b"\x22" + _length(len(data)) + data
    with pytest.raises(DecodeError, match="not a "):
        decoder.decode(data)


def _length(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


@given(st.binary(max_size=200))
def test_protobuf_random_bytes_give_a_value_or_a_reason(data: bytes) -> None:
    try:
        json.dumps(ProtobufDecoder(descriptor_set()).decode(data).value, allow_nan=False)
    except DecodeError as error:
        assert str(error)


def test_schemas_are_loaded_from_files(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "order.desc").write_bytes(descriptor_set())
    pairs = [pair_of(f"orders={tmp_path}/order.avsc"), pair_of(f"orders:key={tmp_path}/order.desc#shop.Other")]
    found = load(pairs)["orders"]
    assert {part: one.title for part, one in found.items()} == {
        "value": "Avro shop.Order", "key": "Protobuf shop.Other",
    }  # fmt: skip
    assert found["key"].plain(b"\x08\x01") == {"flag": True}
    assert found["value"].plain(b"") == {"problem": "data ends at byte 0 within a number"}
    assert found["value"].plain(None) is None


@pytest.mark.parametrize(
    ("text", "content", "why"),
    [
        ("orders", b"", "is not a valid schema"),
        ("=F.avsc", b"", "is not a valid schema"),
        ("orders:head=F.avsc", b"", "TOPIC:key or TOPIC:value"),
        ("orders=F.txt", b"", "unknown kind of schema file: expected a name that ends with one of .avsc"),
        ("orders=F.avsc", b"{", "F.avsc: not JSON"),
        ("orders=F.avsc", b'{"type": "what"}', "F.avsc: not an Avro schema"),
        ("orders=F.avsc", b"[" * 100_000, "F.avsc: not "),
        ("orders=F.avsc", b"\xff", "F.avsc: not a UTF-8 text file"),
        ("orders=F.avsc#Name", b'"int"', "not with an Avro schema"),
        ("orders=F.avsc", b" " * (FILE_BYTES_MAX + 1), "larger than"),
        ("orders=F.desc", b"\xff\xff", "not a descriptor set"),
        ("orders=F.desc", b"", "not a descriptor set with messages"),
        ("orders=F.desc#shop.None", descriptor_set(), "no message shop.None: the messages are shop.Order, shop.Other"),
        ("orders=F.desc", descriptor_set(imports=("away.proto",)), "imports are missing"),
    ],
)
def test_unusable_schema_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, content: bytes, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    name = text.partition("=")[2].partition("#")[0]
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError) as refused:
        load([pair_of(text)])
    assert why in str(refused.value) and "\n" not in str(refused.value)


def test_missing_file_and_second_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="No such file"):
        load([("orders", tmp_path / "none.avsc")])
    (tmp_path / "a.avsc").write_text('"int"')
    with pytest.raises(SchemaError, match="orders:value has two schemas"):
        load([("orders", tmp_path / "a.avsc"), ("orders:value", tmp_path / "a.avsc")])


def test_a_proto_source_is_compiled_by_protoc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    source = tmp_path / "orders.proto"
    source.write_text('syntax = "proto3"; message Order {}')
    with pytest.raises(SchemaError, match="needs a compiler: pip install grpcio-tools"):
        load([("orders", source)])
    (tmp_path / "bin").mkdir()
    (tmp_path / "made.desc").write_bytes(descriptor_set())
    protoc = tmp_path / "bin" / "protoc"
    protoc.write_text(
        f'#!/bin/sh\n[ "$1" = --include_imports ] && [ "$4" = orders.proto ] || exit 3\n'
        f'/bin/cp {tmp_path}/made.desc "${{2#--descriptor_set_out=}}"\n'
    )
    os.chmod(protoc, 0o755)
    found = load([("orders", source)])["orders"]
    assert found["value"].title == "Protobuf shop.Order"
    protoc.write_text("#!/bin/sh\necho 'orders.proto:1: wrong' >&2\nexit 1\n")
    with pytest.raises(SchemaError, match=r"compilation failed: orders\.proto:1: wrong"):
        load([("orders", source)])
