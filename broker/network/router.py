"""From a frame to its handler: the routes of all APIs, the check of versions, and the versions for ApiVersions.

Owns which APIs a broker serves: those of its profile that have a handler here. Reads headers and requests, never a
socket. An unknown key, a version that is not served and a malformed request raise ProtocolViolation, which closes the
connection. Only ApiVersions responds to an unknown version, in the layout of v0 with error 35 (KIP-511).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ...protocol.compiler import TooManyItems, parser, step_parser
from ...protocol.errors import ErrorCode, MalformedMessage, ProtocolViolation
from ...protocol.headers import read_prefix, read_rest, response_header
from ...protocol.messages.cluster.api_versions import ApiVersionsResponse
from ...protocol.primitives import request_items_max
from ...protocol.schema import Versions
from ..context import RequestContext
from ..handlers import HANDLERS
from ..quotas.meter import Meter
from ..releases.profiles import Apis, declared_versions
from .metered_runner import MeteredRunner
from .request_runner import HandlerRunner, RequestRunner
from .route import Route, route_of

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..connection_info import ConnectionInfo
    from ..releases.profiles import Profile


ITEMS_AT_ONCE = 4096
"""Items of a request that is read in one step; larger requests are read in cooperative steps."""

Reader = tuple[Route, Callable[..., Any], bool]  # of a request in one version, with whether that version is flexible


def _reader(broker: BrokerState, api_key: int, api_version: int) -> Reader:
    """Returns the reader of a served version, and caches it for the next requests. Raises ProtocolViolation."""
    if api_version not in broker.apis.served.get(api_key, ()):
        from .unserved import unserved_text  # imported late: only invalid requests need it

        raise ProtocolViolation(unserved_text(api_key, api_version, broker.apis.served, broker.profile))
    route = route_of(api_key)
    found = route, parser(route.request_class, api_version), api_version in route.flexible
    broker.readers[api_key, api_version] = found
    return found


def apis_of(profile: Profile, *, telemetry: bool = False, unstable: bool = False) -> Apis:
    """Returns the APIs that a broker serves: the profile's versions that are implemented, with `telemetry` the APIs by
    which clients push their metrics (KIP-714), and with `unstable` the unstable versions of the release.
    """
    advertised, served = _ranges(profile, telemetry, unstable)
    return Apis(dict(advertised), dict(served), {})


@functools.lru_cache(maxsize=64)
def _ranges(profile: Profile, telemetry: bool, unstable: bool) -> tuple[dict[int, Versions], dict[int, Versions]]:
    """Returns the versions that are advertised and those that are served."""
    advertised: dict[int, Versions] = {}
    served: dict[int, Versions] = {}
    extra = profile.telemetry_apis if telemetry else {}
    declared = declared_versions()
    for key in map(int, HANDLERS):  # plain ints compare faster
        versions = _both(profile.served.get(key) or extra.get(key), declared[key])
        if versions is not None:
            served[key] = versions
            advertised[key] = _both(profile.apis.get(key) or extra[key], declared[key]) or versions
        if unstable and key in profile.unstable:
            last = profile.unstable[key]
            served[key] = served.get(key, Versions(last, last))._replace(last=last)
            advertised[key] = advertised.get(key, Versions(last, last))._replace(last=last)
    return advertised, served


def _both(one: Versions | None, other: Versions) -> Versions | None:
    """The versions in both ranges, or None."""
    if one is None:
        return None
    shared = Versions(max(one.first, other.first), min(one.last, other.last))
    return shared if shared.first <= shared.last else None


def call(frame: memoryview, broker: BrokerState, connection_info: ConnectionInfo) -> RequestRunner:
    """Reads one request. Returns the runner of its handler, not yet started. Raises ProtocolViolation."""
    prefix = read_prefix(frame)
    api_key, api_version, correlation_id, _ = prefix
    try:
        route, read, flexible = broker.readers.get((api_key, api_version)) or _reader(broker, api_key, api_version)
    except ProtocolViolation:
        if api_key != ApiKey.API_VERSIONS or api_key not in broker.apis.served:
            with contextlib.suppress(ProtocolViolation):  # the client id may be malformed too
                client_id, _ = read_rest(frame, prefix, False)
                connection_info.client_id = client_id
                broker.clients.note_refused(connection_info.library, client_id, api_key, api_version)
            raise
        context = RequestContext(broker, 0, correlation_id, "", connection_info)
        header = response_header(correlation_id, api_key, False)
        return HandlerRunner(_unknown_api_versions(broker), route_of(api_key), header, context)
    client_id, position = read_rest(frame, prefix, flexible)
    connection_info.client_id = client_id
    context = RequestContext(broker, api_version, correlation_id, client_id, connection_info)
    header = response_header(correlation_id, api_key, flexible)
    if broker.faults is not None and broker.faults.requests:
        frame = memoryview(bytearray(frame))  # rules may read it after the buffer was reused
    try:
        request = read(frame, position, ITEMS_AT_ONCE)
    except TooManyItems:
        from .large_requests import LargeRequestRunner

        reading = _read_in_steps(memoryview(bytearray(frame)), position, route, header, context)
        return LargeRequestRunner(reading, route, header, context)
    except MalformedMessage as error:
        raise ProtocolViolation(str(error)) from None
    return _runner(request, len(frame), route, header, context)


def _runner(request: Any, size: int, route: Route, header: bytes, context: RequestContext) -> RequestRunner:
    """Returns the runner of a request of `size` bytes."""
    broker, client_id = context.broker, context.client_id
    library = context.connection_info.library
    if (client_id, route.api_key, context.api_version) not in library.seen:
        broker.clients.note(library, client_id, route.api_key, context.api_version)
    throttle = broker.quotas.throttle
    meter = None
    if throttle is not None:
        meter = Meter(throttle, context.node_id, context.principal, client_id, request, size)
    context.meter = meter
    runner: RequestRunner | None = None
    if broker.faults is not None and broker.faults.requests:
        from .fault_injection import faulted

        runner = faulted(route, request, header, context)
    if runner is None:
        runner = HandlerRunner(route.handler(request, context), route, header, context, request)
    return runner if meter is None else MeteredRunner(runner, meter)


async def _read_in_steps(
    frame: memoryview, position: int, route: Route, header: bytes, context: RequestContext
) -> RequestRunner:
    """Reads a large request in cooperative steps and returns its runner. Raises ProtocolViolation for a request with
    more than `request_items_max` items. The caller must not use the frame meanwhile.
    """
    context.begin_steps()
    size = len(frame)
    steps = step_parser(route.request_class, context.api_version)(frame, position, request_items_max(size))
    try:
        request = await context.broker.scheduler.run(steps)
    except MalformedMessage as error:
        raise ProtocolViolation(str(error)) from None
    return _runner(request, size, route, header, context)


async def _unknown_api_versions(broker: BrokerState) -> ApiVersionsResponse:
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    if broker.profile.behaviour.unknown_version_lists_range:
        own = broker.apis.advertised[ApiKey.API_VERSIONS]
        entry = ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=own.first, max_version=own.last)
        response.api_keys.append(entry)
    return response
