"""Scripted brokers in the simulated event loop: they respond, stay silent, send malformed bytes, or close.

Owns a network of such brokers by address. A broker has one function per request class, `(request, version, link) ->
response`; a function may also return bytes (sent as they are, with no size added), CLOSE, SILENT, or `Later`. Requests
are kept in `heard`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ottla.protocol.compiler import build, parse
from ottla.protocol.headers import read_prefix, read_rest, response_header
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.schema import Versions, response_class, spec
from ottla_testing.client.simulated_loop import SimulatedLoop

CLOSE = object()
SILENT = object()


class Later(NamedTuple):
    """A response that is sent after a number of seconds."""

    seconds: float
    response: Any


class Heard(NamedTuple):
    """One request as received by a broker."""

    at_s: float
    request: Any
    version: int
    client_id: str
    link: Link


class Link(asyncio.Transport):
    """The client's transport, and the broker's end of it."""

    def __init__(self, loop: SimulatedLoop, protocol: Any, broker: ScriptedBroker) -> None:
        super().__init__()
        self.writes: list[bytes] = []  # each write of the client
        self.is_aborted = False
        self.correlation_id = 0  # of the newest request
        self._loop = loop
        self._protocol = protocol
        self._broker = broker
        self._received = bytearray()
        self._is_closing = False

    # The client's end

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))
        self._loop.call_soon(self._take, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()

    # The broker's end

    def _take(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4 and not self._is_closing:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._broker.take(self, frame)

    def feed(self, data: bytes) -> None:
        """Passes bytes to the client, in pieces of the size of its buffers."""
        while data and not self._is_closing:
            buffer = self._protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def end(self, error: Exception | None = None) -> None:
        """Closes from the broker's side, without an error or with one of the socket."""
        if self._is_closing:
            return
        if error is None and not self._protocol.eof_received():
            self.close()
        elif not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def pause(self) -> None:
        self._protocol.pause_writing()

    def resume(self) -> None:
        self._protocol.resume_writing()


class ScriptedBroker:
    """One broker. `versions` None: it does not have ApiVersions, and closes."""

    def __init__(self, loop: SimulatedLoop, versions: Mapping[type, str] | None) -> None:
        self.loop = loop
        self.is_up = True
        self.versions = versions
        self.heard: list[Heard] = []
        self.links: list[Link] = []
        self.refused = 0
        self.does: dict[type, Callable[..., Any]] = {
            ApiVersionsRequest: self.api_versions,
            ListOffsetsRequest: lambda request, version, link: ListOffsetsResponse(topics=[]),
        }

    def requests_of(self, cls: type) -> list[Heard]:
        """Returns the requests of one class so far."""
        return [heard for heard in self.heard if type(heard.request) is cls]

    def api_versions(self, request: Any, version: int, link: Link) -> Any:
        if self.versions is None:
            return CLOSE
        served = Versions.of(self.versions.get(ApiVersionsRequest, "0-4"))
        if version not in served:
            return bytes_of(ApiVersionsResponse(error_code=35, api_keys=[]), 0, link.correlation_id)
        return ApiVersionsResponse(error_code=0, api_keys=self.api_keys())

    def api_keys(self) -> list[Any]:
        keys = []
        for cls, text in ({ApiVersionsRequest: "0-4"} | dict(self.versions or {})).items():
            first, last = Versions.of(text)
            key = spec(cls).api_key
            keys.append(ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last))
        return keys

    def take(self, link: Link, frame: bytes) -> None:
        prefix = read_prefix(frame)
        cls = next(cls for cls in (*CLASSES, *self.does) if spec(cls).api_key == prefix.api_key)
        version = prefix.api_version
        known = version in spec(cls).versions
        client_id, position = read_rest(frame, prefix, known and version in spec(cls).flexible)
        request = parse(cls, version, frame, position) if known else None
        link.correlation_id = prefix.correlation_id
        self.heard.append(Heard(self.loop.time(), request, version, client_id, link))
        outcome = self.does[cls](request, version, link)
        if isinstance(outcome, Later):
            self.loop.call_later(
                outcome.seconds, self._reply, link, outcome.response, cls, version, prefix.correlation_id
            )
        else:
            self._reply(link, outcome, cls, version, prefix.correlation_id)

    def _reply(self, link: Link, outcome: Any, cls: type, version: int, correlation_id: int) -> None:
        if outcome is CLOSE:
            link.end()
        elif isinstance(outcome, bytes):
            link.feed(outcome)
        elif outcome is not SILENT:
            link.feed(bytes_of(outcome, version, correlation_id, cls))

    def stop(self) -> None:
        """Stops: all connections end, new ones are refused."""
        self.is_up = False
        for link in self.links:
            link.end()


CLASSES: list[type] = [ApiVersionsRequest, MetadataRequest, FindCoordinatorRequest, ListOffsetsRequest]


def bytes_of(response: Any, version: int, correlation_id: int, cls: type = ApiVersionsRequest) -> bytes:
    """Returns a response with its header and size."""
    assert type(response) is response_class(cls)
    declared = spec(cls)
    body = response_header(correlation_id, declared.api_key, version in declared.flexible) + build(response, version)
    return struct.pack(">i", len(body)) + body


class ScriptedNetwork:
    """Brokers by address, and the event loop in which clients reach them."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(self)
        self.brokers: dict[tuple[str, int], ScriptedBroker] = {}
        self.attempts: list[tuple[float, str, int]] = []  # when, host, port
        self.silent: set[tuple[str, int]] = set()  # addresses that neither accept nor refuse

    def broker(self, host: str = "one", port: int = 9092, versions: Mapping[type, str] | None = None) -> ScriptedBroker:
        broker = self.brokers[host, port] = ScriptedBroker(self.loop, versions)
        return broker

    async def connect(self, protocol: Any, host: str, port: int) -> asyncio.Transport:
        self.attempts.append((self.loop.time(), host, port))
        if (host, port) in self.silent:
            await self.loop.create_future()
        broker = self.brokers.get((host, port))
        if broker is None or not broker.is_up:
            raise ConnectionRefusedError(f"connection refused at {host}:{port}")
        link = Link(self.loop, protocol, broker)
        broker.links.append(link)
        protocol.connection_made(link)
        return link

    def run(self, main: Any) -> Any:
        """Runs a coroutine; fails if the event loop caught an exception."""
        outcome = self.loop.run(main)
        assert not self.loop.errors
        return outcome


def metadata(
    nodes: Mapping[int, tuple[str, int]],
    topics: Mapping[str, Any] = {},
    *,
    controller_id: int = -1,
    **more: Any,
) -> MetadataResponse:
    """Builds a Metadata response; a topic is {partition: leader}, {partition: (leader, epoch)}, or an error code."""
    topic_class = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=node, host=host, port=port)
            for node, (host, port) in nodes.items()
        ],
        controller_id=controller_id,
        topics=[
            topic_class(error_code=topic, name=name, partitions=[])
            if isinstance(topic, int)
            else topic_class(error_code=0, name=name, partitions=[partition(*each) for each in topic.items()])
            for name, topic in topics.items()
        ],
        **more,
    )


def partition(index: int, leader: int | tuple[int, int]) -> Any:
    leader, epoch = leader if isinstance(leader, tuple) else (leader, -1)
    return MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
        error_code=5 if leader < 0 else 0,
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[],
        isr_nodes=[],
    )
