"""How bytes stand in JSON, both ways: a string is the text whose UTF-8 they are, and what is no UTF-8 is
`{"base64": "..."}`; either may be given. `null` is no value at all: a tombstone, a record without a key."""

from __future__ import annotations

import base64
import binascii
from typing import Any


def to_json(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as JSON: readable where they can be."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json(value: Any, where: str = "a value") -> bytes | None:
    """The bytes that a JSON value of the right shape stands for. Raises ValueError where its text is not what it claims
    to be."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where} has half of a surrogate pair, which no UTF-8 has") from error
    try:
        return base64.b64decode(value["base64"].encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{where} is no base64") from error
