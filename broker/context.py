"""What a handler is given beside its request, and the label that makes a function a handler.

Knows neither sockets nor the router: handlers depend on this and on the broker's state only.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..protocol.schema import Versions

if TYPE_CHECKING:
    from .client_ledger import Origin
    from .state import BrokerState

Handler = Callable[[Any, "RequestContext"], Coroutine[Any, Any, Any]]
H = TypeVar("H", bound=Handler)


class Handled(NamedTuple):
    """What `@handles` says: the request class, and the versions of which a connection has one under way at a time."""

    request_class: type
    one_at_a_time: Versions | None


def handles(request_class: type, *, one_at_a_time: str | None = None) -> Callable[[H], H]:
    """Labels the handler of an API, in every version that is declared; which of them are served is the profile's.

    `one_at_a_time` names versions whose answers cost more than their request: the connection's next request is begun
    when such a one is answered, as Kafka does with all. A handler runs at once up to its first `await`; what it awaits
    must be a future of the running loop.
    """

    def label(function: H) -> H:
        alone = None if one_at_a_time is None else Versions.of(one_at_a_time)
        function.handled = Handled(request_class, alone)  # type: ignore[attr-defined]
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
    """Which way a connection came in: the listener's name, our own address that it reached, the client's host, and
    which of our nodes it talks to.

    `origin` is where its calls are noted; another one as soon as the client tells its software.
    """

    listener: str
    local_host: str
    client_host: str
    origin: Origin
    node_id: int


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

    @property
    def node_id(self) -> int:
        """The node that was asked."""
        return self.arrival.node_id

    def now_ms(self) -> int:
        """The broker's time."""
        return self.broker.clock.now_ms()
