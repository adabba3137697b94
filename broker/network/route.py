"""The APIs of the broker, each with its handler and its declaration."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ...protocol.schema import spec
from ..handlers import HANDLERS, handler_of

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


class Routes(MutableMapping[int, Route]):
    """The routes by API key. A handler is imported when its route is first looked up."""

    def __init__(self) -> None:
        self._loaded: dict[int, Route] = {}

    def __getitem__(self, api_key: int) -> Route:
        route = self._loaded.get(api_key)
        if route is None:
            route = self._loaded[api_key] = _route(handler_of(api_key))
        return route

    def __setitem__(self, api_key: int, route: Route) -> None:
        self._loaded[api_key] = route

    def __delitem__(self, api_key: int) -> None:
        del self._loaded[api_key]

    def __contains__(self, api_key: object) -> bool:
        return api_key in HANDLERS

    def __iter__(self) -> Iterator[int]:
        return map(int, HANDLERS)  # plain ints compare faster

    def __len__(self) -> int:
        return len(HANDLERS)


def _route(handler: Handler) -> Route:
    request_class: type = handler.request_class  # type: ignore[attr-defined]
    declared = spec(request_class)
    name = request_class.__name__.removesuffix("Request")
    facts: Facts | None = handler.facts  # type: ignore[attr-defined]
    return Route(declared.api_key, name, handler, request_class, declared.versions, declared.flexible, facts)
