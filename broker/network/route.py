"""The APIs of the broker, each with its handler and its declaration."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...protocol.named import NamedTuple
from ...protocol.schema import spec
from ..handlers import handler_of

if TYPE_CHECKING:
    from ...protocol.schema import Versions
    from ..context import Facts, Handler


class Route(NamedTuple):
    """An API with its handler; `flexible` holds the versions with tagged fields (KIP-482), `facts` is that of
    `handles`.
    """

    api_key: int
    name: str
    handler: Handler
    request_class: type
    versions: Versions
    flexible: Versions
    facts: Facts | None = None


@functools.cache
def route_of(api_key: int) -> Route:
    """Returns the route of an API, whose handler is imported at the first call. Raises KeyError for an API that is not
    served."""
    handler: Any = handler_of(api_key)
    declared = spec(handler.request_class)
    name = handler.request_class.__name__.removesuffix("Request")
    versions, flexible = declared.versions, declared.flexible
    return Route(declared.api_key, name, handler, handler.request_class, versions, flexible, handler.facts)
