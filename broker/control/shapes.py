"""Checks JSON values against schemas: the part of JSON Schema 2020-12 that the control plane's OpenAPI document uses.

Owns no schema. What is checked here is what the document says, so the two cannot differ: a body that the document
allows comes to a handler, any other is refused with one line that names the place. Keywords it does not know are an
error when a schema is made (`unknown_keywords`), never passed over. A whole number is an `int`: `2.0` is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

CHECKED = {
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "properties",
    "required",
    "type",
}
NOTES = {"default", "description", "examples", "title"}

_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_ARTICLES = {"array": "a list", "integer": "a whole number", "null": "null", "object": "an object"}
_SHOWN_LETTERS = 40


class Misfit(ValueError):
    """A value is not what its schema says; one line that names the place in it."""


def check(value: Any, schema: Schema, named: Mapping[str, Schema], where: str = "the body") -> None:
    """Nothing if `value` fits `schema`, whose `$ref`s are looked up in `named`; raises Misfit.

    Values must not be nested deeper than Python's recursion allows, which json.loads has seen to.
    """
    if "$ref" in schema:
        check(value, named[schema["$ref"].rsplit("/", 1)[1]], named, where)
        return
    if "anyOf" in schema:
        _any_of(value, schema, named, where)
        return
    if "const" in schema and not _same(value, schema["const"]):
        raise Misfit(f"{where} is {shown(value)}, not {shown(schema['const'])}")
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        raise Misfit(f"{where} is {shown(value)}, none of {', '.join(map(str, schema['enum']))}")
    types = schema.get("type", ())
    types = (types,) if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        raise Misfit(f"{where} is {shown(value)}, not {' or '.join(_ARTICLES.get(n, f'a {n}') for n in types)}")
    if isinstance(value, dict):
        _object(value, schema, named, where)
    elif isinstance(value, list):
        _bounds(len(value), schema, "Items", where, "entries")
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), named, f"{where}[{index}]")
    elif isinstance(value, str):
        _bounds(len(value), schema, "Length", where, "letters")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _bounds(value, schema, "imum", where)


def unknown_keywords(schema: Schema) -> Iterator[str]:
    """Keywords in a schema, at any depth, that `check` would pass over."""
    yield from (keyword for keyword in schema if keyword not in CHECKED | NOTES)
    for part in (*schema.get("properties", {}).values(), *schema.get("anyOf", ())):
        yield from unknown_keywords(part)
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), Mapping):
            yield from unknown_keywords(schema[keyword])


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f"{value!r}" if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_LETTERS else text[:_SHOWN_LETTERS] + "..."


def _is(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) is isinstance(other, bool)


def _bounds(size: float, schema: Schema, keyword: str, where: str, what: str = "") -> None:
    least, most = schema.get(f"min{keyword}"), schema.get(f"max{keyword}")
    had = f"has {size} {what}" if what else f"is {shown(size)}"
    if least is not None and size < least:
        raise Misfit(f"{where} {had}, fewer than {least}" if what else f"{where} {had}, less than {least}")
    if most is not None and size > most:
        raise Misfit(f"{where} {had}, more than {most}")


def _object(value: dict[str, Any], schema: Schema, named: Mapping[str, Schema], where: str) -> None:
    _bounds(len(value), schema, "Properties", where, "entries")
    for name in schema.get("required", ()):
        if name not in value:
            raise Misfit(f"{where} lacks {name}")
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, item in value.items():
        part = known.get(name, others)
        if part is False:
            raise Misfit(f"{where} has {shown(name)}, which is none of: {', '.join(known)}")
        if isinstance(part, Mapping):
            check(item, part, named, f"{where}.{name[:_SHOWN_LETTERS]}")


def _any_of(value: Any, schema: Schema, named: Mapping[str, Schema], where: str) -> None:
    """One of several: the message is the one of the alternative of this value's type, if there is one."""
    told: Misfit | None = None
    for one in schema["anyOf"]:
        try:
            return check(value, one, named, where)
        except Misfit as misfit:
            types = one.get("type", ())
            if told is None and any(_is(value, name) for name in ((types,) if isinstance(types, str) else types)):
                told = misfit
    kinds = " or ".join(str(one.get("title", one.get("type", "another"))) for one in schema["anyOf"])
    raise told or Misfit(f"{where} is {shown(value)}, not {kinds}")
