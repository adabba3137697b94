"""Compares Ottla's declarations with Apache's definitions: presence, order, type, nullability, default, tag, ignorable.

Fields that are declared as extensions are left out; Apache must not have them. A definition is a message as
`apache_definitions.definition` returns it, from versions.json or from a jar of Apache Kafka.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol import schema
from ottla.protocol.primitives import Array, Blob, Fixed, Nullable, UuidLeaf

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


def compare(layout: schema.Group, fields: list[dict[str, Any]], version: int, flexible: bool, path: str) -> None:
    present = [f for f in fields if version in schema.Versions.of(f["versions"])]
    tagged = [f for f in present if version in schema.Versions.of(f.get("tagged", "none"))]
    plain = [f for f in present if f not in tagged]
    assert [n for n, _ in layout.plan] == [snake(f["name"]) for f in plain], path
    assert (layout.tags is not None) == flexible, path
    own = {name for name, declared in layout.cls._fields.items() if declared.extension}
    assert not own & {snake(f["name"]) for f in fields}, path
    tags = {tag: name for tag, (name, _) in (layout.tags or {}).items() if name not in own}
    assert tags == {f["tag"]: snake(f["name"]) for f in tagged}, path
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
    if make_default is None:  # a required field; Apache's generator would fill in the type's empty value
        assert "default" not in field and "tag" not in field, path
        return
    value, kind = make_default(), field["type"]
    expected = field.get("default")
    # For Apache's generator only the text "null" is null; the null of JSON is the type's empty value.
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
