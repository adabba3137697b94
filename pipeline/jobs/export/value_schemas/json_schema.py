"""The columns of a JSON Schema, drafts 4 to 2020-12.

An object with properties is a struct, one with only `additionalProperties` a map; `integer` is a BIGINT, `number` a
DOUBLE; a string is text, or a time or a date by its `format`. `connect.type` of Kafka Connect's schemas is honoured.
Columns are nullable: a value that lacks a member has null there, also where the schema requires it. Other keywords do
not change columns, and values are not validated by them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ..manifest import ExportError
from .sources import Schema

DEPTH_MAX = 64
_MICROS = pa.timestamp("us", tz="UTC")
_SCALARS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: dict[str, pa.DataType] = {"date-time": _MICROS, "date": pa.date32()}
_CONNECT: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bytes": pa.binary(),
}
_KINDS: tuple[tuple[type, str], ...] = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def columns_of(schema: Schema) -> pa.DataType:
    """Returns the Arrow type of the values. Raises ExportError, which names the place in the schema."""
    documents = {name: _parsed(text, name) for name, text in schema.all_references().items()}
    root = _parsed(schema.text, "the schema")
    found = _Reader(documents).type_of(root, root, "", 0)
    if not pa.types.is_struct(found):
        raise ExportError("a JSON schema must be of an object with properties to have columns")
    return found


def _parsed(text: str, name: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ExportError(f"{name} is not a JSON schema: it must be an object")
    return found


class _Reader:
    """The types of schemas in a document and in those that it refers to."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    def type_of(self, node: Any, root: Any, at: str, depth: int) -> pa.DataType:
        if not isinstance(node, dict):
            raise _unsupported(at, "has no type")
        if depth > DEPTH_MAX:
            raise _unsupported(at, "is recursive, or nested too deeply")
        if "$ref" in node:
            target, of = self._target(node["$ref"], root, at)
            return self.type_of(target, of, at, depth + 1)
        for name in ("oneOf", "anyOf", "allOf"):
            if name in node and "type" not in node and "properties" not in node:
                return self._only(node[name], root, at, depth, name)
        if (connect := node.get("connect.type")) in _CONNECT:
            return _CONNECT[connect]
        kinds = _kinds(node, at)
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        if len(kinds) != 1:
            raise _unsupported(at, f"has the types {', '.join(sorted(kinds))}" if kinds else "has no type")
        (kind,) = kinds
        if kind == "object":
            return self._object(node, root, at, depth)
        if kind == "array":
            items = node.get("items")
            if not isinstance(items, dict):
                raise _unsupported(at, "is an array without a type of its items")
            return pa.list_(self.type_of(items, root, f"{at}[]", depth + 1))
        if kind == "string":
            return _FORMATS.get(node.get("format", ""), pa.string())
        return _SCALARS[kind]

    def _object(self, node: Any, root: Any, at: str, depth: int) -> pa.DataType:
        properties = node.get("properties")
        if isinstance(properties, dict) and properties:
            fields = [
                pa.field(name, self.type_of(of, root, f"{at}.{name}" if at else name, depth + 1))
                for name, of in properties.items()
            ]
            return pa.struct(fields)
        others = node.get("additionalProperties")
        if not isinstance(others, dict) or not others:
            raise _unsupported(at, "is an object without properties")
        return pa.map_(pa.string(), self.type_of(others, root, f"{at}{{}}", depth + 1))

    def _only(self, choices: Any, root: Any, at: str, depth: int, name: str) -> pa.DataType:
        """Returns the type of the only choice besides null."""
        if not isinstance(choices, list):
            raise _unsupported(at, f"has a {name} that is no list")
        others = [one for one in choices if not (isinstance(one, dict) and _is_null(one))]
        if len(others) != 1:
            raise _unsupported(at, f"has {len(others)} types by its {name}")
        return self.type_of(others[0], root, at, depth + 1)

    def _target(self, reference: Any, root: Any, at: str) -> tuple[Any, Any]:
        """Returns the schema that `$ref` names, and its document."""
        if not isinstance(reference, str):
            raise _unsupported(at, "has a $ref that is no text")
        name, _, pointer = reference.partition("#")
        found = of = root if not name else self._documents.get(name)
        for step in (unquote(one).replace("~1", "/").replace("~0", "~") for one in pointer.split("/")[1:]):
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                found = found.get(step) if isinstance(found, dict) else None
        if found is None:
            raise _unsupported(at, f"refers to {reference}, which is not there")
        return found, of


def _is_null(node: Any) -> bool:
    return node.get("type") == "null" or node.get("const", 0) is None


def _kinds(node: Any, at: str) -> set[str]:
    """Returns the types of a schema besides null; those of its constants without a type."""
    given = node.get("type")
    if given is None:
        if "properties" in node or "additionalProperties" in node:
            return {"object"}
        values = node.get("enum", [node["const"]] if "const" in node else [])
        given = [next((name for kind, name in _KINDS if isinstance(one, kind)), "null") for one in values]
    kinds = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
    if not kinds <= {*_SCALARS, "object", "array", "null"}:
        raise _unsupported(at, f"has the type {given!r}")
    return kinds - {"null"}


def _unsupported(at: str, what: str) -> ExportError:
    return ExportError(f"{at or 'the JSON schema'} {what}: such values have no column")
