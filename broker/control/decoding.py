"""Decodes requests into models, and describes in one line why a request does not match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ...protocol.narrowing import is_dict, is_list
from .refusal import Refusal, shown

T = TypeVar("T")
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")


def decode(raw: bytes, kind: type[T]) -> T:
    """Returns the JSON in `raw` as `kind`. Raises Refusal (400)."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise Refusal(400, _misfit(error, _value(raw), kind, "the body")) from error
    except RecursionError as error:
        raise Refusal(400, "the body is nested too deeply") from error
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}" if raw else "a body of JSON is needed") from error


def convert(value: Any, kind: type[T], where: str) -> T:
    """Returns a value of a path or a query, where numbers are texts, as `kind`. Raises Refusal (400)."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, _misfit(error, value, kind, where)) from error


def _value(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):  # a number out of range, or a value nested too deeply
        return None


def _misfit(error: msgspec.ValidationError, value: Any, kind: Any, where: str) -> str:
    """Returns the place, the value there, the problem, and the names or words that would be accepted."""
    problem, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    kinds = [inspect.type_info(kind)]
    for name, index in _STEP.findall(path):
        kinds = [part for one in kinds for part in _parts(one, name)]
        if is_dict(value) and name in value:
            value = value[name]
        elif is_list(value) and index.isdecimal() and int(index) < len(value):
            value = value[int(index)]
        else:
            value = None
    plain = [one for part in kinds for one in _alternatives(part)]
    accepted: list[str] = []
    if "unknown field" in problem:
        accepted = [field.name for one in plain if isinstance(one, inspect.StructType) for field in one.fields]
    elif "enum value" in problem:
        accepted = [str(word) for one in plain if isinstance(one, inspect.LiteralType) for word in one.values]
    is_ = "" if value is None or isinstance(value, dict) else f" is {shown(value)}"
    return f"{where}{path}{is_}: {problem}" + (f"; accepted are {', '.join(accepted)}" if accepted else "")


def _parts(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    """Yields the types of a field of `name`, or of the entries of a list or an object for an empty name."""
    for one in _alternatives(kind):
        if isinstance(one, inspect.StructType) and name:
            yield from (field.type for field in one.fields if field.name == name)
        elif isinstance(one, inspect.ListType) and not name:
            yield one.item_type
        elif isinstance(one, inspect.DictType) and not name:
            yield one.value_type


def _alternatives(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        yield from _alternatives(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _alternatives(one)
    else:
        yield kind
