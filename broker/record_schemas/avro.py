"""Avro: schemas are read by fastavro, messages by a reader of our own.

fastavro's reader has no bounds: a few bytes may say that an array has 2**60 elements of type null, and a recursive
schema takes as deep a C stack as a message says. Here what is nested is counted, and the elements of a message are
bounded by its bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ..json_bytes import to_json
from .decoder import DEPTH_MAX, Decoded, DecodeError, SchemaError, check_size, framed, varint

ITEMS_A_BYTE = 8  # values that a byte may stand for: those of type null, and empty records, have no bytes
ITEMS_MORE = 64
DECIMAL_BYTES = 64  # longer ones are shown as bytes
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)

Schema = str | list[Any] | dict[str, Any]
"""A part of a schema in JSON: the name of a type, a union, or a type with its attributes."""


class AvroDecoder:
    """Decodes by one schema."""

    kind = "Avro"

    def __init__(self, text: str) -> None:
        """Raises SchemaError."""
        try:
            from fastavro import parse_schema
        except ImportError as error:
            raise SchemaError("an Avro schema needs fastavro: pip install 'ottla[avro]'") from error
        self._named: dict[str, Any] = {}
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"it is no JSON: {error}") from error
        try:
            self._schema = parse_schema(given, self._named)
        except Exception as error:  # fastavro's, of several kinds
            raise SchemaError(f"it is no Avro schema: {type(error).__name__}: {error}") from error
        self.name = self._schema.get("name", "") if isinstance(self._schema, dict) else ""

    def decode(self, data: bytes) -> Decoded:
        """The value. With the prefix of Confluent's wire format first, or without it."""
        check_size(data)
        prefix = framed(data)
        if prefix is not None:
            try:
                return Decoded(self._value(data, prefix.position), f"schema id {prefix.schema_id}")
            except DecodeError as error:
                try:
                    return Decoded(self._value(data, 0))
                except DecodeError:
                    raise error from None
        return Decoded(self._value(data, 0))

    def _value(self, data: bytes, position: int) -> Any:
        reader = _Reader(data, position, self._named)
        value = reader.value(self._schema, 0)
        if reader.position < len(data):
            raise DecodeError(f"{len(data) - reader.position} bytes are left over after its end")
        return value


class _Reader:
    """Reads one message."""

    def __init__(self, data: bytes, position: int, named: dict[str, Any]) -> None:
        self.position = position
        self._data = data
        self._named = named
        self._left = len(data) * ITEMS_A_BYTE + ITEMS_MORE
        self._kinds: dict[str, Callable[[Any, int], Any]] = {
            "null": lambda schema, depth: None,
            "boolean": self._boolean,
            "int": self._long,
            "long": self._long,
            "float": lambda schema, depth: _number(_FLOAT.unpack(self._take(4))[0]),
            "double": lambda schema, depth: _number(_DOUBLE.unpack(self._take(8))[0]),
            "bytes": lambda schema, depth: self._logical(schema, self._sized()),
            "string": self._string,
            "fixed": lambda schema, depth: self._logical(schema, self._take(schema["size"])),
            "enum": self._enum,
            "array": self._array,
            "map": self._map,
            "record": self._record,
            "error": self._record,
        }

    def value(self, schema: Schema, depth: int) -> Any:
        """A value of that schema. Raises DecodeError."""
        self._left -= 1
        if self._left < 0:
            raise DecodeError("it has more elements than its bytes account for")
        if depth > DEPTH_MAX:
            raise DecodeError(f"it is nested deeper than {DEPTH_MAX}")
        if isinstance(schema, list):
            index, self.position = varint(self._data, self.position)
            if not 0 <= index < len(schema):
                raise DecodeError(f"byte {self.position}: a union has no branch {index}, but {len(schema)}")
            return self.value(schema[index], depth + 1)
        kind = schema if isinstance(schema, str) else schema["type"]
        read = self._kinds.get(kind) if isinstance(kind, str) else None
        if read is not None:
            return read(schema, depth)
        return self.value(self._named[kind] if isinstance(kind, str) else kind, depth + 1)

    def _take(self, count: int) -> bytes:
        if count < 0:
            raise DecodeError(f"byte {self.position}: a length of {count}")
        if count > len(self._data) - self.position:
            raise DecodeError(f"byte {self.position}: {count} bytes are needed, {len(self._data) - self.position} left")
        self.position += count
        return self._data[self.position - count : self.position]

    def _sized(self) -> bytes:
        size, self.position = varint(self._data, self.position)
        return self._take(size)

    def _boolean(self, schema: Schema, depth: int) -> bool:
        byte = self._take(1)[0]
        if byte > 1:
            raise DecodeError(f"byte {self.position - 1}: a boolean is 0 or 1, not {byte}")
        return byte == 1

    def _long(self, schema: Schema, depth: int) -> Any:
        value, self.position = varint(self._data, self.position)
        return _moment(schema.get("logicalType"), value) if isinstance(schema, dict) else value

    def _string(self, schema: Schema, depth: int) -> str:
        begin = self.position
        try:
            return self._sized().decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"byte {begin}: a string is no UTF-8") from error

    def _logical(self, schema: Schema, data: bytes) -> Any:
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal" and len(data) <= DECIMAL_BYTES:
            return _decimal(int.from_bytes(data, "big", signed=True), int(schema.get("scale", 0)))
        return to_json(data)

    def _enum(self, schema: dict[str, Any], depth: int) -> str:
        index, self.position = varint(self._data, self.position)
        if not 0 <= index < len(schema["symbols"]):
            raise DecodeError(f"byte {self.position}: an enum has no symbol {index}, but {len(schema['symbols'])}")
        return schema["symbols"][index]

    def _counts(self) -> Any:
        """The number of elements of each block."""
        while True:
            count, self.position = varint(self._data, self.position)
            if count == 0:
                return
            if count < 0:  # with the block's size in bytes
                count = -count
                _, self.position = varint(self._data, self.position)
            if count > self._left:
                raise DecodeError(f"byte {self.position}: {count} elements, more than its bytes account for")
            yield count

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        return [self.value(schema["items"], depth + 1) for count in self._counts() for _ in range(count)]

    def _map(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for count in self._counts():
            for _ in range(count):
                name = self._string("string", depth)
                found[name] = self.value(schema["values"], depth + 1)
        return found

    def _record(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        return {field["name"]: self.value(field["type"], depth + 1) for field in schema["fields"]}


def _number(value: float) -> float | str:
    """JSON has no NaN and no infinities."""
    return value if math.isfinite(value) else str(value)


def _decimal(unscaled: int, scale: int) -> str:
    digits = f"{abs(unscaled):0{max(0, scale) + 1}}"
    sign = "-" if unscaled < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else digits)


def _moment(logical: str | None, value: int) -> Any:
    """A date or a time in words; the number where it is none."""
    try:
        if logical == "date":
            return (_DAY + timedelta(days=value)).isoformat()
        if logical in ("timestamp-millis", "timestamp-micros"):
            unit = {"milliseconds": value} if logical == "timestamp-millis" else {"microseconds": value}
            return (_EPOCH + timedelta(**unit)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        pass
    return value
