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
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from .manifest import ExportError
from .value_schemas.found import (
    ID_BYTES,
    Schema,
    SchemaSource,
    SchemaType,
    SourceError,
    message_indexes,
    schema_id,
)
from .value_schemas.json_schema import columns_of as json_columns
from .value_schemas.proto_source import parse as parse_proto
from .value_schemas.proto_values import Reader as ProtoReader
from .value_schemas.proto_values import columns_of as proto_columns

Kind = Literal["json", "json-confluent", "avro", "avro-confluent", "avro-single", "protobuf", "protobuf-confluent"]
KINDS: tuple[Kind, ...] = (
    "json",
    "json-confluent",
    "avro",
    "avro-confluent",
    "avro-single",
    "protobuf",
    "protobuf-confluent",
)
"""`avro`, `protobuf`: plain binary. `...-confluent`: after a zero byte and a schema id of four bytes, and in Protobuf
the message's indexes. Without a source of schemas the id is ignored. `avro-single`: Avro's single-object encoding,
after the schema's fingerprint, which must match the given schema."""

_SINGLE = b"\xc3\x01"
_WRITERS_KEPT = 256
_SHOWN = 120

Convert = Callable[[Any], Any]


class Decoded(NamedTuple):
    """The values of a column, null for each that did not decode; and the problem of each of these by its row, in
    order."""

    values: pa.Array
    problems: dict[int, str]

    @property
    def failed(self) -> int:
        return len(self.problems)

    @property
    def first_failed(self) -> int:
        return next(iter(self.problems), -1)

    @property
    def problem(self) -> str:
        return next(iter(self.problems.values()), "")


class Decoder(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


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
        from ...extras import needed

        with needed():
            import fastavro
        try:
            plain = _plain_avro(schema)
            fastavro.parse_schema(plain)
        except Exception as error:
            raise ExportError(f"it is not an Avro schema: {_message(error)}") from error
        return cls(kind, arrow_of(plain), json.dumps(plain, sort_keys=True), writers)

    def decoder(self) -> Decoder:
        """Returns a decoder for one task."""
        if self.kind.startswith("avro"):
            return _Avro(self)
        if self.kind.startswith("protobuf"):
            return _Protobuf(self)
        skip = _after_id if self.kind == "json-confluent" else None
        return _Json(self.type, skip) if self.schema is not None else _JsonText(skip)


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
    if family == "PROTOBUF":
        return Decoding.protobuf(schema, message, kind, writers)
    return Decoding.json_schema(schema, kind, writers)


# -- the values of a column


def _through(values: pa.Array, decode: Convert, kind: pa.DataType, read_as: pa.DataType) -> Decoded:
    """Decodes each value by itself, and converts all to a column; if that fails, by halves."""
    found: list[Any] = []
    failed: dict[int, str] = {}
    for row, value in enumerate(values.to_pylist()):
        if value is not None:
            try:
                value = decode(value)
            except SourceError:
                raise
            except Exception as error:  # a decoder may raise anything for foreign bytes
                failed[row] = _message(error)
                value = None
        found.append(value)
    chunks = list(_columns(found, 0, kind, read_as, failed))
    column = pa.concat_arrays(chunks) if chunks else pa.array([], kind)
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


class _JsonText:
    def __init__(self, skip: Convert | None) -> None:
        self._one = _checked_text if skip is None else lambda value: _checked_text(skip(value))

    def decode(self, values: pa.Array) -> Decoded:
        return _through(values, self._one, pa.string(), pa.string())


def _checked_text(value: bytes) -> str:
    text = value.decode()
    _loads(text)
    return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_loads = json.JSONDecoder(parse_constant=_no_constant).decode  # RFC 8259: no NaN, no Infinity


class _Json:
    def __init__(self, kind: pa.DataType, skip: Convert | None) -> None:
        self._kind = kind
        self._convert = of_json(kind)
        self._skip = skip

    def decode(self, values: pa.Array) -> Decoded:
        return _through(values, self._one, self._kind, self._kind)

    def _one(self, value: bytes) -> Any:
        found = _loads((value if self._skip is None else self._skip(value)).decode())
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        return self._convert(found)


def of_json(kind: pa.DataType) -> Convert:
    """Returns a function that converts JSON values to this Arrow type and raises ValueError for others. Raises
    ExportError for unsupported types."""
    types = pa.types
    if types.is_struct(kind):
        return _struct([(field.name, of_json(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(of_json(kind.value_type))
    if types.is_map(kind) and types.is_string(kind.key_type):
        return _map(of_json(kind.item_type))
    for fits, convert in _OF_JSON:
        if fits(kind):
            return convert
    raise ExportError(f"JSON is not decoded to {kind}")


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _struct(members: Sequence[tuple[str, Convert]]) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        get = value.get
        return {name: of(get(name)) for name, of in members}

    return convert


def _list(of: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is not a list")
        return [of(one) for one in value]

    return convert


def _map(of: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        return [(key, of(one)) for key, one in value.items()]

    return convert


def _exactly(kind: type, what: str) -> Convert:
    def convert(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise ValueError(f"{_shown(value)} is not a {what}")

    return convert


def _shown(value: Any) -> str:
    return repr(value)[:40]


def _float(value: Any) -> Any:
    if type(value) not in (int, float):
        raise ValueError(f"{_shown(value)} is not a number")
    return float(value)


def _decimal(value: Any) -> Any:
    if type(value) not in (int, float, str):
        raise ValueError(f"{_shown(value)} is not a number")
    return Decimal(str(value))


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a time")
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _date(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not a date")
    return date.fromisoformat(value)


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"{_shown(value)} is not base64")
    return base64.b64decode(value, validate=True)


_OF_JSON: tuple[tuple[Callable[[pa.DataType], bool], Convert], ...] = (
    (pa.types.is_boolean, _exactly(bool, "boolean")),
    (pa.types.is_integer, _exactly(int, "whole number")),
    (pa.types.is_floating, _nullable(_float)),
    (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), _exactly(str, "text")),
    (pa.types.is_decimal, _nullable(_decimal)),
    (pa.types.is_timestamp, _nullable(_time)),
    (pa.types.is_date32, _nullable(_date)),
    (pa.types.is_binary, _nullable(_bytes)),
)


# -- Avro


class _Avro:
    def __init__(self, of: Decoding) -> None:
        from ...extras import needed

        with needed():
            from fastavro import parse_schema, schemaless_reader
            from fastavro.schema import fingerprint, to_parsing_canonical_form
        from io import BytesIO

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
            return writer, None if writer == parsed else parsed

        self._of = of
        self._read_as = arrow_of(plain, raw=True)
        maps = _has_maps(self._read_as)
        shape = _pairs(self._read_as) if maps else None
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

        self._one = one

    def decode(self, values: pa.Array) -> Decoded:
        return _through(values, self._one, self._of.type, self._read_as)


def _writer(writers: SchemaSource | None, number: int, family: SchemaType) -> Schema:
    """Returns the schema of an id. Raises ValueError if there is none, or one of another type; SourceError."""
    found = writers.by_id(number) if writers is not None else None
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
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [{**one, "type": _inlined(one["type"], others, inner)} for one in made["fields"]]
    for key in ("type", "items", "values"):
        if key in made:
            made[key] = _inlined(made[key], others, inner)
    return made


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


def arrow_of(schema: Any, *, raw: bool = False) -> pa.DataType:
    """Returns the Arrow type of an Avro schema; `raw`: as decoded, before timestamps get the unit of columns.

    Enums are strings, fixed is bytes; logical types other than dates, timestamps and decimals have their base type.
    Raises ExportError for unions of several types besides null, and for recursive records.
    """
    return _arrow(schema, raw, {}, "")


def _arrow(schema: Any, raw: bool, named: dict[str, pa.DataType | None], space: str) -> pa.DataType:
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) > 1:
            raise ExportError("Avro unions of several types cannot be decoded to a column")
        return _arrow(others[0] if others else "null", raw, named, space)
    if isinstance(schema, str):
        if schema in _AVRO:
            return _AVRO[schema]
        name = schema if "." in schema or not space else f"{space}.{schema}"
        found = named.get(name, named.get(schema))
        if found is None:
            raise ExportError(f"the recursive Avro record {schema} cannot be decoded to a column")
        return found
    kind = schema["type"]
    if isinstance(kind, (dict, list)):
        return _arrow(kind, raw, named, space)
    logical = schema.get("logicalType")
    if logical == "decimal" and 0 < schema.get("precision", 0) <= _DECIMAL_DIGITS:
        return _named(schema, named, space, pa.decimal128(schema["precision"], schema.get("scale", 0)))
    if (kind, logical) in _LOGICAL:
        return _LOGICAL[kind, logical][raw]
    if kind == "array":
        return pa.list_(_arrow(schema["items"], raw, named, space))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], raw, named, space))
    if kind in ("enum", "fixed"):
        return _named(schema, named, space, pa.string() if kind == "enum" else pa.binary())
    if kind in ("record", "error"):
        inner, own = _full_name(schema, space)
        named[own] = None
        members = [pa.field(one["name"], _arrow(one["type"], raw, named, inner)) for one in schema["fields"]]
        named[own] = pa.struct(members)
        return pa.struct(members)
    return _arrow(kind, raw, named, space)


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """Returns (namespace, full name) of a named type."""
    name = schema["name"]
    if "." in name:
        return name.rpartition(".")[0], name
    inner = schema.get("namespace", space)
    return inner, f"{inner}.{name}" if inner else name


def _named(schema: Any, named: dict[str, pa.DataType | None], space: str, kind: pa.DataType) -> pa.DataType:
    if "name" in schema:
        named[_full_name(schema, space)[1]] = kind
    return kind


def _without_logical(schema: Any) -> Any:
    """Returns the schema without logical types: faster, and timestamps beyond Python's datetime stay numbers."""
    if isinstance(schema, list):
        return [_without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType" or _is_decimal(schema)}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical(kept[key])
    if "fields" in kept:
        kept["fields"] = [{**one, "type": _without_logical(one["type"])} for one in kept["fields"]]
    return kept


def _is_decimal(schema: Any) -> bool:
    return schema["logicalType"] == "decimal" and 0 < schema.get("precision", 0) <= _DECIMAL_DIGITS


def _has_maps(kind: pa.DataType) -> bool:
    return re.search(r"\bmap<", str(kind)) is not None


def _pairs(kind: pa.DataType) -> Convert:
    """Converts maps to the pairs that pyarrow accepts."""
    if pa.types.is_struct(kind):
        return _struct([(field.name, _pairs(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return _list(_pairs(kind.value_type))
    if pa.types.is_map(kind):
        return _map(_pairs(kind.item_type))
    return lambda value: value


# -- Protobuf


class _Protobuf:
    """Values are read by the fields of the column's message, which have their numbers in every version of it."""

    def __init__(self, of: Decoding) -> None:
        assert of.schema is not None
        own = json.loads(of.schema)
        source = parse_proto(own["text"], own["references"])
        message = source.named(own["message"])
        reader = ProtoReader(message, source)

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
            return reader.read(value)

        self._of, self._one = of, one

    def decode(self, values: pa.Array) -> Decoded:
        return _through(values, self._one, self._of.type, self._of.type)
