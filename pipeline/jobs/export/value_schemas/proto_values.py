"""Protobuf messages as columns, and the values of a message from its bytes.

A message is a struct, `repeated` a list, a map a map; an enum is the name of its value, or its number if the schema has
no name for it. uint32 is a BIGINT and uint64 a DECIMAL(20), since Spark has no unsigned integers. A Timestamp is a
time, a wrapper such as StringValue the value in it. An absent field is null if its presence is known, else its default.

Owns the wire format: fields in any order, packed or not, repeated ones merged, unknown ones skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from ..manifest import ExportError
from .proto_source import WRAPPED, Field, Message, Source

DEPTH_MAX = 100
VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(f"google.protobuf.{kind}Value" for kind in WRAPPED)

Convert = Callable[[Any], Any]


class _Scalar(NamedTuple):
    type: pa.DataType
    wire: int
    convert: Convert
    default: Any


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _uint32(number: int) -> int:
    return number & 0xFFFFFFFF


def _zigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _unpacked(form: str) -> Convert:
    unpack = struct.Struct(form).unpack
    return lambda data: unpack(data)[0]


_SCALARS: dict[str, _Scalar] = {
    "double": _Scalar(pa.float64(), FIXED64, _unpacked("<d"), 0.0),
    "float": _Scalar(pa.float32(), FIXED32, _unpacked("<f"), 0.0),
    "int32": _Scalar(pa.int32(), VARINT, _int32, 0),
    "int64": _Scalar(pa.int64(), VARINT, lambda number: number - (1 << 64) if number >> 63 else number, 0),
    "uint32": _Scalar(pa.int64(), VARINT, _uint32, 0),
    "uint64": _Scalar(pa.decimal128(20), VARINT, Decimal, Decimal(0)),
    "sint32": _Scalar(pa.int32(), VARINT, lambda number: _zigzag(_uint32(number)), 0),
    "sint64": _Scalar(pa.int64(), VARINT, _zigzag, 0),
    "fixed32": _Scalar(pa.int64(), FIXED32, _unpacked("<I"), 0),
    "fixed64": _Scalar(pa.decimal128(20), FIXED64, lambda data: Decimal(struct.unpack("<Q", data)[0]), Decimal(0)),
    "sfixed32": _Scalar(pa.int32(), FIXED32, _unpacked("<i"), 0),
    "sfixed64": _Scalar(pa.int64(), FIXED64, _unpacked("<q"), 0),
    "bool": _Scalar(pa.bool_(), VARINT, bool, False),
    "string": _Scalar(pa.string(), BYTES, lambda data: bytes(data).decode(), ""),
    "bytes": _Scalar(pa.binary(), BYTES, bytes, b""),
}


def columns_of(message: Message, source: Source) -> pa.DataType:
    """Returns the Arrow type of a message. Raises ExportError for a recursive one, and for one without fields."""
    return _type(message.full_name, source, ())


def _type(name: str, source: Source, above: tuple[str, ...]) -> pa.DataType:
    if name in _SCALARS:
        return _SCALARS[name].type
    if name in source.enums:
        return pa.string()
    if name == TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    message = source.by_name[name]
    if name in WRAPPERS:
        return _SCALARS[message.fields[0].type].type
    if name in above:
        raise ExportError(f"the Protobuf message {name} is recursive: it cannot be decoded to a column")
    if not message.fields:
        raise ExportError(f"the Protobuf message {name} has no fields: it cannot be decoded to a column")
    return pa.struct([pa.field(one.name, _of_field(one, source, (*above, name))) for one in message.fields])


def _of_field(one: Field, source: Source, above: tuple[str, ...]) -> pa.DataType:
    plain = _type(one.type, source, above)
    if one.key is not None:
        return pa.map_(_SCALARS[one.key].type, plain)
    return pa.list_(plain) if one.repeated else plain


def reader(message: Message, source: Source) -> Callable[[bytes], dict[str, Any]]:
    """Returns a function that reads the fields of a message by name, and raises ValueError."""
    plan = _Plan(message, source, {})
    return lambda data: plan.read(memoryview(data), 0)


class _Member(NamedTuple):
    """How the values of a field are read: by a scalar, by the plan of its message, or as a map of both."""

    field: Field
    scalar: _Scalar | None
    plan: _Plan | None
    key: _Scalar | None

    def value(self, piece: Any, depth: int) -> Any:
        if self.scalar is not None:
            return self.scalar.convert(piece)
        assert self.plan is not None
        return self.plan.value(piece, depth)


class _Plan:
    """The fields of a message by number."""

    def __init__(self, message: Message, source: Source, made: dict[str, _Plan]) -> None:
        made[message.full_name] = self
        self._name = message.full_name
        self._members: dict[int, _Member] = {}
        self._absent: dict[str, Any] = {}
        for one in message.fields:
            scalar = _scalar(one.type, source)
            plan = None
            if scalar is None:
                plan = made.get(one.type) or _Plan(source.by_name[one.type], source, made)
            key = _SCALARS[one.key] if one.key is not None else None
            self._members[one.number] = _Member(one, scalar, plan, key)
            many = one.repeated or key is not None
            self._absent[one.name] = [] if many else None if one.has_presence or scalar is None else scalar.default

    def value(self, data: memoryview, depth: int) -> Any:
        """Returns a message as the value of a field: a time or the content of a wrapper in its own form."""
        found = self.read(data, depth)
        if self._name == TIMESTAMP:
            return found["seconds"] * 1_000_000 + found["nanos"] // 1000
        return found["value"] if self._name in WRAPPERS else found

    def read(self, data: memoryview, depth: int) -> dict[str, Any]:
        if depth > DEPTH_MAX:
            raise ValueError(f"messages are nested deeper than {DEPTH_MAX}")
        found = {name: [] if absent == [] else absent for name, absent in self._absent.items()}
        pieces: dict[int, list[memoryview]] = {}  # of singular messages, whose parts are merged
        chosen: dict[str, int] = {}
        for number, wire, piece in _fields(data):
            member = self._members.get(number)
            if member is None:
                continue
            one = member.field
            if one.oneof and chosen.setdefault(one.oneof, number) != number:
                other = self._members[chosen[one.oneof]].field
                found[other.name] = None
                pieces.pop(other.number, None)
                chosen[one.oneof] = number
            if member.key is not None:
                _expect(wire, BYTES, one)
                found[one.name].append(self._entry(member, piece, depth))
            elif one.repeated:
                found[one.name] += self._several(member, wire, piece, depth)
            elif member.scalar is not None:
                _expect(wire, member.scalar.wire, one)
                found[one.name] = member.scalar.convert(piece)
            else:
                _expect(wire, BYTES, one)
                pieces.setdefault(number, []).append(piece)
        for number, parts in pieces.items():
            member = self._members[number]
            whole = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
            found[member.field.name] = member.value(whole, depth + 1)
        for member in self._members.values():
            if member.key is not None:  # the last of equal keys counts
                found[member.field.name] = list(dict(found[member.field.name]).items())
        return found

    def _several(self, member: _Member, wire: int, piece: Any, depth: int) -> Sequence[Any]:
        scalar = member.scalar
        if scalar is not None and wire == BYTES != scalar.wire:
            return [scalar.convert(one) for one in _packed(piece, scalar.wire)]
        _expect(wire, BYTES if scalar is None else scalar.wire, member.field)
        return [member.value(piece, depth + 1)]

    def _entry(self, member: _Member, data: memoryview, depth: int) -> tuple[Any, Any]:
        assert member.key is not None
        key = member.key.default
        value = member.scalar.default if member.scalar is not None else None
        for number, wire, piece in _fields(data):
            if number == 1:
                _expect(wire, member.key.wire, member.field)
                key = member.key.convert(piece)
            elif number == 2:
                _expect(wire, BYTES if member.scalar is None else member.scalar.wire, member.field)
                value = member.value(piece, depth + 1)
        if value is None and member.plan is not None:
            value = member.plan.value(memoryview(b""), depth + 1)
        return key, value


def _scalar(name: str, source: Source) -> _Scalar | None:
    """Returns how a scalar or an enum is read, None for a message."""
    if name in _SCALARS:
        return _SCALARS[name]
    names = source.enums.get(name)
    if names is None:
        return None

    def convert(number: int) -> str:
        value = _int32(number)
        return names.get(value, str(value))

    return _Scalar(pa.string(), VARINT, convert, next(iter(names.values()), "0"))


def _expect(wire: int, wanted: int, one: Field) -> None:
    if wire != wanted:
        raise ValueError(f"field {one.number} ({one.name}) has wire type {wire} instead of {wanted}")


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Yields number, wire type and content of each field: a number, or bytes. Groups are skipped."""
    position, end = 0, len(data)
    groups: list[int] = []
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"field number {number}")
        if wire == GROUP:
            groups.append(number)
            if len(groups) > DEPTH_MAX:
                raise ValueError(f"groups are nested deeper than {DEPTH_MAX}")
            continue
        if wire == END_GROUP:
            if not groups or groups.pop() != number:
                raise ValueError(f"the end of group {number}, which has not begun")
            continue
        if wire == VARINT:
            content, position = _varint(data, position)
        else:
            if wire == BYTES:
                size, position = _varint(data, position)
            elif wire in (FIXED32, FIXED64):
                size = 4 if wire == FIXED32 else 8
            else:
                raise ValueError(f"wire type {wire} of field {number}")
            if size > end - position:
                raise ValueError(f"field {number} is cut short")
            content = data[position : position + size]
            position += size
        if not groups:
            yield number, wire, content
    if groups:
        raise ValueError(f"group {groups[-1]} has no end")


def _packed(data: memoryview, wire: int) -> Iterator[Any]:
    position = 0
    if wire == VARINT:
        while position < len(data):
            number, position = _varint(data, position)
            yield number
        return
    size = 4 if wire == FIXED32 else 8
    if len(data) % size:
        raise ValueError("a packed field is cut short")
    for position in range(0, len(data), size):
        yield data[position : position + size]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data):
            raise ValueError("a number is cut short")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")
