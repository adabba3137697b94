"""How values that are bytes stand in JSON, both ways.

A string is the text whose UTF-8 the bytes are. Bytes that are no UTF-8 are `{"base64": "..."}`; either may be given.
`null` is no value at all: a tombstone, a record without a key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from .shapes import Misfit


def to_json(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes for an answer: readable where they can be."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json(value: Any, where: str = "a value") -> bytes | None:
    """The bytes that a checked JSON value stands for. Raises Misfit where its text is not what it claims to be."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"{where} has half of a surrogate pair, which no UTF-8 has") from error
    try:
        return base64.b64decode(value["base64"].encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise Misfit(f"{where} is no base64") from error


def one_line(message: object) -> str:
    """A message as one line, whatever names and values are in it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(message))
