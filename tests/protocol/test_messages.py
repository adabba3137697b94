"""Every message in every version: as Apache defines it, through both codecs, and damaged."""

from __future__ import annotations

import io
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol import schema
from ottla.protocol.compiler import build, parse
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.primitives import Array, Blob, Fixed, Nullable, UuidLeaf

sys.path.insert(0, str(Path(__file__).parent))
from messages import CASES, MESSAGES
from values import random_value

APACHE: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("versions.json").read_text())
LEAVES = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I", "float64": "d",
}  # fmt: skip
IMPLICIT = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": b""}


def snake(name: str) -> str:
    out = ""
    for index, letter in enumerate(name):
        after_lower = index and (name[index - 1].islower() or name[index - 1].isdigit())
        before_lower = index and index + 1 < len(name) and name[index + 1].islower()
        out += ("_" if letter.isupper() and (after_lower or before_lower) else "") + letter.lower()
    return out


def definition(name: str, version: int) -> dict[str, Any]:
    found = next(d for d in APACHE[name] if version in schema.Versions.of(d["versions"]))
    newest = schema.spec(MESSAGES[name]).versions.last  # fields of an unstable version are not declared
    return found | {"fields": [f for f in found["fields"] if schema.Versions.of(f["versions"]).first <= newest]}


def test_every_message_and_every_version_of_apache_is_declared() -> None:
    assert set(MESSAGES) == set(APACHE)
    for name, definitions in APACHE.items():
        declared = schema.spec(MESSAGES[name])
        ranges = [schema.Versions.of(d["versions"]) for d in definitions]
        newest = ranges[0].last - (1 if definitions[0]["unstable"] else 0)
        assert declared.versions == (min(r.first for r in ranges), newest), name
        assert declared.flexible == schema.Versions.of(definitions[0]["flexible"]), name
        if definitions[0]["key"] is not None:
            assert declared.api_key == definitions[0]["key"], name


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_version_is_as_apache_defines_it(name: str, version: int) -> None:
    layout = schema.struct_of(MESSAGES[name], version)
    apache = definition(name, version)
    compare(layout, apache["fields"], version, version in schema.Versions.of(apache["flexible"]), name)


def compare(layout: schema.Group, fields: list[dict[str, Any]], version: int, flexible: bool, path: str) -> None:
    present = [f for f in fields if version in schema.Versions.of(f["versions"])]
    tagged = [f for f in present if version in schema.Versions.of(f.get("tagged", "none"))]
    plain = [f for f in present if f not in tagged]
    assert [n for n, _ in layout.plan] == [snake(f["name"]) for f in plain], path
    assert (layout.tags is not None) == flexible, path
    assert {t: n for t, (n, _) in (layout.tags or {}).items()} == {f["tag"]: snake(f["name"]) for f in tagged}, path
    absent = {snake(f["name"]) for f in fields if f not in present and not f.get("ignorable")}
    assert {name for name in layout.absent if name in {snake(f["name"]) for f in fields}} == absent, path
    codecs = dict(layout.plan) | dict((layout.tags or {}).values())
    for field in present:
        name = snake(field["name"])
        nullable = version in schema.Versions.of(field.get("nullable", "none"))
        compare_type(codecs[name], field, field["type"], nullable, version, flexible, f"{path}.{name}")
        compare_default(layout.cls, name, field, f"{path}.{name}")


def compare_type(
    codec: Any, field: dict[str, Any], kind: str, nullable: bool, version: int, flexible: bool, path: str
) -> None:
    if kind.startswith("[]"):
        assert isinstance(codec, Array), path
        assert (codec.length.nullable, codec.length.compact) == (nullable, flexible), path
        compare_type(codec.item, field, kind[2:], False, version, flexible, path)
    elif kind in LEAVES:
        assert isinstance(codec, Fixed), path
        assert codec.fmt == LEAVES[kind], path
    elif kind == "uuid":
        assert isinstance(codec, UuidLeaf), path
    elif kind in ("string", "bytes", "records"):
        assert isinstance(codec, Blob), path
        assert (codec.length.nullable, codec.length.compact, codec.text) == (nullable, flexible, kind == "string"), path
        if codec.length.wire is not None:
            assert codec.length.wire.fmt == ("h" if kind == "string" else "i"), path
    else:
        if nullable:
            assert isinstance(codec, Nullable), path
            codec = codec.inner
        assert isinstance(codec, schema.Group), path
        compare(codec, field["fields"], version, flexible, path)


def compare_default(cls: Any, name: str, field: dict[str, Any], path: str) -> None:
    make_default = cls._fields[name].make_default
    if make_default is None:  # a field that has to be given; Apache's generator would fill in the type's empty value
        assert "default" not in field and "tag" not in field, path
        return
    value, kind = make_default(), field["type"]
    expected = field.get("default")
    if expected == "null":
        assert value is None, path
    elif kind.startswith("[]"):
        assert value == [], path
    elif kind in LEAVES and kind != "bool" and expected is not None:
        assert value == (float(expected) if kind == "float64" else int(str(expected), 0)), path
    elif kind == "bool" and expected is not None:
        assert value is (str(expected).lower() == "true"), path
    elif kind in LEAVES or kind in IMPLICIT:
        assert value == (IMPLICIT.get(kind, 0) if expected is None else expected), path
    else:
        assert isinstance(value, schema.Value), path


@pytest.mark.parametrize(("name", "version"), CASES)
def test_both_codecs_write_and_read_the_same(name: str, version: int, scaled: Any) -> None:
    layout = schema.struct_of(MESSAGES[name], version)
    source = random.Random(f"{name} {version}")
    for _ in range(scaled(6)):
        value = random_value(layout, source)
        stream = io.BytesIO()
        layout._build(value, stream, None, name)
        raw = stream.getvalue()
        assert build(value, version) == raw
        assert parse(MESSAGES[name], version, raw) == value
        assert parse(MESSAGES[name], version, memoryview(b"head" + raw), 4) == value
        assert layout._parse(io.BytesIO(raw), None, name) == value


@pytest.mark.parametrize(("name", "version"), CASES)
def test_damaged_bytes_raise_one_error_soon(name: str, version: int, scaled: Any) -> None:
    layout = schema.struct_of(MESSAGES[name], version)
    source = random.Random(f"damage {name} {version}")
    for _ in range(scaled(3)):
        raw = build(random_value(layout, source), version)
        for _ in range(8):
            data = bytearray(raw)
            for _ in range(source.randint(1, 4)):
                if data:
                    data[source.randrange(len(data))] = source.randrange(256)
            if source.random() < 0.4:
                del data[source.randrange(len(data) + 1) :]
            if source.random() < 0.2:
                data += source.randbytes(3)
            begun = time.perf_counter()
            fast: Any = outcome(lambda data=data: parse(MESSAGES[name], version, data))
            assert time.perf_counter() - begun < 1
            slow: Any = outcome(lambda data=data: whole(layout, data))
            assert (fast is None) == (slow is None), data.hex()
            if fast is not None:
                assert same(fast, slow)


def outcome(read: Any) -> Any:
    try:
        return read()
    except MalformedMessage as error:
        assert str(error)
        return None


def whole(layout: schema.Group, data: bytes | bytearray) -> Any:
    stream = io.BytesIO(bytes(data))
    value = layout._parse(stream, None, "message")
    if stream.read(1):
        raise MalformedMessage("left over")
    return value


def same(one: Any, other: Any) -> bool:
    """Equality that takes NaN for itself and a bytearray for its bytes."""
    return one == other or repr(one).replace("bytearray(b", "(b") == repr(other).replace("bytearray(b", "(b")


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_set_field_that_the_version_lacks_is_refused_unless_ignorable(name: str, version: int) -> None:
    cls = MESSAGES[name]
    layout = schema.struct_of(cls, version)
    value = random_value(layout, random.Random(1))
    for field in layout.absent:
        default = schema.default_of(cls, field)
        setattr(value, field, [1] if default == [] else "x" if default in ("", None) else 77)
        with pytest.raises(MalformedMessage, match=field):
            build(value, version)
        setattr(value, field, default)
    build(value, version)
