"""A request to the control plane that is refused."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """A request that is not executed: an HTTP status of the 400s and one line with the reason."""

    def __init__(self, status: int, message: object) -> None:
        super().__init__(message)
        self.status = status


def shown(value: Any) -> str:
    """Returns a JSON value for a message, at most 40 characters of it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = f"{value!r}" if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:40] + "..."
