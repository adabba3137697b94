"""Bytes in JSON: a string if they are valid UTF-8, else `{"base64": "..."}`. Both forms are accepted as input. `null`
is a missing value: a tombstone, or a record without a key.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any


def to_json(value: bytes | None) -> str | dict[str, str] | None:
    """Returns the JSON form of bytes: a string where possible."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json(value: Any, where: str = "a value") -> bytes | None:
    """Returns the bytes of a JSON value of a valid shape. Raises ValueError for a lone surrogate or invalid base64."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where} has half of a surrogate pair, which UTF-8 cannot encode") from error
    try:
        return base64.b64decode(value["base64"].encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError(f"{where} is not valid base64") from error
