"""Values as columns: JSON by a schema or as validated text, and Avro and Protobuf by their writers' schemas.

Owns which values fail to decode: those in another format, and those that do not fit their column. A null value decodes
to null. A value is decoded as a whole or not at all; JSON members outside the schema are dropped, missing ones are
null.

pyarrow's JSON reader is not used: a document that is only `null` aborts its process.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from ...extras import needed
from .manifest import ExportError
from .value_schemas.json_schema import columns_of as json_columns
from .value_schemas.proto_source import parse as parse_proto
from .value_schemas.proto_values import columns_of as proto_columns
from .value_schemas.proto_values import reader as proto_reader
from .value_schemas.sources import (
    ID_BYTES,
    Schema,
    SchemaSource,
    SchemaType,
    SourceError,
    message_indexes,
    schema_id,
    schema_of,
)

Kind = Literal["json", "json-confluent", "avro", "avro-confluent", "avro-single", "protobuf", "protobuf-confluent"]
"""`avro`, `protobuf`: plain binary. `...-confluent`: after a zero byte and a schema id of four bytes, and in Protobuf
the message's indexes. Without a source of schemas the id is ignored. `avro-single`: Avro's single-object encoding,
after the schema's fingerprint, which must match the given schema."""

_SINGLE = b"\xc3\x01"
_WRITERS_KEPT = 256
_SHOWN = 120

Convert = Callable[[Any], Any]


class Decoded(NamedTuple):
    """The values of a column, null for each that did not decode, and the problems of these by row, in order."""

    values: pa.Array
    problems: dict[int, str]


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoding of values; picklable. `type` is that of the column. `schema` is the text of the schema that it was
    made from, None for JSON as text. `writers` has the schemas of the ids in the values; without it all values have
    `schema`."""

    kind: Kind
    type: pa.DataType
    schema: str | None = None
    writers: SchemaSource | None = None

    @classmethod
    def json(cls, schema: pa.Schema | pa.DataType | None = None, kind: Kind = "json") -> Decoding:
        """Returns the decoding of JSON: to structs by the schema, or without one to the text of valid JSON. Raises
        ExportError for a schema with unsupported types."""
        if schema is None:
            return cls(kind, pa.string())
        columns = pa.struct(list(schema)) if isinstance(schema, pa.Schema) else schema
        if not pa.types.is_struct(columns):
            raise ExportError(f"a schema for JSON must have columns, but is {columns}")
        of_json(columns)
        return cls(kind, columns, str(columns))

    @classmethod
    def json_schema(cls, schema: str | Schema, kind: Kind = "json", writers: SchemaSource | None = None) -> Decoding:
        """Returns the decoding of JSON to the columns of a JSON Schema. Raises ExportError."""
        given = Schema("JSON", schema) if isinstance(schema, str) else schema
        columns = json_columns(given)
        of_json(columns)
        plain = given._replace(text=json.dumps(json.loads(given.text)))  # the same schema may be indented otherwise
        return cls(kind, columns, _identity(plain), writers)

    @classmethod
    def protobuf(
        cls,
        schema: str | Schema,
        message: str | None = None,
        kind: Kind = "protobuf",
        writers: SchemaSource | None = None,
    ) -> Decoding:
        """Returns the decoding of Protobuf by the source of a schema: to the columns of `message`, by default its
        first. Raises ExportError."""
        given = Schema("PROTOBUF", schema) if isinstance(schema, str) else schema
        source = parse_proto(given.text, given.all_references())
        chosen = source.messages[0] if message is None else source.named(message)
        return cls(kind, proto_columns(chosen, source), _identity(given, message=chosen.full_name), writers)

    @classmethod
    def avro(cls, schema: str | Schema, kind: Kind = "avro", writers: SchemaSource | None = None) -> Decoding:
        """Returns the decoding of Avro by a schema in JSON form: `writers` have the schemas of other values, which are
        resolved to it. Raises ExportError; MissingExtra without fastavro."""
        with needed():
            import fastavro
        try:
            plain = _plain_avro(schema)
            parsed = fastavro.parse_schema(plain)
        except Exception as error:
            raise ExportError(f"it is not an Avro schema: {_message(error)}") from error
        columns = _arrow(parsed, raw=False, named={})
        _takes_bytes(parsed, {})
        return cls(kind, columns, json.dumps(plain, sort_keys=True), writers)

    @classmethod
    def of(cls, kind: Kind, schema: str | Schema, message: str | None, writers: SchemaSource | None) -> Decoding:
        """Returns the decoding of this kind; `message` is for Protobuf. Raises ExportError; MissingExtra for Avro."""
        if kind.startswith("avro"):
            return cls.avro(schema, kind, writers)
        if kind.startswith("protobuf"):
            return cls.protobuf(schema, message, kind, writers)
        return cls.json_schema(schema, kind, writers)

    def decoder(self) -> Decoder:
        """Returns a decoder for one task."""
        if self.kind.startswith("avro"):
            return _avro(self)
        if self.kind.startswith("protobuf"):
            return Decoder(_protobuf(self), self.type)
        one = _checked_text if self.schema is None else _object(self.type)
        return Decoder(one if self.kind != "json-confluent" else lambda value: one(_after_id(value)), self.type)


def _identity(schema: Schema, **more: str) -> str:
    """Returns a schema with its references as one text, which `of_identity` reads."""
    return json.dumps({**more, "text": schema.text, "references": schema.all_references()}, sort_keys=True)


def of_identity(kind: Kind, text: str, writers: SchemaSource | None) -> Decoding:
    """Returns the decoding that has this kind and this `schema`, as for an earlier export. Raises ExportError."""
    if kind.startswith("avro"):
        return Decoding.avro(text, kind, writers)
    try:
        found = json.loads(text)
        family: SchemaType = "PROTOBUF" if kind.startswith("protobuf") else "JSON"
        others = tuple((name, Schema(family, of)) for name, of in found["references"].items())
        schema, message = Schema(family, found["text"], others), found.get("message")
        if not all(isinstance(one, str) for one in (schema.text, *found["references"].values(), message or "")):
            raise ValueError("a text in it is none")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExportError(f"the schema of an earlier export is not valid: {error}") from error
    return Decoding.of(kind, schema, message, writers)


# -- the values of a column


class Decoder:
    """Decodes the values of a column: `one` converts each to what pyarrow reads as `read_as`, by default as `kind`."""

    def __init__(self, one: Convert, kind: pa.DataType, read_as: pa.DataType | None = None) -> None:
        self._one, self._kind, self._read_as = one, kind, kind if read_as is None else read_as

    def decode(self, values: pa.Array) -> Decoded:
        """Converts the values to a column; if they do not fit as a whole, by halves."""
        found: list[Any] = []
        failed: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            if value is not None:
                try:
                    value = self._one(value)
                except SourceError:
                    raise
                except Exception as error:  # a decoder may raise anything for foreign bytes
                    failed[row] = _message(error)
                    value = None
            found.append(value)
        chunks = list(_columns(found, 0, self._kind, self._read_as, failed))
        column = pa.concat_arrays(chunks) if chunks else pa.array([], self._kind)
        return Decoded(column, dict(sorted(failed.items())))


def _columns(found: Sequence[Any], begin: int, kind: pa.DataType, read_as: pa.DataType, failed: dict[int, str]) -> Any:
    """Yields the column in parts: only the values that do not fit are lost."""
    try:
        column = pa.array(found, read_as)
        yield column if read_as == kind else column.cast(kind)
    except Exception as error:  # overflow, surrogates, values out of range
        if len(found) == 1:
            failed[begin] = _message(error)
            yield pa.nulls(1, kind)
            return
        half = len(found) // 2
        yield from _columns(found[:half], begin, kind, read_as, failed)
        yield from _columns(found[half:], begin + half, kind, read_as, failed)


def _message(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


# -- JSON


def _after_id(value: bytes) -> bytes:
    schema_id(value)
    return value[ID_BYTES:]


def _checked_text(value: bytes) -> str:
    text = value.decode()
    _loads(text)
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_loads = json.JSONDecoder(parse_constant=_no_constant).decode  # RFC 8259: no NaN, no Infinity


def _object(kind: pa.DataType) -> Convert:
    """Returns the decoding of a JSON object to this type."""
    convert = of_json(kind)

    def one(value: bytes) -> Any:
        found = _loads(value.decode())
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        return convert(found)

    return one


def of_json(kind: pa.DataType) -> Convert:
    """Returns a function that converts JSON values to this Arrow type and raises ValueError for others. Raises
    ExportError for unsupported types."""

    def plain(kind: pa.DataType) -> Convert:
        for fits, convert in _OF_JSON:
            if fits(kind):
                return convert
        raise ExportError(f"JSON is not decoded to {kind}")

    return _nested(kind, plain)


def _nested(kind: pa.DataType, plain: Callable[[pa.DataType], Convert]) -> Convert:
    """Returns a function that converts values to what pyarrow reads as this type: maps to pairs, and what is no struct,
    list or map by `plain` of its type. It raises ValueError for others."""
    types = pa.types
    if types.is_struct(kind):
        members = [(field.name, _nested(field.type, plain)) for field in kind]
        return _checked((dict,), "an object", lambda value: {name: of(value.get(name)) for name, of in members})
    if types.is_list(kind) or types.is_large_list(kind):
        item = _nested(kind.value_type, plain)
        return _checked((list,), "a list", lambda value: [item(one) for one in value])
    if types.is_map(kind) and types.is_string(kind.key_type):
        inner = _nested(kind.item_type, plain)
        return _checked((dict,), "an object", lambda value: [(key, inner(one)) for key, one in value.items()])
    return plain(kind)


def _checked(kinds: tuple[type, ...], what: str, convert: Convert | None = None) -> Convert:
    """Returns a function that converts values of exactly these types, and keeps null."""

    def checked(value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in kinds:
            raise ValueError(f"{repr(value)[:40]} is not {what}")
        return value if convert is None else convert(value)

    return checked


def _time(value: str) -> datetime:
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_OF_JSON: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_boolean, _checked((bool,), "a boolean")),
    (pa.types.is_integer, _checked((int,), "a whole number")),
    (pa.types.is_floating, _checked((int, float), "a number", float)),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _checked((str,), "a text")),
    (pa.types.is_decimal, _checked((int, float, str), "a number", lambda value: Decimal(str(value)))),
    (pa.types.is_timestamp, _checked((str,), "a time", _time)),
    (pa.types.is_date32, _checked((str,), "a date", date.fromisoformat)),
    (pa.types.is_binary, _checked((str,), "base64", lambda value: base64.b64decode(value, validate=True))),
)


# -- Avro


def _avro(of: Decoding) -> Decoder:
    with needed():
        from fastavro import parse_schema, schemaless_reader
        from fastavro.schema import fingerprint, to_parsing_canonical_form

    assert of.schema is not None
    plain = json.loads(of.schema)
    parsed = parse_schema(_without_logical(plain))

    @functools.lru_cache(maxsize=_WRITERS_KEPT)
    def schemas_of(number: int) -> tuple[Any, Any]:
        """Returns the writer's schema, and the reader's if it is another."""
        if of.writers is None:
            return parsed, None
        found = _writer(of.writers, number, "AVRO")
        try:
            writer = parse_schema(_without_logical(_plain_avro(found)))
        except Exception as error:
            raise ValueError(f"schema {number} is not an Avro schema: {_message(error)}") from error
        _takes_bytes(writer, {})
        return writer, None if writer == parsed else parsed

    read_as = _arrow(parse_schema(plain), raw=True, named={})
    shape = _nested(read_as, lambda _: lambda value: value) if re.search(r"\bmap<", str(read_as)) else None
    front = b""
    if of.kind == "avro-single":
        front = _SINGLE + bytes.fromhex(fingerprint(to_parsing_canonical_form(plain), "CRC-64-AVRO"))

    def one(value: bytes) -> Any:
        writer, reader = parsed, None
        if of.kind == "avro-confluent":
            writer, reader = schemas_of(schema_id(value))
            value = value[ID_BYTES:]
        elif front:
            if not value.startswith(front):
                raise ValueError("it does not begin with the schema's fingerprint")
            value = value[len(front) :]
        file = BytesIO(value)
        found = schemaless_reader(file, writer, reader)
        if file.tell() != len(value):
            raise ValueError(f"{len(value) - file.tell()} bytes are left after the value")
        return shape(found) if shape is not None else found

    return Decoder(one, of.type, read_as)


def _writer(writers: SchemaSource | None, number: int, family: SchemaType) -> Schema:
    """Returns the schema of an id. Raises ValueError if there is none, or one of another type; SourceError."""
    found = schema_of(writers, number) if writers is not None else None
    if found is None:
        raise ValueError(f"schema {number} is not in {writers}")
    if found.type != family:
        raise ValueError(f"schema {number} is of the type {found.type}, not {family}")
    return found


def _plain_avro(schema: str | Schema) -> Any:
    """Returns an Avro schema as JSON, with the types that it refers to in the place of their first use."""
    if isinstance(schema, str):
        return json.loads(schema)
    others = {_full_name(one, "")[1]: one for one in map(json.loads, schema.all_references().values())}
    return _inlined(json.loads(schema.text), others, "") if others else json.loads(schema.text)


def _inlined(schema: Any, others: dict[str, Any], space: str) -> Any:
    """Takes the definitions out of `others` that a schema uses."""
    if isinstance(schema, list):
        return [_inlined(one, others, space) for one in schema]
    if isinstance(schema, str):
        name = schema if "." in schema or not space else f"{space}.{schema}"
        found = others.pop(name, None) or others.pop(schema, None)
        return schema if found is None else _inlined(found, others, "")
    inner = _full_name(schema, space)[0] if "name" in schema else space
    return _with_inner(schema, lambda one: _inlined(one, others, inner))


def _with_inner(schema: dict[str, Any], convert: Convert) -> dict[str, Any]:
    """Returns a schema with the schemas in it converted."""
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [{**one, "type": convert(one["type"])} for one in made["fields"]]
    return made | {key: convert(made[key]) for key in ("type", "items", "values") if key in made}


_AVRO: dict[str, pa.DataType] = {
    "null": pa.string(),  # readers do not support columns of type null
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_MICROS = pa.timestamp("us", tz="UTC")
_LOGICAL: dict[tuple[str, str], tuple[pa.DataType, pa.DataType]] = {
    ("int", "date"): (pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): (_MICROS, pa.timestamp("ms", tz="UTC")),
    ("long", "timestamp-micros"): (_MICROS, _MICROS),
}
_DECIMAL_DIGITS = 38


def _arrow(schema: Any, raw: bool, named: dict[str, pa.DataType | None]) -> pa.DataType:
    """Returns the Arrow type of an Avro schema, parsed by fastavro, so with full names; `raw`: as decoded, before
    timestamps get the unit of columns. `named` are the types above it, None for a record that has not ended.

    Enums are strings, fixed is bytes; logical types other than dates, timestamps and decimals have their base type.
    Raises ExportError for unions of several types besides null, and for recursive records.
    """
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) > 1:
            raise ExportError("Avro unions of several types cannot be decoded to a column")
        return _arrow(others[0] if others else "null", raw, named)
    if isinstance(schema, str):
        if schema in _AVRO:
            return _AVRO[schema]
        found = named.get(schema)
        if found is None:
            raise ExportError(f"the recursive Avro record {schema.rpartition('.')[2]} cannot be decoded to a column")
        return found
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _arrow(kind, raw, named)
    logical = schema.get("logicalType")
    if _is_decimal(schema):
        found = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif (kind, logical) in _LOGICAL:
        found = _LOGICAL[kind, logical][raw]
    elif kind == "array":
        found = pa.list_(_arrow(schema["items"], raw, named))
    elif kind == "map":
        found = pa.map_(pa.string(), _arrow(schema["values"], raw, named))
    elif kind in ("enum", "fixed"):
        found = pa.string() if kind == "enum" else pa.binary()
    elif kind in ("record", "error"):
        named[schema["name"]] = None
        found = pa.struct([pa.field(one["name"], _arrow(one["type"], raw, named)) for one in schema["fields"]])
    else:
        return _arrow(kind, raw, named)
    if "name" in schema:
        named[schema["name"]] = found
    return found


def _takes_bytes(schema: Any, named: dict[str, bool | None]) -> bool:
    """Returns whether each value of a schema, parsed by fastavro, takes at least one byte.

    Raises ExportError for the schemas by which a few bytes of a value end the process, since fastavro's reader has no
    limits: arrays of a type without bytes, of which they can announce any number, and recursive records.
    """
    if isinstance(schema, list):
        for one in schema:
            _takes_bytes(one, named)
        return True
    if isinstance(schema, str):
        found = named.get(schema, schema != "null")
        if found is None:
            raise ExportError(f"the recursive Avro record {schema.rpartition('.')[2]} cannot be decoded")
        return found
    kind = schema["type"]
    if kind == "array" and not _takes_bytes(schema["items"], named):
        raise ExportError("Avro arrays of a type without bytes, such as null, cannot be decoded")
    if kind == "map":
        _takes_bytes(schema["values"], named)
    if kind in ("array", "map"):
        return True
    if kind not in ("record", "error", "enum", "fixed"):
        return _takes_bytes(kind, named)
    named[schema["name"]] = None
    fields = [_takes_bytes(one["type"], named) for one in schema.get("fields", ())]
    named[schema["name"]] = found = any(fields) or kind == "enum" or schema.get("size", 0) > 0
    return found


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """Returns (namespace, full name) of a named type."""
    name = schema["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    inner = schema.get("namespace", space)
    return inner, f"{inner}.{name}" if inner else name


def _without_logical(schema: Any) -> Any:
    """Returns the schema without logical types: faster, and timestamps beyond Python's datetime stay numbers."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType" or _is_decimal(schema)}
    return _with_inner(kept, _without_logical)


def _is_decimal(schema: dict[str, Any]) -> bool:
    return schema.get("logicalType") == "decimal" and 0 < schema.get("precision", 0) <= _DECIMAL_DIGITS


# -- Protobuf


def _protobuf(of: Decoding) -> Convert:
    """Returns the decoding by the fields of the column's message, which have their numbers in every version."""
    assert of.schema is not None
    own = json.loads(of.schema)
    source = parse_proto(own["text"], own["references"])
    message = source.named(own["message"])
    read = proto_reader(message, source)

    @functools.lru_cache(maxsize=_WRITERS_KEPT)
    def writer_of(number: int) -> Any:
        found = _writer(of.writers, number, "PROTOBUF")
        try:
            return parse_proto(found.text, found.all_references())
        except ExportError as error:
            raise ValueError(f"schema {number}: {error}") from error

    @functools.lru_cache(maxsize=_WRITERS_KEPT)
    def check(number: int, indexes: tuple[int, ...]) -> None:
        written = (writer_of(number) if of.writers is not None else source).at(indexes).full_name
        if written != message.full_name:
            raise ValueError(f"it is a {written}, and the columns are those of {message.full_name}")

    def one(value: bytes) -> Any:
        if of.kind == "protobuf-confluent":
            number = schema_id(value)
            indexes, position = message_indexes(value)
            check(number, indexes)
            value = value[position:]
        return read(value)

    return one
