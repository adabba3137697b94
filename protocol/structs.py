"""Typed access to `construct`: its two base classes, and functions that parse and build one value with them.

The library ships no types and names the methods of its codecs `_parse` and `_build`; all other modules import
`Construct` and `Struct` from here. Values have type `Any`, since only a codec determines the type of its value.
"""

from __future__ import annotations

import io
from typing import Any

from construct import Construct, Struct  # pyright: ignore[reportMissingTypeStubs]

__all__ = ["Construct", "Struct", "build_value", "members", "parse_value"]


def parse_value(codec: Any, stream: io.BytesIO, context: object, path: str) -> Any:
    """Parses one value at the stream's position. `path` names the value in errors; `context` is passed to nested
    codecs."""
    return codec._parse(stream, context, path)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]


def build_value(codec: Any, value: object, stream: io.BytesIO, context: object, path: str) -> None:
    """Writes one value at the stream's position. `path` names the value in errors; `context` is passed to nested
    codecs."""
    codec._build(value, stream, context, path)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]


def members(layout: Struct) -> list[Any]:
    """Returns the named codecs of a Struct, in order, as `Struct` accepts them."""
    return list(layout.subcons)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
