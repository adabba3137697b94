"""How values stand in what the control plane takes and answers: bytes as in `json_bytes`, messages in one line."""

from __future__ import annotations

from typing import Any

from .. import json_bytes
from ..json_bytes import to_json as to_json
from .shapes import Misfit


def from_json(value: Any, where: str = "a value") -> bytes | None:
    """The bytes that a checked JSON value stands for. Raises Misfit where its text is not what it claims to be."""
    try:
        return json_bytes.from_json(value, where)
    except ValueError as error:
        raise Misfit(str(error)) from error
