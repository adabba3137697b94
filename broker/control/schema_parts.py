"""What schemas are put together from: numbers, texts, lists and closed objects, by the keywords that `shapes` knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .shapes import Schema

FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}


def whole(least: int, most: int, text: str = "", **more: Any) -> Schema:
    """A whole number between two bounds, both allowed."""
    return {"type": "integer", "minimum": least, "maximum": most} | ({"description": text} if text else {}) | more


def text_of(most: int, text: str = "", least: int = 0) -> Schema:
    """A text of so many letters."""
    return {"type": "string", "minLength": least, "maxLength": most} | ({"description": text} if text else {})


def list_of(of: str | Schema, most: int | None = None) -> Schema:
    """A list of what is named, or described."""
    return {"type": "array", "items": ref(of) if isinstance(of, str) else of} | ({"maxItems": most} if most else {})


def object_of(properties: Mapping[str, Any], optional: tuple[str, ...] | None = (), text: str = "") -> Schema:
    """A closed object; `optional` None: all of it."""
    required = [name for name in properties if optional is not None and name not in optional]
    found: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": required} if required else {}) | ({"description": text} if text else {})


def ref(name: str) -> Schema:
    """A reference to one of `schemas.SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}
