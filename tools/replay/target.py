"""The target broker of a playback: its versions, its nodes, and connections for raw frames.

Owns sockets, timeouts and the matching of responses to requests. A connection ends when the broker closes it, or at a
response without a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...broker.releases.profiles import RELEASES, profile
from ...client.net.errors import ConnectionLost, KafkaError
from ...client.net.sasl import LoginMethod, log_in
from ...client.net.threads import mark_retrieved
from ...client.net.tls import handshake_error
from ...protocol.api_key import ApiKey
from ...protocol.compiler import build, parser
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.headers import read_response_header, request_header
from ...protocol.messages.cluster.api_versions import ApiVersionsRequest
from ...protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.topics.metadata import MetadataRequest
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import Versions, response_class, spec

CLIENT_ID = b"ottla-replay"
CONNECT_SECONDS = 10.0
RESPONSE_BYTES_MAX = 100 << 20
_SIZE, _CORRELATION = struct.Struct(">i"), struct.Struct(">i")
_METADATA = 4  # or older: has the cluster id, and an empty list of topics means none
_METADATA_WITH_IDS = 10
Address = tuple[str, int]


class Unreachable(Exception):
    """The broker cannot be reached, or is not a Kafka broker; the text is one line."""


class Closed(Exception):
    """The connection ended without a response; the text is the reason."""


class Security(NamedTuple):
    """The login of a connection, and the context of TLS; None without."""

    login: LoginMethod | None = None
    tls: ssl.SSLContext | None = None


NONE = Security()


class Connection:
    """A connection; responses arrive in the order of requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self.reason = ""  # why it ended
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, address: Address, security: Security = NONE) -> Connection:
        """Connects within CONNECT_SECONDS, and logs in. Raises Unreachable."""
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = cls(*await asyncio.open_connection(host, port, ssl=security.tls))
                if security.login is not None:
                    await found._log_in(security.login, host, f"{host}:{port}")
                return found
        except TimeoutError:
            raise Unreachable(f"cannot connect to {host}:{port} within {CONNECT_SECONDS:g} s") from None
        except (OSError, UnicodeError) as error:
            if security.tls is not None and isinstance(error, ssl.SSLError | ConnectionResetError):
                raise Unreachable(str(handshake_error(host, port, error))) from None
            raise Unreachable(f"cannot connect to {host}:{port}: {error}") from None

    async def _log_in(self, login: LoginMethod, host: str, where: str) -> None:
        """Logs in by SASL. Raises Unreachable."""
        try:
            served = await self.call(ApiVersionsRequest(), 0)
            last = {one.api_key: one.max_version for one in served.api_keys}.get(ApiKey.SASL_AUTHENTICATE)
            if last is None:
                raise Unreachable(f"{where} is older than Kafka 1.0, and has no login by SaslAuthenticate")
            newest = spec(SaslAuthenticateRequest).versions.last
            await log_in(login, self.call, min(last, newest), where, await login.begin(host))
        except (KafkaError, ConnectionLost, Closed, MalformedMessage) as error:
            await self.close()
            raise Unreachable(f"no login at {where}: {error}") from None
        except BaseException:
            await self.close()
            raise

    async def call(self, request: object, version: int) -> Any:
        """Sends a request of this program and returns its response. Raises Closed, MalformedMessage."""
        declared = spec(type(request))
        flexible = version in declared.flexible
        frame = request_header(declared.api_key, version, 0, CLIENT_ID, flexible) + build(request, version)
        found = await (await self.send(frame))
        _, position = read_response_header(found, declared.api_key, flexible)
        return parser(response_class(type(request)), version)(found, position)

    @property
    def is_closed(self) -> bool:
        return bool(self.reason)

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def send(self, frame: bytes, *, silent: bool = False) -> asyncio.Future[bytes]:
        """Sends a request with a new correlation id; the future has the frame of the response, or fails with Closed.

        With `silent` no response is due, and the future is done at once with no bytes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        future.add_done_callback(mark_retrieved)
        if self.is_closed:
            future.set_exception(Closed(self.reason))
            return future
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        data = frame[:4] + _CORRELATION.pack(self._next_id) + frame[8:] if len(frame) >= 8 else frame
        if silent:
            future.set_result(b"")
        else:
            self._waiting.append((self._next_id, future))
        try:
            self._writer.write(_SIZE.pack(len(data)) + data)
            await self._writer.drain()
        except OSError as error:
            self._end(f"the connection broke: {error}")
        return future

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(4))
                if not 0 <= size <= RESPONSE_BYTES_MAX:
                    return self._end(f"a response of {size} bytes")
                response = await self._reader.readexactly(size)
                correlation_id = _CORRELATION.unpack_from(response)[0] if size >= 4 else None
                if not self._waiting or self._waiting[0][0] != correlation_id:
                    return self._end("a response without a request")
                future = self._waiting.popleft()[1]
                if not future.done():
                    future.set_result(response)
        except asyncio.IncompleteReadError as error:
            self._end("closed within a response" if error.partial else "closed")
        except OSError as error:
            self._end(f"closed: {error.strerror or error}")

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        self._writer.close()
        while self._waiting:
            future = self._waiting.popleft()[1]
            if not future.done():
                future.set_exception(Closed(self.reason))

    async def close(self) -> None:
        """Closes the connection; pending requests fail with Closed. May be called again."""
        self._task.cancel()
        self._end("closed by the player")
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(OSError):
            try:
                async with asyncio.timeout(1):
                    await self._writer.wait_closed()
            except TimeoutError:  # with TLS, a broker that does not confirm the end
                self._writer.transport.abort()


@dataclass(frozen=True)
class Target:
    """A broker and its cluster. `has_api_versions` is False for a broker without ApiVersions (before 0.10.0)."""

    bootstrap: Address
    versions: Mapping[int, Versions]
    has_api_versions: bool
    cluster_id: str | None
    nodes: Mapping[int, Address]
    security: Security = NONE

    def address(self, node_id: int) -> Address:
        """Returns the address of a node; for a single broker the bootstrap address, whatever it advertises."""
        return self.bootstrap if len(self.nodes) < 2 else self.nodes.get(node_id, self.bootstrap)


async def discover(bootstrap: Address, patience_s: float, security: Security = NONE) -> Target:
    """Fetches the versions and the nodes of a broker. Raises Unreachable."""
    served: Mapping[int, Versions] | None = None
    at = bootstrap, security
    response = await _request(at, ApiVersionsRequest(), 0, patience_s, may_close=True)
    if response is not None:
        served = {one.api_key: Versions(one.min_version, one.max_version) for one in response.api_keys}
    versions = served
    if not versions:  # those of the newest release without ApiVersions
        before = [name for name in RELEASES if ApiKey.API_VERSIONS not in profile(name).apis_of_kafka]
        versions = profile(before[-1]).served
    ends = versions.get(ApiKey.METADATA, Versions(0, 0))
    version = max(ends.first, min(ends.last, _METADATA))
    metadata = await _request(at, MetadataRequest(topics=[]), version, patience_s)
    nodes = {one.node_id: (one.host, one.port) for one in metadata.brokers}
    return Target(bootstrap, versions, served is not None, metadata.cluster_id, nodes, security)


async def topic_ids(target: Target, names: Sequence[str], patience_s: float) -> dict[str, bytes]:
    """Fetches name -> id of topics; empty if the broker has no topic ids or is unreachable."""
    ends = target.versions.get(ApiKey.METADATA, Versions(0, 0))
    version = min(ends.last, _METADATA_WITH_IDS)
    if version < _METADATA_WITH_IDS:
        return {}
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    try:
        metadata = await _request((target.bootstrap, target.security), request, version, patience_s)
    except Unreachable:
        return {}
    return {one.name: bytes(one.topic_id) for one in metadata.topics if one.name and one.topic_id != ZERO_UUID}


async def _request(
    at: tuple[Address, Security], request: object, version: int, patience_s: float, *, may_close: bool = False
) -> Any:
    """Sends a request on a new connection and returns the response; None if the broker closes it and `may_close`."""
    address, security = at
    connection = await Connection.open(address, security)
    where = f"{address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(patience_s):
            return await connection.call(request, version)
    except TimeoutError:
        raise Unreachable(f"no response from {where} within {patience_s:g} s") from None
    except Closed as closed:
        if may_close:
            return None
        hint = "; a listener with TLS or a login needs --command-config" if security == NONE else ""
        raise Unreachable(f"no response from {where}: {closed}{hint}") from None
    except (MalformedMessage, ProtocolViolation) as error:
        raise Unreachable(f"{where} is not a Kafka broker: {error}") from None
    finally:
        await connection.close()
