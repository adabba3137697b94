"""Keys and values decoded with the broker's schemas: one line in a list, several lines on a page of their own.

Runs in threads. Bounded by the bytes that one page decodes, and by the bound of a decoder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...record_schemas.decoder import DecodeError
from .values import DECODED, Shown

if TYPE_CHECKING:
    from ...record_schemas.schemas import TopicSchema

LIST_BYTES = 256 * 1024  # of all keys and values that one page decodes
LINE_LETTERS = 240
TEXT_LETTERS = 256 * 1024


class Budget:
    """The bytes that may still be decoded for one page."""

    def __init__(self, size: int = LIST_BYTES) -> None:
        self.left = size


def in_line(
    schema: TopicSchema | None, data: bytes | None, is_cut: bool, raw: Shown | None, budget: Budget
) -> Shown | None:
    """Returns a key or a value in a list: decoded, or undecoded with the reason."""
    if schema is None or data is None or raw is None:
        return raw
    if is_cut:
        return replace(raw, problem="too long to decode in a list")
    if len(data) > budget.left:
        return replace(raw, problem="the page has decoded its maximum of bytes")
    budget.left -= len(data)
    try:
        value = schema.decoder.decode(data).value
    except DecodeError as error:
        return replace(raw, problem=f"not {schema.title}: {error}")
    return Shown(json.dumps(value, ensure_ascii=False)[:LINE_LETTERS], DECODED)


@dataclass(frozen=True, slots=True)
class Whole:
    """A key or a value by its schema, in lines; or the `problem` with it."""

    title: str
    file: str
    text: str = ""
    note: str = ""
    problem: str = ""
    is_cut: bool = False


def whole(schema: TopicSchema | None, data: bytes | None) -> Whole | None:
    """Returns a key or a value on a page of its own; None without a schema."""
    if schema is None or data is None:
        return None
    try:
        value, note = schema.decoder.decode(data)
    except DecodeError as error:
        return Whole(schema.title, schema.file, problem=str(error))
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return Whole(schema.title, schema.file, text[:TEXT_LETTERS], note, is_cut=len(text) > TEXT_LETTERS)
