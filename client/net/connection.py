"""A connection to a broker: requests are pipelined, responses arrive in order, and every request has a timeout.

Owns the socket, correlation ids, the matching of responses to requests, timeouts, and the negotiation of versions. It
has no retries: once a connection ends, all requests in flight fail with ConnectionLost (the broker may have processed
them or not). A malformed response, or one without a request, also ends the connection.

Old brokers: Kafka 0.10 to 2.3 respond to ApiVersions v3 with error 35 in version 0 (KIP-511); 0.8.2 and 0.9 do not have
the API and close the connection. Since a broker may close for other reasons, ApiVersions is repeated on a new
connection, after a request that every old broker serves: only a broker that responds to that request and then closes
is treated as old. `OLD_VERSIONS` are the versions that both old releases serve.

Quotas: a broker over quota responds with the time for which it reads no more requests (KIP-219); for that time nothing
is written. With older versions of an API the broker has delayed the response already.
"""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...protocol.compiler import builder, parser
from ...protocol.connection import READ_BYTES, BufferPool, FrameReceiver, write_pieces
from ...protocol.errors import ErrorCode, MalformedMessage, ProtocolViolation
from ...protocol.headers import read_response_header, request_header
from ...protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.records.list_offsets import ListOffsetsRequest
from ...protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ...protocol.named import NamedTuple
from ...protocol.schema import Versions, fields_of, response_class, spec
from .errors import ClientError, ConnectionLost, InvalidRequest, KafkaError, RequestTimedOut, UnsupportedVersion
from .sasl import LoginMethod, Tokens, log_in
from .tls import SHUTDOWN_S, handshake_error

TLS_HEADS = (b"\x15\x03", b"\x16\x03")  # the first bytes of an alert and of a handshake
RESPONSE_BYTES_MAX = 100 << 20  # Kafka's limit of requests; the limit of a fetch is in its own fields, and far lower
VIEW_BYTES = 4096  # records of smaller responses are copied, which is faster than a memoryview
SOFTWARE = ("ottla", "0.1.0")
API_VERSIONS_VERSION = 3  # v4 has no field that is used here, and brokers before 3.9 respond with error 35
NODE_CHECKED_SINCE = 5  # version of ApiVersions in which a broker refuses a connection for another node (KIP-1242)
OLD_VERSIONS: Mapping[int, Versions] = {
    **{key: Versions(0, 0) for key in (0, 1, 2, 3, 10, 11, 12, 13, 14, 15, 16)},
    8: Versions(0, 1),
    9: Versions(0, 1),
}
# The first version of each API in which the client throttles itself (KIP-219); newer APIs have it in all versions.
THROTTLED_SINCE: Mapping[int, int] = {
    **{0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 18: 2, 19: 3, 20: 2},
    **{21: 1, 22: 1, 23: 2, 24: 1, 25: 1, 26: 1, 28: 1, 29: 1, 30: 1, 31: 1, 32: 2, 33: 1, 34: 1, 35: 1, 37: 1},
    **{38: 1, 39: 1, 40: 1, 41: 1, 42: 1},
}
# `.pool`: a read is parsed before the next one begins, so all connections of a thread share it.
_local = threading.local()


class _Api(NamedTuple):
    """The codecs of a request class in one version."""

    api_key: int
    flexible: bool
    build: Callable[[Any, Callable[[Any], None]], None]
    parse: Callable[..., Any]
    throttles: bool  # whether the response may require the client to throttle itself


@functools.cache
def _api(cls: type, version: int) -> _Api:
    declared = spec(cls)
    flexible = version in declared.flexible
    response = response_class(cls)
    throttles = version >= THROTTLED_SINCE.get(declared.api_key, 0) and "throttle_time_ms" in fields_of(response)
    return _Api(declared.api_key, flexible, builder(cls, version), parser(response, version), throttles)


@dataclass(slots=True, eq=False)
class _Sent:
    """A request in flight."""

    api: _Api
    correlation_id: int
    future: asyncio.Future[Any]
    deadline: float
    name: str


class Connection(asyncio.BufferedProtocol):
    """An open connection; made by `connect`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_s: float,
        frame_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self.versions: Mapping[int, Versions] = {}
        self.features: dict[str, int] = {}
        self.finalized: dict[str, int] = {}  # feature -> level that the cluster has finalized
        self.is_closed = False
        self.is_encrypted = False
        self.has_negotiated = False  # whether `versions` comes from the broker
        self._loop = asyncio.get_running_loop()
        self._client_id = client_id.encode()
        self._timeout_s = request_timeout_s
        if not hasattr(_local, "pool"):
            _local.pool = BufferPool()
        self._wire = FrameReceiver(_local.pool, frame_bytes_max)
        self._transport: Any = None
        self._sent: deque[_Sent] = deque()
        self._later: deque[_Sent] = deque()  # requests that are written after the login that is under way
        self._login: LoginMethod | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._logging_in: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._pending: list[Any] = []  # buffers to write in the next iteration of the event loop, or after throttling
        self._held_until = 0.0  # end of the throttling: the broker reads nothing before
        self._next_id = 0
        self._chosen: dict[type, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._reason: ClientError | None = None
        self._writable: asyncio.Event | None = None
        self._paused = False
        self._ended: asyncio.Future[None] = self._loop.create_future()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._sent)} in flight"
        return f"<Connection {self.host}:{self.port}, {state}>"

    # Versions

    def version_of(self, cls: type, newest: int | None = None) -> int:
        """Returns the highest version of a request class that both sides have, at most `newest`.

        Raises UnsupportedVersion if there is none.
        """
        if newest is None:
            known = self._chosen.get(cls)
            if known is not None:
                return known
        ours = spec(cls).versions
        theirs = self.versions.get(spec(cls).api_key)
        name = cls.__name__.removesuffix("Request")
        if theirs is None:
            raise UnsupportedVersion(f"the broker at {self.host}:{self.port} does not serve {name}")
        best = min(ours.last, theirs.last, ours.last if newest is None else newest)
        if best < max(ours.first, theirs.first):
            bound = "" if newest is None else f" up to v{newest}"
            raise UnsupportedVersion(
                f"{name}: the broker at {self.host}:{self.port} serves v{theirs.first}-v{theirs.last},"
                f" this client v{ours.first}-v{ours.last}{bound}"
            )
        if newest is None:
            self._chosen[cls] = best
        return best

    # Requests

    def send(
        self, message: object, version: int | None = None, *, timeout_s: float | None = None
    ) -> asyncio.Future[Any]:
        """Sends a request in the next iteration of the event loop, or after throttling; returns the response's future.

        The future fails with ConnectionLost, or with RequestTimedOut after `timeout_s` (default: the connection's).
        A timeout closes the connection: later responses could not be matched to requests. Raises InvalidRequest and
        UnsupportedVersion.
        """
        cls = type(message)
        future = self._loop.create_future()
        api = self._queue(message, cls, self.version_of(cls) if version is None else version)
        if self.is_closed:
            future.set_exception(self._lost())
            return future
        since = max(self._loop.time(), self._held_until)
        deadline = since + (self._timeout_s if timeout_s is None else timeout_s)
        waiting = self._sent if self._logging_in is None else self._later
        waiting.append(_Sent(api, self._next_id, future, deadline, cls.__name__))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        return future

    async def request(self, message: object, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Sends a request and returns its response; see `send`."""
        return await self.send(message, version, timeout_s=timeout_s)

    def post(self, message: object, version: int | None = None) -> None:
        """Sends a request without a response (Produce with acks=0). Raises ConnectionLost if it is closed."""
        cls = type(message)
        self._queue(message, cls, self.version_of(cls) if version is None else version)
        if self.is_closed:
            raise self._lost()

    def _queue(self, message: Any, cls: type, version: int) -> _Api:
        """Encodes a request into the pending buffers."""
        api = _api(cls, version)
        self._next_id = correlation_id = (self._next_id + 1) & 0x7FFFFFFF
        parts: list[Any] = [
            b"",
            request_header(api.api_key, version, correlation_id, self._client_id, api.flexible),
        ]
        try:
            api.build(message, parts.append)
        except MalformedMessage as error:
            raise InvalidRequest(str(error)) from error
        parts[0] = sum(map(len, parts)).to_bytes(4, "big")
        if not self.is_closed:
            if not self._pending:
                self._loop.call_soon(self._flush)
            self._pending += parts
        return api

    def _flush(self) -> None:
        pending = self._pending
        if not pending or self._transport is None or self._logging_in is not None:
            return
        if self._held_until > self._loop.time():
            self._loop.call_at(self._held_until, self._flush)
            return
        self._pending = []
        write_pieces(self._transport, pending)

    def _hold(self, throttle_time_ms: int) -> None:
        """Stops writing for the throttle time, at most the request timeout; deadlines in flight move by as much."""
        until = self._loop.time() + min(throttle_time_ms / 1000, self._timeout_s)
        late_s = until - max(self._loop.time(), self._held_until)
        if late_s > 0:
            self._held_until = until
            for sent in (*self._sent, *self._later):
                sent.deadline += late_s

    async def wait_writable(self) -> None:
        """Waits while the write buffer is full. Raises ConnectionLost if the connection ends."""
        while self._paused and not self.is_closed:
            if self._writable is None:
                self._writable = asyncio.Event()
            self._writable.clear()
            await self._writable.wait()
        if self.is_closed:
            raise self._lost()

    # Time

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)
        self._timer_at = when

    def _on_timer(self) -> None:
        """Handles the one timer of all deadlines; it is set again if the earliest deadline has moved."""
        self._timer = None
        if not self._sent and not self._later:
            return
        first = min((*self._sent, *self._later), key=lambda sent: sent.deadline)
        if first.deadline > self._loop.time() + 0.001:  # event loops round times to a millisecond
            self._set_timer(first.deadline)
            return
        if not first.future.done():
            text = f"no response to {first.name} from {self.host}:{self.port} within the request timeout"
            first.future.set_exception(RequestTimedOut(text))
        self._end(f"closed after a timeout of {first.name}")

    # Ending

    def close(self) -> None:
        """Closes after writing the sent requests; those in flight fail with ConnectionLost. May be called again."""
        if not self.is_closed:
            self._held_until = 0.0
            self._flush()
            self._end("closed by this client", abort=False)

    def abort(self) -> None:
        """Closes at once, as after a refused login. With TLS, `close` waits for the broker's end of TLS."""
        self._end("closed by this client")

    async def wait_closed(self, timeout_s: float = 1.0) -> None:
        """Waits after `close` until the socket is closed; aborts it after `timeout_s` if the peer does not read."""
        done, _ = await asyncio.wait([self._ended], timeout=timeout_s)
        if not done and self._transport is not None:
            self._transport.abort()
            await asyncio.wait([self._ended], timeout=timeout_s)

    def _lost(self) -> ClientError:
        """Returns a new error each time: an instance raised in several places would collect all their tracebacks."""
        if self._reason is None:
            return ConnectionLost(f"{self.host}:{self.port}: not open")
        lost = type(self._reason)(str(self._reason))
        lost.__cause__ = self._reason.__cause__
        return lost

    def _end(self, reason: str | ClientError, cause: BaseException | None = None, *, abort: bool = True) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        lost = ConnectionLost(f"{self.host}:{self.port}: {reason}") if isinstance(reason, str) else reason
        lost.__cause__ = cause
        self._reason = lost
        self._pending = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            (self._transport.abort if abort else self._transport.close)()
        elif not self._ended.done():
            self._ended.set_result(None)
        waiting = (*self._sent, *self._later)
        self._sent, self._later = deque(), deque()
        if self._renewal is not None:
            self._renewal.cancel()
        for sent in waiting:
            if not sent.future.done():
                sent.future.set_exception(self._lost())
        if self._writable is not None:
            self._writable.set()

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self.is_closed:
            transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Processes all complete responses in the buffer."""
        wire = self._wire
        wire.received(nbytes)
        try:
            while not self.is_closed:
                frame = wire.next_frame()
                if frame is None:
                    break
                self._on_response(frame)
            wire.settle()
        except (ProtocolViolation, MalformedMessage) as error:
            if not self.has_negotiated and wire.unread(2) in TLS_HEADS:
                self._end("the listener speaks TLS: set security.protocol to SSL or SASL_SSL", error)
            else:
                self._end(f"malformed response: {error}", error)

    def _on_response(self, frame: memoryview) -> None:
        if not self._sent:
            raise ProtocolViolation("a response without a request")
        sent = self._sent[0]
        api = sent.api
        # The next read overwrites a frame in the shared buffer; a larger frame has its own buffer.
        data = bytes(frame) if len(frame) <= READ_BYTES else frame
        correlation_id, position = read_response_header(data, api.api_key, api.flexible)
        if correlation_id != sent.correlation_id:
            raise ProtocolViolation(f"correlation id {correlation_id}, expected {sent.correlation_id}")
        if len(data) > VIEW_BYTES and data is not frame:
            data = memoryview(data)
        response = api.parse(data, position)
        self._sent.popleft()
        if api.throttles and response.throttle_time_ms > 0:
            self._hold(response.throttle_time_ms)
        if not sent.future.done():  # otherwise the caller has cancelled it
            sent.future.set_result(response)

    def eof_received(self) -> bool:
        self._end(self._closed())
        return False

    def _closed(self) -> str:
        """Returns why the broker may have closed the connection: it may have another protocol than this client."""
        if not self.versions and self.is_encrypted:
            return "closed by the broker at the first request: it may refuse this client's certificate"
        # ApiVersions is served before a login, and a client begins with Metadata.
        is_begin = self._login is None and self._next_id == 2 and self._sent and self._sent[0].name == "MetadataRequest"
        if self.versions and not is_begin:
            return "closed by the broker"
        other = "a login" if self.versions else "TLS"
        return f"closed by the broker at the first request; a listener with {other} does so: check security.protocol"

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._writable is not None:
            self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if isinstance(exc, ssl.SSLError) and not self.has_negotiated:
            # With TLS 1.3 the broker verifies the client's certificate after the client's handshake.
            self._end(handshake_error(self.host, self.port, exc), exc)
        else:
            is_reset = self.is_encrypted and isinstance(exc, ConnectionError)
            self._end(f"lost: {exc}" if exc and not is_reset else self._closed(), exc)
        if not self._ended.done():
            self._ended.set_result(None)

    # Negotiation of versions

    async def agree(self, first: int = API_VERSIONS_VERSION, node: tuple[str, int] | None = None) -> None:
        """Fetches the versions of the broker with ApiVersions, first in version `first`.

        Raises ConnectionLost or KafkaError; REBOOTSTRAP_REQUIRED if the broker is not `node` (cluster id, node id).
        """
        version, attempt = first, 0
        while True:
            attempt += 1
            request = ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1])
            if node is not None and version >= NODE_CHECKED_SINCE:
                request.cluster_id, request.node_id = node
            response = await self._send_api_versions(request, version)
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0 or attempt == 3:
                break
            offered = {api.api_key: api for api in response.api_keys}.get(spec(ApiVersionsRequest).api_key)
            version = max(0, min(version - 1, offered.max_version)) if offered and attempt == 1 else 0
        if response.error_code:
            raise KafkaError(response.error_code)
        self.has_negotiated = True
        self.versions = {api.api_key: Versions(api.min_version, api.max_version) for api in response.api_keys}
        self.features = {feature.name: feature.max_version for feature in response.supported_features}
        self.finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}

    # Login

    async def log_in(self, login: LoginMethod) -> None:
        """Authenticates by SASL, and again before the session ends (KIP-368), with requests waiting meanwhile.

        Raises ConnectionLost, UnsupportedVersion for a broker before Kafka 1.0, KafkaError for a refusal; the
        connection is closed then.
        """
        try:
            self.version_of(SaslHandshakeRequest, 1)
            if self.versions[spec(SaslHandshakeRequest).api_key].last < 1:
                raise UnsupportedVersion(f"SASL: the broker at {self.host}:{self.port} is older than Kafka 1.0")
            self._login = login
            await self._log_in(login, await login.begin(self.host))
        except BaseException:
            self.abort()
            raise

    async def _log_in(self, login: LoginMethod, tokens: Tokens) -> None:
        version = self.version_of(SaslAuthenticateRequest)
        where = f"{self.host}:{self.port}"
        lifetime_ms = await log_in(login, self._write_at_once, version, where, tokens)
        if lifetime_ms > 0 and not self.is_closed:
            delay_s = lifetime_ms / 1000 * random.uniform(0.85, 0.95)
            self._renewal = self._loop.call_later(delay_s, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewing = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        """Logs in again. Requests wait only after there are tokens, which may come from far away."""
        login = self._login
        assert login is not None
        try:
            tokens = await login.begin(self.host)
            # Requests that wait for the end of a throttle time would get the responses of the login.
            while (delay_s := self._held_until - self._loop.time()) > 0 and not self.is_closed:
                await asyncio.sleep(delay_s)
            if self.is_closed:
                return
            self._flush()
            self._logging_in = self._renewing
            await self._log_in(login, tokens)
        except ClientError as error:
            self._end(f"not authenticated again: {error}", error)
            return
        finally:
            self._logging_in = None
            self._sent += self._later
            self._later.clear()
        self._flush()

    def _write_at_once(self, message: object, version: int) -> asyncio.Future[Any]:
        """Sends a request of the login before all that wait."""
        waiting, self._pending = self._pending, []
        logging_in, self._logging_in = self._logging_in, None
        try:
            future = self.send(message, version)
            self._held_until, held_until = 0.0, self._held_until
            self._flush()
            self._held_until = held_until
        finally:
            self._pending, self._logging_in = waiting, logging_in
        return future

    def _send_api_versions(self, request: ApiVersionsRequest, version: int) -> asyncio.Future[ApiVersionsResponse]:
        future = self.send(request, version)
        if not self.is_closed:
            self._sent[-1].api = self._sent[-1].api._replace(parse=functools.partial(_read_api_versions, version))
        return future


def _read_api_versions(version: int, data: Any, position: int) -> ApiVersionsResponse:
    """Parses a response to ApiVersions; error 35 arrives in version 0, whatever version was requested (KIP-511)."""
    if bytes(data[position : position + 2]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
        version = 0
    return parser(ApiVersionsResponse, version)(data, position)


class Opening(NamedTuple):
    """How the socket of a connection is opened: the timeout, by default that of requests, and TLS."""

    timeout_s: float | None = None
    tls: ssl.SSLContext | None = None


PLAIN_OPENING = Opening()


async def connect(
    host: str,
    port: int,
    *,
    client_id: str,
    request_timeout_s: float,
    opening: Opening = PLAIN_OPENING,
    frame_bytes_max: int = RESPONSE_BYTES_MAX,
    old_brokers: bool = True,
    node: tuple[str, int] | None = None,
) -> Connection:
    """Opens a connection and negotiates versions. Raises ConnectionLost, AuthenticationError or KafkaError.

    `request_timeout_s` is for each request. With `old_brokers` False, a connection closed at ApiVersions is an error,
    not a sign of Kafka 0.9. With `node`, a cluster id and a node id, a broker that is another one refuses with
    REBOOTSTRAP_REQUIRED; it must be of Kafka 4.4 or later.
    """

    async def opened() -> Connection:
        made = functools.partial(
            Connection,
            host,
            port,
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            frame_bytes_max=frame_bytes_max,
        )
        timeout_s = request_timeout_s if opening.timeout_s is None else opening.timeout_s
        return await _open(made, host, port, opening._replace(timeout_s=timeout_s))

    connection = await opened()
    try:
        await connection.agree(NODE_CHECKED_SINCE if node else API_VERSIONS_VERSION, node)
        return connection
    except ConnectionLost as lost:
        unreadable = isinstance(lost.__cause__, ProtocolViolation | MalformedMessage)
        if not old_brokers or unreadable or isinstance(lost, RequestTimedOut):
            raise
    except BaseException:
        connection.abort()
        raise
    connection = await opened()
    try:
        await connection.request(ListOffsetsRequest(replica_id=-1, topics=[]), 0)
        try:
            await connection.agree(0)
            return connection
        except RequestTimedOut:
            raise
        except ConnectionLost:
            connection = await opened()
            connection.versions = OLD_VERSIONS
            return connection
    except BaseException:
        connection.abort()
        raise


async def _open(made: Callable[[], Connection], host: str, port: int, opening: Opening) -> Connection:
    where = f"{host}:{port}"
    secured: dict[str, Any] = {} if opening.tls is None else {"ssl": opening.tls, "ssl_shutdown_timeout": SHUTDOWN_S}
    try:
        async with asyncio.timeout(opening.timeout_s):
            _, connection = await asyncio.get_running_loop().create_connection(made, host, port, **secured)
    except TimeoutError as error:
        raise ConnectionLost(f"cannot connect to {where} within {opening.timeout_s:g} s") from error
    except (ssl.SSLError, ConnectionResetError) as error:
        if opening.tls is None:
            raise ConnectionLost(f"cannot connect to {where}: {error}") from error
        raise handshake_error(host, port, error) from error
    except (OSError, UnicodeError) as error:  # UnicodeError for an invalid host name
        raise ConnectionLost(f"cannot connect to {where}: {error}") from error
    connection.is_encrypted = opening.tls is not None
    return connection
