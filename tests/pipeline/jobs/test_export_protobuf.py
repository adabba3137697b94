"""Protobuf as columns: schemas in source form, and values by Google's own library."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf import timestamp_pb2 as timestamps
from google.protobuf import wrappers_pb2 as wrappers

from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.export.value_schemas.proto_source import Source, parse
from ottla.pipeline.jobs.export.value_schemas.proto_values import reader
from ottla.pipeline.jobs.export.value_schemas.sources import Schema

ORDER = """
syntax = "proto3"; // a comment
package shop.v1;
import "google/protobuf/timestamp.proto";
import 'google/protobuf/wrappers.proto';
import public "confluent/meta.proto";
option java_package = "com.shop";
option (confluent.file_meta).doc = "it has { braces } ; and \\" quotes";
/* message Hidden {} */
message Order {
  option (confluent.message_meta) = { doc: "x" params: [{key: "a", value: "b"}] };
  reserved 100 to 199, 1000;
  reserved "gone";
  enum State { option allow_alias = true; NEW = 0; DONE = 1 [deprecated = true]; FINISHED = 1; LOST = -1; }
  message Line { string sku = 1; repeated sint32 sizes = 2; }
  int64 id = 1 [json_name = "number", (field).x = {a: 1}];
  optional string name = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, Line> by_sku = 5;
  map<int32, double> rates = 6;
  google.protobuf.Timestamp at = 7;
  .google.protobuf.StringValue note = 8;
  oneof payment { option (x) = true; string card = 9; Line voucher = 10; uint32 cash = 11; }
  Other other = 12;
  repeated State states = 13;
  uint64 large = 14;
  fixed64 large_fixed = 15; fixed32 f32 = 16; sfixed32 sf32 = 17; sfixed64 sf64 = 18;
  float f = 19; double d = 20; bool ok = 21; bytes raw = 22; int32 i32 = 23; sint32 s32 = 24; sint64 s64 = 25;
  repeated float floats = 26; repeated string tags = 27;
  int32 message = 28; string option_1 = 29;
}
message Other { Order.State state = 1; int32 number = 2; message Deep { bool yes = 1; } Deep deep = 3; }
service Shop { rpc Buy(Order) returns (stream Other) { option (http) = {get: "/x"}; } rpc None(Order) returns (Other); }
extend google.protobuf.FieldOptions { string x = 50000; }
"""


def source() -> Source:
    return parse(ORDER, {})


def library(made: Source, name: str) -> Any:
    """Returns the class of a message in Google's library, with the fields as they were parsed."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamps, wrappers):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="shop.v1", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    for message in made.messages:
        _describe(made, message, file.message_type.add())
    for full, names in made.enums.items():
        parent = file.message_type[0]
        enum = parent.enum_type.add(name=full.rpartition(".")[2])
        for number, text in names.items():
            enum.value.add(name=text, number=number)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _describe(made: Source, message: Any, target: Any) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    target.name = message.full_name.rpartition(".")[2]
    for nested in message.nested:
        _describe(made, nested, target.nested_type.add())
    oneofs: dict[str, int] = {}
    for one in message.fields:
        if one.oneof and one.oneof not in oneofs:
            oneofs[one.oneof] = len(target.oneof_decl)
            target.oneof_decl.add(name=one.oneof)
    for one in message.fields:
        added = target.field.add(name=one.name, number=one.number)
        added.label = kinds.LABEL_REPEATED if one.repeated or one.key else kinds.LABEL_OPTIONAL
        if one.key is not None:
            entry = target.nested_type.add(name="".join(part.capitalize() for part in one.name.split("_")) + "Entry")
            entry.options.map_entry = True
            for number, kind in ((1, one.key), (2, one.type)):
                _typed(made, kind, entry.field.add(name=("key", "value")[number - 1], number=number, label=1))
            added.type, added.type_name = kinds.TYPE_MESSAGE, f".{message.full_name}.{entry.name}"
            continue
        _typed(made, one.type, added)
        if one.oneof:
            added.oneof_index = oneofs[one.oneof]
        elif one.has_presence and one.type in ("string",):
            added.proto3_optional = True
            added.oneof_index = len(target.oneof_decl)
            target.oneof_decl.add(name=f"_{one.name}")


def _typed(made: Source, kind: str, target: Any) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    if kind in made.enums:
        target.type, target.type_name = kinds.TYPE_ENUM, f".{kind}"
    elif kind in made.by_name:
        target.type, target.type_name = kinds.TYPE_MESSAGE, f".{kind}"
    else:
        target.type = getattr(kinds, f"TYPE_{kind.upper()}")


def test_source_parsed_by_scope_and_order() -> None:
    made = source()
    assert [one.full_name for one in made.messages] == ["shop.v1.Order", "shop.v1.Other"]
    order, other = made.messages
    assert [one.full_name for one in order.nested] == ["shop.v1.Order.Line"]
    assert made.enums["shop.v1.Order.State"] == {0: "NEW", 1: "DONE", -1: "LOST"}
    fields = {one.name: one for one in order.fields}
    assert len(fields) == 29 and fields["message"].type == "int32"
    assert (fields["lines"].type, fields["lines"].repeated) == ("shop.v1.Order.Line", True)
    assert (fields["at"].type, fields["note"].type) == ("google.protobuf.Timestamp", "google.protobuf.StringValue")
    assert (fields["by_sku"].key, fields["rates"].key, fields["rates"].type) == ("string", "int32", "double")
    assert [name for name, one in fields.items() if one.has_presence] == [
        "name", "at", "note", "card", "voucher", "cash", "other",
    ]  # fmt: skip
    assert other.fields[0].type == "shop.v1.Order.State"
    assert made.at((0, 0)).full_name == "shop.v1.Order.Line" and made.at((1,)) is other
    assert made.named("Line") is order.nested[0]
    with pytest.raises(ValueError, match=r"no message with the indexes \[0, 1\]"):
        made.at((0, 1))


def test_presence_of_proto2_and_editions() -> None:
    two = parse("message A { required int32 a = 1; optional int32 b = 2; repeated int32 c = 3; }", {})
    assert [one.has_presence for one in two.messages[0].fields] == [True, True, False]
    text = 'edition = "2023"; message A { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; }'
    assert [one.has_presence for one in parse(text, {}).messages[0].fields] == [True, False]
    text = 'edition = "2023"; option features.field_presence = IMPLICIT; message A { int32 a = 1; }'
    assert [one.has_presence for one in parse(text, {}).messages[0].fields] == [False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no message"),
        ('syntax = "proto3";', "has no message"),
        ("message A { int32 a = 1;", "ends within a declaration"),
        ("message A { int32 a = 0; }", "a has no valid number"),
        ("message A { int32 a = b; }", "a has no valid number"),
        ("message A { B b = 1; }", "no type B, that of A.b: is an import missing?"),
        ("message A { group B = 1 { } }", "A has a group"),
        ("message A { int32 a 1; }", "1 where = must be"),
        ("nonsense", "nonsense at its top"),
        ("message A { int32 a = 1; } \x00", "in line 1"),
        ('message A { string a = "', "is not a .proto file"),
        ("message A { A a = 1; }", "recursive"),
        ("message A { B b = 1; } message B { }", "message B has no fields"),
        ("message A { int32 a = 1; }" + "message B {" * 40, "nested deeper than 32"),
    ],
)
def test_unusable_source_refused(text: str, words: str) -> None:
    with pytest.raises(ExportError) as refused:
        Decoding.protobuf(text)
    assert words in str(refused.value)


def test_any_cut_of_a_source_is_refused_or_parsed(scaled: Callable[[int], int]) -> None:
    rng = random.Random(1)
    for _ in range(scaled(100)):
        at, end = sorted(rng.sample(range(len(ORDER)), 2))
        for text in (ORDER[:at], ORDER[:at] + ORDER[end:]):
            try:
                parse(text, {})
            except ExportError:
                continue


def test_values_of_the_library_to_columns() -> None:
    made = source()
    order = library(made, "shop.v1.Order")
    full = order(
        id=-5, name="", state=1, large=2**64 - 1, large_fixed=2**63, f32=2**32 - 1, sf32=-7, sf64=-(2**62), f=1.5,
        d=-2.5, ok=True, raw=b"\xff\x00", i32=-1, s32=-(2**31), s64=2**62, card="none", cash=7, message=4, option_1="ü",
        states=[0, 1, -1], floats=[0.5, 1.0], tags=["a", ""],
    )  # fmt: skip
    full.lines.add(sku="x", sizes=[-1, 2])
    full.by_sku["k"].sku = "y"
    full.rates[-3] = 0.25
    full.at.FromDatetime(datetime(2026, 11, 27, 8, 0, 0, 123456))
    full.note.value = "noted"
    full.other.state, full.other.deep.yes = 1, True
    decoding = Decoding.protobuf(ORDER)
    found = decoding.decoder().decode(pa.array([full.SerializeToString(), b"", None], pa.binary()))
    found.values.validate(full=True)
    assert found.values.type == decoding.type and not found.problems
    first, empty, nothing = found.values.to_pylist()
    assert first == {
        "id": -5, "name": "", "state": "DONE", "lines": [{"sku": "x", "sizes": [-1, 2]}],
        "by_sku": [("k", {"sku": "y", "sizes": []})], "rates": [(-3, 0.25)],
        "at": datetime(2026, 11, 27, 8, 0, 0, 123456, UTC), "note": "noted",
        "card": None, "voucher": None, "cash": 7,
        "other": {"state": "DONE", "number": 0, "deep": {"yes": True}}, "states": ["NEW", "DONE", "LOST"],
        "large": Decimal(2**64 - 1), "large_fixed": Decimal(2**63), "f32": 2**32 - 1, "sf32": -7, "sf64": -(2**62),
        "f": 1.5, "d": -2.5, "ok": True, "raw": b"\xff\x00", "i32": -1, "s32": -(2**31), "s64": 2**62,
        "floats": [0.5, 1.0], "tags": ["a", ""], "message": 4, "option_1": "ü",
    }  # fmt: skip
    assert nothing is None
    assert (empty["id"], empty["name"], empty["state"], empty["lines"], empty["at"]) == (0, None, "NEW", [], None)


def random_message(made: Source, name: str, rng: random.Random, depth: int = 0) -> Any:
    """Returns a message of the library with random fields."""
    found = library(made, name)()
    _randomise(found, rng, depth)
    return found


def _randomise(message: Any, rng: random.Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4 or field.full_name.startswith("google.protobuf.Timestamp"):
            continue
        value = _random_scalar(field, rng)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            if depth < 4:
                target = getattr(message, field.name)
                _randomise(target.add() if field.is_repeated else target, rng, depth + 1)
                if not field.is_repeated:
                    target.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).extend([_random_scalar(field, rng) for _ in range(rng.randint(0, 3))])
        else:
            setattr(message, field.name, value)


def _random_scalar(field: Any, rng: random.Random) -> Any:
    kinds = type(field)
    return {
        kinds.CPPTYPE_INT32: rng.randint(-(2**31), 2**31 - 1),
        kinds.CPPTYPE_INT64: rng.randint(-(2**63), 2**63 - 1),
        kinds.CPPTYPE_UINT32: rng.randint(0, 2**32 - 1),
        kinds.CPPTYPE_UINT64: rng.randint(0, 2**64 - 1),
        kinds.CPPTYPE_DOUBLE: rng.choice([0.0, -1.25, 1e300]),
        kinds.CPPTYPE_FLOAT: rng.choice([0.0, -1.25, 0.5]),
        kinds.CPPTYPE_BOOL: rng.random() < 0.5,
        kinds.CPPTYPE_ENUM: rng.choice([0, 1, -1]),
        kinds.CPPTYPE_STRING: rng.randbytes(3) if field.type == kinds.TYPE_BYTES else rng.choice(["", "ü", "abc"]),
    }.get(field.cpp_type)


def test_random_messages_equal_those_of_the_library(scaled: Callable[[int], int]) -> None:
    made = source()
    read = reader(made.messages[0], made)
    rng = random.Random(2)
    other = library(made, "shop.v1.Order")
    for _ in range(scaled(40)):
        first, second = (random_message(made, "shop.v1.Order", rng).SerializeToString() for _ in range(2))
        for data in (first, first + second):  # fields that come twice are merged
            expected = other.FromString(data)
            found = read(data)
            for field in expected.DESCRIPTOR.fields:
                if field.message_type is None and not field.is_repeated and field.enum_type is None:
                    is_set = not field.has_presence or expected.HasField(field.name)
                    assert found[field.name] == (getattr(expected, field.name) if is_set else None), field.name
                elif field.enum_type is not None and field.is_repeated:
                    names = {0: "NEW", 1: "DONE", -1: "LOST"}
                    assert found[field.name] == [names[one] for one in getattr(expected, field.name)]
                elif field.message_type is None and field.is_repeated:
                    assert found[field.name] == list(getattr(expected, field.name)), field.name
            assert [line["sku"] for line in found["lines"]] == [line.sku for line in expected.lines]
            assert (found["other"] is not None) == expected.HasField("other")
            if expected.HasField("other"):
                assert found["other"]["number"] == expected.other.number
                assert (found["other"]["deep"] is not None) == expected.other.HasField("deep")


def test_damaged_values_raise_value_errors_only(scaled: Callable[[int], int]) -> None:
    made = source()
    read = reader(made.messages[0], made)
    rng = random.Random(3)
    failed = 0
    for _ in range(scaled(100)):
        data = bytearray(random_message(made, "shop.v1.Order", rng).SerializeToString() or b"\x08\x01")
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        for damaged in (bytes(data), bytes(data[: rng.randrange(len(data))]), rng.randbytes(rng.randint(1, 30))):
            try:
                read(damaged)
            except ValueError:
                failed += 1
    assert failed
    for wrong in (b"\x00", b"\x0b", b"\x0c", b"\x0e", b"\x08", b"\x08" + b"\x80" * 11, b"\x12\x05a", b"\x0d\x00\x00"):
        with pytest.raises(ValueError):
            read(wrong)
    assert read(b"\x9b\x4b\x08\x05\x9c\x4b")["id"] == 0  # an unknown group, with a field in it
    with pytest.raises(ValueError, match="nested deeper"):
        read(b"\x9b\x4b" * 200)


def test_messages_of_references_and_of_a_chosen_name() -> None:
    money = "syntax='proto3'; package common; message Money { int64 units = 1; string currency = 2; }"
    text = (
        'syntax="proto3"; import "common/money.proto"; message A { common.Money price = 1; } message B { bool b = 1; }'
    )
    schema = Schema("PROTOBUF", text, (("common/money.proto", Schema("PROTOBUF", money)),))
    assert str(Decoding.protobuf(schema).type) == "struct<price: struct<units: int64, currency: string>>"
    assert str(Decoding.protobuf(schema, "B").type) == "struct<b: bool>"
    with pytest.raises(ExportError, match=r"has no message C: it has A, B"):
        Decoding.protobuf(schema, "C")
    with pytest.raises(ExportError, match=r"no type common\.Money, that of A\.price: is an import missing"):
        Decoding.protobuf(text)
