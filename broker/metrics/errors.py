"""Counts error codes in responses, with one generated function per response class.

Owns the walk to every `error_code` of a response, at any depth, as straight-line code, because it runs for every
response.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from ...protocol.errors import ErrorCode, error_name
from ...protocol.schema import Value, types_of
from ..errors import CODES, Refused

Note = Callable[[Any, dict[int, int]], None]
"""Adds the error codes of a response to counts by code."""

_CODE = "error_code"


def name_of(code: int) -> str:
    """Returns Kafka's name of an error code; an unknown code, possible with an injected fault, is returned as its
    number.
    """
    return error_name(code) or str(code)


def code_of(error: Exception) -> int:
    """Returns the code of `errors.code_of` for an exception, without logging it again."""
    if isinstance(error, Refused):
        return error.code
    return CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)


@functools.cache
def noting(response_class: type) -> Note:
    """Returns the function for a response class. A class without error codes counts nothing."""
    lines = ["def note(value, counts):", " get = counts.get", *_lines(response_class, "value", 1), " return None"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # source is made of declared field names only
    return names["note"]


def _lines(of: type, value: str, depth: int) -> Iterator[str]:
    indent = " " * depth
    for name, hint in types_of(of).items():
        if name == _CODE:
            yield f"{indent}code = {value}.{_CODE}"
            yield f"{indent}counts[code] = get(code, 0) + 1"
            continue
        is_list, inner = _group(hint)
        if inner is None:
            continue
        one = f"v{depth}"
        head = f"for {one} in {value}.{name} or ():" if is_list else f"if ({one} := {value}.{name}) is not None:"
        within = list(_lines(inner, one, depth + 1))
        if within:
            yield indent + head
            yield from within


def _group(hint: Any) -> tuple[bool, type | None]:
    """Returns whether a field is an array, and the class of its struct, if it has one."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (arg for arg in get_args(hint) if arg is not types.NoneType) if len(get_args(hint)) == 2 else (None,)
    is_list = get_origin(hint) is list
    if is_list:
        (hint,) = get_args(hint)
    return is_list, hint if isinstance(hint, type) and issubclass(hint, Value) else None
