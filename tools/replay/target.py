"""The broker that a recording is played against: what it serves, its nodes, and connections of raw frames.

Owns sockets, deadlines and the match of answers to requests. A connection ends once: when the broker closes it, or when
it answers what was not asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...broker.releases.profiles import RELEASES, profile
from ...protocol.api_key import ApiKey
from ...protocol.compiler import build, parser
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.headers import read_response_header, request_header
from ...protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import Versions, spec

CLIENT_ID = b"ottla-replay"
CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 100 << 20
_SIZE, _CORRELATION = struct.Struct(">i"), struct.Struct(">i")
_METADATA = 4  # or older: it tells the id of the cluster, and takes an empty list of topics for none
_METADATA_WITH_IDS = 10
Address = tuple[str, int]


class Unreachable(Exception):
    """The broker cannot be asked; one line."""


class Closed(Exception):
    """The connection ended without an answer; the text says how."""


class Connection:
    """One connection; answers come in the order of requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self.reason = ""  # why it ended
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, address: Address) -> Connection:
        """Raises Unreachable."""
        host, port = address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(*await asyncio.open_connection(host, port))
        except TimeoutError:
            raise Unreachable(f"cannot connect to {host}:{port} within {CONNECT_SECONDS:g} s") from None
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"cannot connect to {host}:{port}: {error}") from None

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return bool(self.reason)

    @property
    def in_flight(self) -> int:
        """Requests without an answer so far."""
        return len(self._waiting)

    async def send(self, frame: bytes, *, silent: bool = False) -> asyncio.Future[bytes]:
        """Sends a request, whose correlation id is replaced; the future is the answer's frame, or fails with Closed.

        `silent`: no answer is due, and the future is done with no bytes.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        future.add_done_callback(_seen)
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
                if not 0 <= size <= ANSWER_BYTES_MAX:
                    return self._end(f"an answer of {size} bytes")
                answer = await self._reader.readexactly(size)
                correlation_id = _CORRELATION.unpack_from(answer)[0] if size >= 4 else None
                if not self._waiting or self._waiting[0][0] != correlation_id:
                    return self._end("an answer that was not asked for")
                future = self._waiting.popleft()[1]
                if not future.done():
                    future.set_result(answer)
        except asyncio.IncompleteReadError as error:
            self._end("closed within an answer" if error.partial else "closed")
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
        """Closes; answers that are missing never come. May be called again."""
        self._task.cancel()
        self._end("closed by the player")
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()


def _seen(future: asyncio.Future[Any]) -> None:
    """Marks a failure as seen: nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()


@dataclass(frozen=True)
class Target:
    """What a broker tells of itself. `told_versions` is False for one that is too old to be asked what it serves."""

    bootstrap: Address
    versions: Mapping[int, Versions]
    told_versions: bool
    cluster_id: str | None
    nodes: Mapping[int, Address]

    def address(self, node_id: int) -> Address:
        """Where a node is; a broker that is alone is where it was asked, whatever it tells clients."""
        return self.bootstrap if len(self.nodes) < 2 else self.nodes.get(node_id, self.bootstrap)


def _served_unasked() -> Mapping[int, Versions]:
    """What the newest release serves that closes the connection when it is asked what it does."""
    names = [name for name in RELEASES if ApiKey.API_VERSIONS not in profile(name).apis_of_kafka]
    return profile(names[-1]).served


async def look(bootstrap: Address, patience_s: float) -> Target:
    """Asks a broker what it serves and who belongs to it. Raises Unreachable."""
    served: Mapping[int, Versions] | None = None
    answer = await _ask(bootstrap, ApiVersionsRequest(), 0, ApiVersionsResponse, patience_s, may_close=True)
    if answer is not None:
        served = {one.api_key: Versions(one.min_version, one.max_version) for one in answer.api_keys}
    versions = served or _served_unasked()
    ends = versions.get(ApiKey.METADATA, Versions(0, 0))
    version = max(ends.first, min(ends.last, _METADATA))
    told = await _ask(bootstrap, MetadataRequest(topics=[]), version, MetadataResponse, patience_s)
    nodes = {one.node_id: (one.host, one.port) for one in told.brokers}
    return Target(bootstrap, versions, served is not None, told.cluster_id, nodes)


async def topic_ids(target: Target, names: Sequence[str], patience_s: float) -> dict[str, bytes]:
    """Name -> id of topics that the broker has, as far as it tells: its answers to the recorded requests did not."""
    ends = target.versions.get(ApiKey.METADATA, Versions(0, 0))
    version = min(ends.last, _METADATA_WITH_IDS)
    if version < _METADATA_WITH_IDS:
        return {}
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    try:
        told = await _ask(target.bootstrap, request, version, MetadataResponse, patience_s)
    except Unreachable:
        return {}
    return {one.name: bytes(one.topic_id) for one in told.topics if one.name and one.topic_id != ZERO_UUID}


async def _ask(
    address: Address, request: object, version: int, answer: type, patience_s: float, *, may_close: bool = False
) -> Any:
    """One question on a connection of its own; None if the broker closes and `may_close`."""
    declared = spec(type(request))
    flexible = version in declared.flexible
    connection = await Connection.open(address)
    where = f"{address[0]}:{address[1]}"
    try:
        frame = request_header(declared.api_key, version, 0, CLIENT_ID, flexible) + build(request, version)
        async with asyncio.timeout(patience_s):
            found = await (await connection.send(frame))
        _, position = read_response_header(found, declared.api_key, flexible)
        return parser(answer, version)(found, position)
    except TimeoutError:
        raise Unreachable(f"{where} does not answer within {patience_s:g} s") from None
    except Closed as closed:
        if may_close:
            return None
        raise Unreachable(f"{where} is no broker that answers: {closed}") from None
    except (MalformedMessage, ProtocolViolation) as error:
        raise Unreachable(f"{where} is no Kafka broker: {error}") from None
    finally:
        await connection.close()
