"""Writes a construct schema as text: the names, types, versions and tags of its fields, nested ones indented.

The schema is the one that reads the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.layouts import Array, Blob, Fixed, Group, Mark, Nullable, UnsignedVarint, UuidLeaf
from ...protocol.primitives import Codec, Length
from ...protocol.records.schemas import Bits, ItemArray, Rest, SizedBytes, Zigzag, fields
from ...protocol.schema import VERSION_MAX, Versions, fields_of
from ...protocol.structs import Construct, Struct

TYPES = {
    "?": "bool", "b": "int8", "h": "int16", "i": "int32", "q": "int64", "H": "uint16", "I": "uint32", "d": "float64",
}  # fmt: skip


def describe(codec: Struct, depth: int = 0) -> Iterator[str]:
    """Yields lines of `name: type`, and of nested fields."""
    if not isinstance(codec, Group):
        for name, inner in fields(codec):
            yield from _field(name, inner, depth, "")
        return
    for name, inner in codec.plan:
        yield from _field(name, inner, depth, _versions(codec, name))
    for tag, (name, inner) in (codec.tags or {}).items():
        yield from _field(name, inner, depth, f"{_versions(codec, name)}, tag {tag}")


def _versions(group: Group, name: str) -> str:
    return f", versions {versions_text(fields_of(group.cls)[name].versions)}"


def versions_text(versions: Versions) -> str:
    """Returns a range of versions in the form of declarations, such as 2+ or 0-3."""
    if versions.last == VERSION_MAX:
        return f"{versions.first}+"
    return str(versions.first) if versions.first == versions.last else f"{versions.first}-{versions.last}"


def _field(name: str, codec: Codec | Construct, depth: int, more: str) -> Iterator[str]:
    yield f"{'  ' * depth}{name}: {type_name(codec)}{more}"
    if isinstance(codec, Bits):
        for bit_name, first, width in codec.names:
            where = f"bit {first}" if width == 1 else f"bits {first}-{first + width - 1}"
            yield f"{'  ' * (depth + 1)}{bit_name}: {where}"
    inner = codec.item if isinstance(codec, Array | ItemArray) else codec
    inner = inner.inner if isinstance(inner, Nullable) else inner
    if isinstance(inner, Struct):
        yield from describe(inner, depth + 1)


def type_name(codec: Codec | Construct) -> str:
    """Returns the type of a field in words."""
    if isinstance(codec, Fixed):
        return TYPES[codec.fmt]
    if isinstance(codec, UnsignedVarint):
        return "unsigned varint"
    if isinstance(codec, Zigzag):
        return "varint" if codec.bits == 32 else "varlong"
    if isinstance(codec, UuidLeaf):
        return "uuid"
    if isinstance(codec, Mark):
        return "present or not"
    if isinstance(codec, Blob):
        return f"{'text' if codec.text else 'records' if codec.view else 'bytes'}, {_length(codec.length)}"
    if isinstance(codec, SizedBytes):
        return f"bytes, length {type_name(codec.length)}{', nullable' if codec.nullable else ''}"
    if isinstance(codec, Rest):
        return "bytes up to the end"
    if isinstance(codec, Nullable):
        return "struct, nullable"
    if isinstance(codec, Array):
        return f"array of {_item(codec.item)}, {_length(codec.length)}"
    if isinstance(codec, ItemArray):
        return f"array of {_item(codec.item)}, length {type_name(codec.length)}"
    return "struct"


def _item(codec: Codec | Construct) -> str:
    return type_name(codec).partition(",")[0]


def _length(length: Length) -> str:
    wire = "compact length" if length.wire is None else f"length {type_name(length.wire)}"
    return wire + (", nullable" if length.nullable else "")
