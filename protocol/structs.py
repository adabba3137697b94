"""Codecs, which parse and build one value, and structs of named codecs: the readable form of a layout.

POINT = Struct("x" / int32, "y" / int32)
POINT.parse(bytes(8)) == {"x": 0, "y": 0}
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


class Codec:
    """Parses and builds a value of one type."""

    def __rtruediv__(self, name: str) -> tuple[str, Codec]:
        """Names this codec, as a field of a Struct."""
        return name, self

    def parse(self, data: bytes) -> Any:
        """Returns the value at the start of `data`. Raises MalformedMessage."""
        return self.parse_stream(io.BytesIO(data))

    def parse_stream(self, stream: io.BytesIO) -> Any:
        """Returns the value at the stream's position. Raises MalformedMessage."""
        return self._parse(stream, None, type(self).__name__)

    def build(self, value: object) -> bytes:
        """Returns the bytes of a value. Raises MalformedMessage."""
        stream = io.BytesIO()
        self._build(value, stream, None, type(self).__name__)
        return stream.getvalue()

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        raise AssertionError("a codec has its own")

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        raise AssertionError("a codec has its own")


class Struct(Codec):
    """Named fields, one after the other. A value is a dict, or an object with these attributes in a subclass."""

    def __init__(self, *fields: tuple[str, Codec]) -> None:
        self.fields = list(fields)

    def _parse(self, stream: Any, context: Any, path: Any) -> Any:
        return {name: parse_value(codec, stream, context, f"{path}.{name}") for name, codec in self.fields}

    def _build(self, obj: Any, stream: Any, context: Any, path: Any) -> Any:
        values: Mapping[str, Any] = obj
        for name, codec in self.fields:
            build_value(codec, values[name], stream, context, f"{path}.{name}")
        return obj


def parse_value(codec: Codec, stream: io.BytesIO, context: object, path: str) -> Any:
    """Parses one value at the stream's position. `path` names the value in errors; `context` is passed to nested
    codecs."""
    return codec._parse(stream, context, path)  # pyright: ignore[reportPrivateUsage]


def build_value(codec: Codec, value: object, stream: io.BytesIO, context: object, path: str) -> None:
    """Writes one value at the stream's position. `path` names the value in errors; `context` is passed to nested
    codecs."""
    codec._build(value, stream, context, path)  # pyright: ignore[reportPrivateUsage]
