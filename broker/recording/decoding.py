"""Exchanges as values, and values as exchanges: messages, plain JSON-able dicts, and bytes again.

Owns both directions. A frame that cannot be read is told in its place, never raised: see `request_plain`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exchange import Exchange


def request_value(exchange: Exchange) -> Any | None:
    """The request as its message; None where its bytes were not kept or are no such message."""
    raise RuntimeError("not yet")


def response_value(exchange: Exchange) -> Any | None:
    """The answer as its message; None where there is none, its bytes were not kept, or they are no such message."""
    raise RuntimeError("not yet")


def request_plain(exchange: Exchange, *, contents: bool = True) -> dict[str, Any] | None:
    """The request as a JSON-able dict, None where its bytes were not kept. One that cannot be read is
    `{"undecodable": why, "size": bytes, "base64": the whole frame}`; `encoded` takes that back, too."""
    raise RuntimeError("not yet")


def response_plain(exchange: Exchange, *, contents: bool = True) -> dict[str, Any] | None:
    """The same of the answer."""
    raise RuntimeError("not yet")


def plain(message: Any, *, contents: bool = True) -> dict[str, Any]:
    """A message as a JSON-able dict, its fields by their declared names."""
    raise RuntimeError("not yet")


def message_of(api_key: int, version: int, values: dict[str, Any], request: bool) -> Any:
    """The message that `plain` made this of. Raises ValueError, one line that names the place."""
    raise RuntimeError("not yet")


def encoded(
    api_key: int,
    version: int,
    values: dict[str, Any],
    request: bool,
    *,
    correlation_id: int,
    client_id: str | None = None,
) -> bytes:
    """The frame, header first and without its size, that `plain` made this of. Raises ValueError."""
    raise RuntimeError("not yet")
