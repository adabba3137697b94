"""From a frame to its handler: the one tuple of handlers, the version gate, and the table that ApiVersions answers.

Owns which APIs a broker serves: those of its profile that have a handler here. Reads headers and requests, never a
socket. An unknown key, a version that is not served and a request that cannot be read are ProtocolViolations, for which
the connection is closed; ApiVersions alone answers a version it does not know, in the layout of v0, with error 35
(KIP-511).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from ...protocol.api_key import ApiKey
from ...protocol.compiler import TooManyItems, builder, parser
from ...protocol.errors import ErrorCode, MalformedMessage, ProtocolViolation
from ...protocol.headers import read_prefix, read_rest, response_header
from ...protocol.messages.cluster.api_versions import ApiVersionsResponse
from ...protocol.schema import Versions, empty_value, spec
from ..context import Apis, Handler, RequestContext
from ..errors import Refused, code_of
from ..handlers import HANDLERS
from ..quotas.meter import Meter

if TYPE_CHECKING:
    from asyncio import Handle

    from ..clock import Timer
    from ..context import Arrival
    from ..testing.faults.injection import FaultedCall
    from .large_calls import BuildingCall, LargeCall

    AnyCall: TypeAlias = "Call | FaultedCall | LargeCall | BuildingCall"
    from ..broker_state import BrokerState
    from ..releases.profiles import Profile


class Route(NamedTuple):
    """One API: who answers it, and what its declaration says."""

    api_key: int
    name: str
    handler: Handler
    request_class: type
    versions: Versions
    flexible: Versions


def _route(handler: Handler) -> Route:
    request_class: type = handler.request_class  # type: ignore[attr-defined]
    declared = spec(request_class)
    name = request_class.__name__.removesuffix("Request")
    return Route(declared.api_key, name, handler, request_class, declared.versions, declared.flexible)


ITEMS_AT_ONCE = 4096
"""Of a request that is read in one go; one with more is read in cooperative steps."""

Reader = tuple[Route, Callable[..., Any], bool]  # of a request in one version; whether that version is flexible
ROUTES: dict[int, Route] = {route.api_key: route for route in sorted(map(_route, HANDLERS))}


def _reader(broker: BrokerState, api_key: int, api_version: int) -> Reader:
    """The reader of a served version; remembered, since every request asks. Raises ProtocolViolation."""
    if api_version not in broker.apis.served.get(api_key, ()):
        from .unserved import unserved_text  # only a mistake needs it

        raise ProtocolViolation(unserved_text(api_key, api_version, broker.apis.served, broker.profile))
    route = ROUTES[api_key]
    found = route, parser(route.request_class, api_version), api_version in route.flexible
    broker.readers[api_key, api_version] = found
    return found


Mutes = Sequence[Callable[[Callable[[], object]], "Timer | Handle"]]
"""For how long a connection's next request is not looked at: each calls back when that is over."""


class Call(NamedTuple):
    """A request on its way: the handler's coroutine, and how its response is written."""

    coroutine: Coroutine[Any, Any, Any] | None
    response: Any  # when there is no coroutine: the answer is known already
    header: bytes
    api_version: int
    route: Route
    client_id: str = ""
    context: RequestContext | None = None

    # What faults and quotas make otherwise.
    is_faulted = False
    is_held = False
    throttle_ms = 0  # what an answer that says what went wrong tells
    mutes: Mutes = ()

    def in_steps(self, response: Any) -> BuildingCall | None:
        """The call that builds a large response in cooperative steps; None for one that `parts` builds at once."""
        context = self.context
        if context is None or not context.is_in_steps or response is None:
            return None
        from .large_calls import BuildingCall

        return BuildingCall(self, context, response)

    def parts(self, response: Any) -> list[Any]:
        """The bytes of the answer, in pieces; none for an answer that is not sent (acks=0)."""
        if response is None:
            return []
        out = [self.header]
        try:
            builder(type(response), self.api_version)(response, out.append)
        except MalformedMessage as error:
            # A value that this version cannot carry is the handler's mistake, not the client's.
            return failure(self, RuntimeError(f"{self.route.name} v{self.api_version}: {error}"))
        return out


class MeteredCall(Call):
    """A request while there are quotas: its coroutine is a `Meter`."""

    __slots__ = ()

    @property
    def throttle_ms(self) -> int:
        """What the client is told."""
        return self._meter.throttle_ms

    @property
    def mutes(self) -> Mutes:
        """What the quotas ask for, once the handler has ended."""
        return self._meter.mutes

    @property
    def _meter(self) -> Meter:
        return cast(Meter, self.coroutine)

    def parts(self, response: Any) -> list[Any]:
        """The answer's bytes; the time that takes is noted."""
        begun_ns = self._meter.timer()
        try:
            return super().parts(response)
        finally:
            self._meter.add_time(self._meter.timer() - begun_ns)


def apis_of(profile: Profile, *, telemetry: bool = False) -> Apis:
    """What a broker with this profile serves: the profile's versions, as far as they are implemented, and with
    `telemetry` those by which clients push their metrics."""
    advertised: dict[int, Versions] = {}
    served: dict[int, Versions] = {}
    extra = profile.telemetry_apis if telemetry else {}
    for key, route in ROUTES.items():
        answered = _both(profile.served.get(key) or extra.get(key), route.versions)
        if answered is not None:
            served[key] = answered
            advertised[key] = _both(profile.apis.get(key) or extra[key], route.versions) or answered
    return Apis(advertised, served, {})


def _both(one: Versions | None, other: Versions) -> Versions | None:
    """The versions that are in both; None when there are none."""
    if one is None:
        return None
    shared = Versions(max(one.first, other.first), min(one.last, other.last))
    return shared if shared.first <= shared.last else None


def call(frame: memoryview, broker: BrokerState, arrival: Arrival) -> AnyCall:
    """Reads one request and makes the handler's coroutine, not yet started. Raises ProtocolViolation."""
    prefix = read_prefix(frame)
    api_key, api_version, correlation_id, _ = prefix
    try:
        route, read, flexible = broker.readers.get((api_key, api_version)) or _reader(broker, api_key, api_version)
    except ProtocolViolation:
        if api_key != ApiKey.API_VERSIONS or api_key not in broker.apis.served:
            with contextlib.suppress(ProtocolViolation):  # of a client id that cannot be read
                client_id, _ = read_rest(frame, prefix, False)
                arrival.client_id = client_id
                broker.clients.note_refused(arrival.origin, client_id, api_key, api_version)
            raise
        header = response_header(correlation_id, api_key, False)
        return Call(None, _unknown_api_versions(broker), header, 0, ROUTES[api_key])
    client_id, position = read_rest(frame, prefix, flexible)
    arrival.client_id = client_id
    context = RequestContext(broker, api_version, correlation_id, client_id, arrival)
    header = response_header(correlation_id, api_key, flexible)
    if broker.faults is not None and broker.faults.requests:
        frame = memoryview(bytearray(frame))  # rules may look at it when its buffer has been reused
    try:
        request = read(frame, position, ITEMS_AT_ONCE)
    except TooManyItems:
        from .large_calls import LargeCall

        return LargeCall(memoryview(bytearray(frame)), position, route, context, header)
    except MalformedMessage as error:
        raise ProtocolViolation(str(error)) from None
    return handling_of(request, len(frame), route, context, header)


def handling_of(request: Any, size: int, route: Route, context: RequestContext, header: bytes) -> Call | FaultedCall:
    """The call that a request becomes, which took `size` bytes."""
    broker, client_id, api_version = context.broker, context.client_id, context.api_version
    origin = context.arrival.origin
    if (client_id, route.api_key, api_version) not in origin.seen:
        broker.clients.note(origin, client_id, route.api_key, api_version)
    throttle = broker.quotas.throttle
    meter = context.meter = None if throttle is None else Meter(throttle, context, request, size)
    if broker.faults is not None and broker.faults.requests:
        from ..testing.faults.injection import faulted

        if found := faulted(route, request, context, header):
            return found
    if meter is not None:
        driven = cast("Coroutine[Any, Any, Any]", meter.drive(route.handler(request, context)))
        return MeteredCall(driven, None, header, api_version, route, client_id, context)
    return Call(route.handler(request, context), None, header, api_version, route, client_id, context)


def _unknown_api_versions(broker: BrokerState) -> ApiVersionsResponse:
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    if broker.profile.behaviour.unknown_version_lists_range:
        own = broker.apis.advertised[ApiKey.API_VERSIONS]
        entry = ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=own.first, max_version=own.last)
        response.api_keys.append(entry)
    return response


def failure(made: AnyCall, error: Exception) -> list[Any]:
    """The answer to a request whose handler raised: its error code at the top, what there is to say, and nothing else.

    Raises ProtocolViolation when that was raised, and for an API whose answers have no place for an error of the whole.
    """
    if isinstance(error, ProtocolViolation):
        raise error
    code = code_of(error)
    response_class = getattr(sys.modules[made.route.request_class.__module__], f"{made.route.name}Response")
    response = empty_value(response_class)
    if "error_code" not in response._fields or made.api_version not in response._fields["error_code"].versions:
        raise ProtocolViolation(f"{made.route.name} failed, and its answer has no place to say so")
    response.error_code = code
    place = response._fields.get("error_message")
    if place is not None and made.api_version in place.versions and isinstance(error, Refused) and error.message:
        response.error_message = error.message
    if made.throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = made.throttle_ms
    out = [made.header]
    builder(response_class, made.api_version)(response, out.append)
    return out
