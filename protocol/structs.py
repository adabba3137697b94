"""The seam to `construct`: its two base classes, and typed functions that read and write one value with them.

Owns the contact with a library that ships no types and that names the methods of its codecs `_parse` and `_build`. All
other modules import `Construct` and `Struct` from here. The value of a codec is `Any`: its codec alone has its type.
"""

from __future__ import annotations

import io
from typing import Any

from construct import Construct, Struct  # pyright: ignore[reportMissingTypeStubs]

__all__ = ["Construct", "Struct", "build_value", "members", "parse_value"]


def parse_value(codec: Construct, stream: io.BytesIO, context: object, path: str) -> Any:
    """Reads one value at the stream's position. `path` names the value in errors; `context` reaches nested codecs."""
    return codec._parse(stream, context, path)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportUnknownVariableType]


def build_value(codec: Construct, value: object, stream: io.BytesIO, context: object, path: str) -> None:
    """Writes one value at the stream's position. `path` names the value in errors; `context` reaches nested codecs."""
    codec._build(value, stream, context, path)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]


def members(layout: Struct) -> list[Any]:
    """The named codecs of a Struct, in order; they are what `Struct` takes."""
    return list(layout.subcons)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
