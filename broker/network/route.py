"""An API of the broker with its handler and its declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...protocol.schema import Versions
    from ..context import Handler


class Route(NamedTuple):
    """An API with its handler; `flexible` holds the versions with tagged fields (KIP-482)."""

    api_key: int
    name: str
    handler: Handler
    request_class: type
    versions: Versions
    flexible: Versions
