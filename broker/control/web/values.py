"""Keys, values and headers as text, as JSON in lines, or in hex, bounded and without loss; and decoded by schemas, up
to a maximum of bytes for each page.

JSON is broken into lines token by token: numbers keep their notation, and names that occur twice stay. Values are
decoded in threads.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...record_schemas.decoder import DecodeError

if TYPE_CHECKING:
    from ...record_schemas.schemas import TopicSchema

AUTO, TEXT, JSON, HEX = "auto", "text", "json", "hex"
DECODED = "decoded"
WAYS = (AUTO, TEXT, JSON, HEX)
JSON_BYTES = 1 << 20  # of a value that is parsed as JSON
DEPTH_MAX = 200
HEX_COLUMNS = 16
LIST_BYTES = 256 * 1024  # of all keys and values that one page decodes
LINE_LETTERS = 240
TEXT_LETTERS = 256 * 1024
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


@dataclass(frozen=True, slots=True)
class Shown:
    """Bytes as text. `way` is the form, `note` why it is not the requested one, `problem` why decoding by the schema
    failed."""

    text: str
    way: str
    note: str = ""
    problem: str = ""


def as_text(data: bytes, *, is_cut: bool = False) -> str | None:
    """Returns UTF-8 as text; None for other bytes. A character that is cut off at the end is omitted."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3:
            return data[: error.start].decode()
        return None


def as_hex(data: bytes, first: int = 0) -> str:
    """Returns lines of sixteen bytes: position, hex, characters."""
    lines: list[str] = []
    for start in range(0, len(data), HEX_COLUMNS):
        part = data[start : start + HEX_COLUMNS]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        halves = f"{part[:8].hex(' ')}  {part[8:].hex(' ')}"
        lines.append(f"{first + start:08x}  {halves:<{3 * HEX_COLUMNS}}  {letters}")
    return "\n".join(lines)


def as_json(text: str) -> str | None:
    """Returns JSON in lines; None for other text."""
    if text.lstrip()[:1] not in tuple('{["-0123456789tfn'):
        return None
    try:
        json.loads(text)
        return _in_lines(text)
    except (ValueError, RecursionError):
        return None


def _in_lines(text: str) -> str:
    parts: list[str] = []
    depth = 0
    after_open = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "}]":
            depth -= 1
            if not after_open:
                parts.append("\n" + "  " * depth)
            parts.append(token)
        elif token == ",":
            parts.append(",\n" + "  " * depth)
            continue
        elif token == ":":
            parts.append(": ")
            continue
        else:
            if after_open:
                parts.append("\n" + "  " * depth)
            parts.append(token)
            if token in "{[":
                depth += 1
                if depth > DEPTH_MAX:
                    raise ValueError("nested too deeply")
        after_open = token in "{["
    return "".join(parts)


def shown(data: bytes | None, way: str = AUTO, *, is_cut: bool = False) -> Shown | None:
    """Returns bytes in one of WAYS; None for null. AUTO is JSON if it is valid, else text if it is UTF-8, else hex."""
    if data is None:
        return None
    if way == HEX:
        return Shown(as_hex(data), HEX)
    text = as_text(data, is_cut=is_cut)
    if text is None:
        note = "" if way == AUTO else "not UTF-8: shown in hex"
        return Shown(as_hex(data), HEX, note)
    if way == TEXT or (way == AUTO and text[:1] not in ("{", "[")):
        return Shown(text, TEXT)
    pretty = None if is_cut or len(data) > JSON_BYTES else as_json(text)
    if pretty is not None:
        return Shown(pretty, JSON)
    if way == AUTO:
        return Shown(text, TEXT)
    return Shown(text, TEXT, "too long for JSON" if is_cut or len(data) > JSON_BYTES else "not JSON")


# Decoded with a schema


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
