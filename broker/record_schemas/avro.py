"""Avro decoder: fastavro parses schemas, a bounded reader decodes messages.

fastavro's reader has no limits: a few bytes can announce an array of 2**60 elements of type null, and with a recursive
schema a message controls the depth of the C stack. This reader limits the nesting, and the number of elements by the
size of the message.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ..json_bytes import to_json
from .decoder import DEPTH_MAX, PREFIX_BYTES, Decoded, DecodeError, SchemaError, check_size, schema_id_of, varint

ITEMS_A_BYTE = 8  # values per byte: nulls and empty records take no bytes
ITEMS_MORE = 64
DECIMAL_BYTES = 64  # longer decimals are shown as bytes
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)

Schema = str | list[Any] | dict[str, Any]
"""A part of a schema in JSON: the name of a type, a union, or a type with its attributes."""


class AvroDecoder:
    """Decodes keys or values with one schema. `name` is that of its record."""

    kind = "Avro"

    def __init__(self, text: str) -> None:
        """Parses a schema. Raises SchemaError."""
        try:
            from fastavro import parse_schema
        except ImportError as error:
            raise SchemaError("an Avro schema needs fastavro: pip install 'ottla[avro]'") from error
        self._named: dict[str, Any] = {}
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not JSON: {error}") from error
        try:
            self._schema = parse_schema(given, self._named)
        except Exception as error:  # of several classes of fastavro
            raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
        self.name = self._schema.get("name", "") if isinstance(self._schema, dict) else ""

    def decode(self, data: bytes) -> Decoded:
        """Decodes a value, with or without the prefix of Confluent's wire format. Raises DecodeError."""
        check_size(data)
        schema_id = schema_id_of(data)
        if schema_id is not None:
            try:
                return Decoded(self._value(data, PREFIX_BYTES), f"schema id {schema_id}")
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
            raise DecodeError(f"{len(data) - reader.position} bytes follow the end of the value")
        return value


class _Reader:
    """Reader of one message."""

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
        """Reads a value of this schema. Raises DecodeError."""
        self._left -= 1
        if self._left < 0:
            raise DecodeError("more elements than its bytes can contain")
        if depth > DEPTH_MAX:
            raise DecodeError(f"nested deeper than {DEPTH_MAX} levels")
        if isinstance(schema, list):
            index, self.position = varint(self._data, self.position)
            if not 0 <= index < len(schema):
                raise DecodeError(f"byte {self.position}: no branch {index} in a union of {len(schema)}")
            return self.value(schema[index], depth + 1)
        kind = schema if isinstance(schema, str) else schema["type"]
        read = self._kinds.get(kind) if isinstance(kind, str) else None
        if read is not None:
            return read(schema, depth)
        return self.value(self._named[kind] if isinstance(kind, str) else kind, depth + 1)

    def _take(self, count: int) -> bytes:
        if count < 0:
            raise DecodeError(f"byte {self.position}: invalid length {count}")
        if count > len(self._data) - self.position:
            raise DecodeError(f"byte {self.position}: {count} bytes expected, {len(self._data) - self.position} left")
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
            raise DecodeError(f"byte {begin}: a string is not UTF-8") from error

    def _logical(self, schema: Schema, data: bytes) -> Any:
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal" and len(data) <= DECIMAL_BYTES:
            return _decimal(int.from_bytes(data, "big", signed=True), int(schema.get("scale", 0)))
        return to_json(data)

    def _enum(self, schema: dict[str, Any], depth: int) -> str:
        index, self.position = varint(self._data, self.position)
        if not 0 <= index < len(schema["symbols"]):
            raise DecodeError(f"byte {self.position}: no symbol {index} in an enum of {len(schema['symbols'])}")
        return schema["symbols"][index]

    def _counts(self) -> Any:
        """Yields the number of elements of each block."""
        while True:
            count, self.position = varint(self._data, self.position)
            if count == 0:
                return
            if count < 0:  # followed by the block's size in bytes
                count = -count
                _, self.position = varint(self._data, self.position)
            if count > self._left:
                raise DecodeError(f"byte {self.position}: {count} elements, more than its bytes can contain")
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
    """Returns a number, or a string for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else str(value)


def _decimal(unscaled: int, scale: int) -> str:
    digits = f"{abs(unscaled):0{max(0, scale) + 1}}"
    sign = "-" if unscaled < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else digits)


def _moment(logical: str | None, value: int) -> Any:
    """Returns a date or a timestamp in ISO 8601; the number for other logical types and out of range."""
    try:
        if logical == "date":
            return (_DAY + timedelta(days=value)).isoformat()
        if logical in ("timestamp-millis", "timestamp-micros"):
            unit = {"milliseconds": value} if logical == "timestamp-millis" else {"microseconds": value}
            return (_EPOCH + timedelta(**unit)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        pass
    return value
