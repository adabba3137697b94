"""What a handler is given beside its request, and the label that makes a function a handler.

Knows neither sockets nor the router: handlers depend on this and on the broker's state only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..protocol.schema import Versions, spec

if TYPE_CHECKING:
    from .client_ledger import Origin
    from .state import BrokerState

Handler = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]
H = TypeVar("H", bound=Handler)


class Served(NamedTuple):
    """What `@handles` says: the request class, the versions served, and those that ApiVersions advertises."""

    request_class: type
    versions: Versions
    advertised: Versions


def handles(request_class: type, *, served: str | None = None, advertised: str | None = None) -> Callable[[H], H]:
    """Labels the handler of an API.

    `served` narrows the versions of the declaration, `advertised` differs from it only where a client would
    misunderstand the truth. A request of a version that is not served closes its connection, as in Kafka.
    A handler runs at once up to its first `await`; what it awaits must be a future of the running loop.
    """
    declared = spec(request_class).versions

    def narrowed(text: str | None, outer: Versions) -> Versions:
        if text is None:
            return outer
        asked = Versions.of(text)
        return Versions(max(asked.first, declared.first), min(asked.last, declared.last))

    def label(function: H) -> H:
        versions = narrowed(served, declared)
        function.served = Served(request_class, versions, narrowed(advertised, versions))  # type: ignore[attr-defined]
        return function

    return label


class Apis(NamedTuple):
    """What one broker serves, by API key: what ApiVersions lists, what is answered.

    `readers` is the router's: (key, version) -> what it needs to read and answer such a request.
    """

    advertised: dict[int, Versions]
    served: dict[int, Versions]
    readers: dict[tuple[int, int], Any]


@dataclass(slots=True)
class Arrival:
    """Which way a connection came in: the listener's name, our own address that it reached, and the client's host.

    `origin` is where its calls are noted; another one as soon as the client tells its software.
    """

    listener: str
    local_host: str
    client_host: str
    origin: Origin


class RequestContext:
    """One request's surroundings."""

    __slots__ = ("api_version", "arrival", "broker", "client_id", "correlation_id")

    def __init__(
        self, broker: BrokerState, api_version: int, correlation_id: int, client_id: str, arrival: Arrival
    ) -> None:
        self.broker = broker
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.arrival = arrival

    @property
    def client_host(self) -> str:
        """The client's address, without its port."""
        return self.arrival.client_host

    def now_ms(self) -> int:
        """The broker's time."""
        return self.broker.clock.now_ms()
