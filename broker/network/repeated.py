"""The short way of requests whose response only repeats: the bytes of a connection's earlier response are sent again.

A handler declares its facts (`handles` in context.py): all that a response depends on besides the request and what is
constant for a connection. A request that comes twice with the same bytes, but for its correlation id, is remembered
with its facts and its response. While the facts are equal, so is the response, and neither parser, handler nor builder
runs. `Connections.allows_short_way` has the conditions; tests/broker/network/test_repeated.py compares both ways.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ...protocol.named import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..broker_state import BrokerState
    from ..connection_info import ConnectionInfo
    from ..metrics.counters import RequestMetrics
    from .request_runner import HandlerRunner
    from .route import Route

KNOWN_MAX = 8  # requests that are remembered for a connection
REQUEST_BYTES_MAX = 512
RESPONSE_BYTES_MAX = 8192
_CORRELATION_AT, _BODY_FROM = 4, 8  # in a frame without its size
_SIZE = struct.Struct(">i").pack


class Repeated(NamedTuple):
    """A remembered request, with the bytes of its response around the correlation id."""

    request: Any
    facts: Any
    route: Route
    version: int
    client_id: str
    noted: tuple[str, int, int]
    """The entry of such requests in the client ledger."""
    response: Any
    before: bytes
    after: bytes


class RepeatedRequests:
    """The remembered requests of one connection."""

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known: dict[bytes, Repeated] = {}
        self._last = b""  # the newest request that was not remembered

    def learn(self, frame: memoryview, runner: HandlerRunner, parts: Sequence[Any]) -> bool:
        """Remembers a request that was handled, if it comes the second time. Returns whether it is remembered."""
        context, route = runner.context, runner.route
        if len(frame) > REQUEST_BYTES_MAX or runner.response is None or context.is_in_steps:
            return False
        key = _key(frame)
        if key != self._last:
            self._last = key
            return False
        size = sum(map(len, parts))
        facts = _facts(route, runner.request, context.broker, context.connection_info)
        if facts is None or size > RESPONSE_BYTES_MAX:
            return False
        if len(self._known) >= KNOWN_MAX and key not in self._known:
            self._known.clear()
        noted = context.client_id, route.api_key, context.api_version
        self._known[key] = Repeated(
            runner.request,
            facts,
            route,
            context.api_version,
            context.client_id,
            noted,
            runner.response,
            _SIZE(size),
            b"".join(parts)[4:],
        )
        return True

    def take(
        self, frame: memoryview, broker: BrokerState, info: ConnectionInfo, metrics: RequestMetrics | None
    ) -> bytes | None:
        """Returns the response to a remembered request with its size, or None if another response may be due."""
        if len(frame) > REQUEST_BYTES_MAX:
            return None
        begun_ns = 0 if metrics is None else metrics.timer()
        known = self._known.get(_key(frame))
        if known is None or known.noted not in info.library.seen:
            return None
        if _facts(known.route, known.request, broker, info) != known.facts:
            return None
        info.client_id = known.client_id
        response = known.before + frame[_CORRELATION_AT:_BODY_FROM] + known.after
        if metrics is not None:
            duration_ns = metrics.timer() - begun_ns
            metrics.note(known.route, known.version, len(frame), len(response) - 4, duration_ns, known.response)
        return response


def _facts(route: Route, request: Any, broker: BrokerState, info: ConnectionInfo) -> Any:
    """The facts of a response, with those of an authorizer's decisions; None without any."""
    facts = None if route.facts is None else route.facts(request, broker, info)
    if facts is None or broker.authorizer is None:
        return facts
    return facts, broker.authorizer, broker.acls.revision, info.principal


def _key(frame: memoryview) -> bytes:
    """A request without its correlation id."""
    return bytes(frame[:_CORRELATION_AT]) + frame[_BODY_FROM:]
