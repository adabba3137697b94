"""A network for `SimulatedLoop` with the failures of TCP and of a bad proxy: seeded, so that a run can be repeated.

Owns connections between a client's protocol and a simulated broker. Within one connection frames keep their order and
are not duplicated. A connection may be cut at any frame: before it is delivered, or after that and before its response
leaves. Frames in flight at a cut are lost, or arrive late, when the client has long been on another connection. A frame
may also be delivered twice, as by a proxy that repeats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from ottla.protocol.errors import ProtocolViolation
from ottla_testing.client.simulated_loop import SimulatedLoop

_SIZE = struct.Struct(">i")
# ApiVersions and ListOffsets, with which a client detects old brokers. A broker that closes on the first repeatedly is
# taken for old, so connections are not cut at these.
_API_VERSIONS = struct.pack(">h", 18)
_OF_A_NEW_CONNECTION = (_API_VERSIONS, struct.pack(">h", 2))


class Server(Protocol):
    """The broker's side. `generation` changes with each start; frames of older connections are dropped."""

    is_up: bool
    generation: int

    def respond(self, frame: bytes) -> bytes | None:
        """Returns the response to a request, both without their size; None for no response. Raises ProtocolViolation:
        it closes.
        """
        ...


@dataclass(frozen=True, slots=True)
class Faults:
    """The failures of the network. Rates are probabilities per frame, times in seconds."""

    delay_s: float = 0.002
    """Of each delivery, each way: up to this."""
    cut_before: float = 0.0
    """The connection ends before the request is delivered."""
    cut_after: float = 0.0
    """The connection ends after the delivery of the request: its response is lost."""
    late: float = 0.0
    """Of the cut connections, those whose requests on their way are delivered nevertheless."""
    late_s: float = 1.0
    """Up to so much later, ..."""
    repeated: float = 0.0
    """The request is delivered once more, up to `late_s` later; the response to that is dropped."""


NO_FAULTS = Faults()


class Link(asyncio.Transport):
    """One connection: the transport that the client's protocol writes to."""

    def __init__(self, network: SimulatedNetwork, protocol: Any, server: Server, number: int) -> None:
        super().__init__()
        self.number = number
        self._network = network
        self._loop = network.loop
        self._protocol = protocol
        self._server = server
        self._generation = server.generation
        self._received = bytearray()
        self._on_the_way: deque[tuple[Callable[[bytes], None], bytes]] = deque()
        self._coming_back: deque[bytes] = deque()  # queues, as timers of one time have no order
        self._next_there_s = 0.0
        self._next_back_s = 0.0
        self._is_closing = False
        self._is_cut = False
        self.is_in_use = False  # for more than the detection of versions

    # -- called by protocols

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self._is_cut:
            return
        received = self._received
        received += data
        start = 0
        while len(received) - start >= 4:
            end = start + 4 + _SIZE.unpack_from(received, start)[0]
            if end > len(received):
                break
            self._send(bytes(received[start + 4 : end]))
            start = end
        del received[:start]

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("simulated", 9092), "sockname": ("simulated", 40000 + self.number)}.get(name, default)

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        """Responses are few and small: reading is not paused."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 65536

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """All written bytes leave at once."""

    def can_write_eof(self) -> bool:
        return False

    # -- in flight

    def _send(self, frame: bytes) -> None:
        network = self._network
        faults, pick = network.faults, network.random
        if not frame.startswith(_OF_A_NEW_CONNECTION):
            self.is_in_use = True
        self._next_there_s = max(self._next_there_s, self._loop.now_s + pick.random() * faults.delay_s)
        deliver: Callable[[bytes], None] = self._deliver
        chance = pick.random()
        if chance < faults.cut_before + faults.cut_after and not frame.startswith(_API_VERSIONS):
            deliver = self._cut_before if chance < faults.cut_before else self._cut_after
        self._on_the_way.append((deliver, frame))
        self._loop.call_at(self._next_there_s, self._next_comes)
        if faults.repeated and pick.random() < faults.repeated:
            self._loop.call_at(
                self._next_there_s + pick.random() * faults.late_s, self._deliver_unheard, frame, "again"
            )

    def _next_comes(self) -> None:
        if self._on_the_way:
            deliver, frame = self._on_the_way.popleft()
            deliver(frame)

    def _deliver(self, frame: bytes) -> None:
        server, network = self._server, self._network
        if not server.is_up or server.generation != self._generation:
            return
        network.note(self, "request", frame)
        try:
            response = server.respond(frame)
        except ProtocolViolation:
            self.cut()
            return
        if response is None or self._is_cut:
            return
        self._next_back_s = max(self._next_back_s, self._loop.now_s + network.random.random() * network.faults.delay_s)
        self._coming_back.append(response)
        self._loop.call_at(self._next_back_s, self._arrive)

    def _deliver_unheard(self, frame: bytes, how: str) -> None:
        if self._server.is_up and self._server.generation == self._generation:
            self._network.note(self, how, frame)
            with contextlib.suppress(ProtocolViolation):
                self._server.respond(frame)

    def _cut_before(self, frame: bytes) -> None:
        self._network.note(self, "cut before", frame)
        self.cut()

    def _cut_after(self, frame: bytes) -> None:
        self._is_cut = True  # so that its response does not leave
        self._deliver(frame)
        self._is_cut = False
        self._network.note(self, "cut after", frame)
        self.cut()

    def _arrive(self) -> None:
        response = self._coming_back.popleft()
        if self._is_closing or self._is_cut:
            return
        data = _SIZE.pack(len(response)) + response
        if self._network.random.random() < 0.1:  # TCP does not keep frames together
            middle = self._network.random.randrange(len(data))
            self._feed(data[:middle])
            data = data[middle:]
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        while data and not self._is_closing:
            buffer: Any = protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            protocol.buffer_updated(count)
            data = data[count:]

    # -- the end

    def cut(self) -> None:
        """Ends the connection on both sides; frames to the broker in flight are lost, or arrive late."""
        if self._is_cut:
            return
        self._is_cut = True
        self._keep_late()
        self._end(ConnectionResetError("cut"))

    def _keep_late(self) -> None:
        """Keeps some of the frames in flight for a late delivery: a first part of them, in order."""
        network, frames = self._network, [frame for _, frame in self._on_the_way]
        self._on_the_way.clear()
        if not frames or network.random.random() >= network.faults.late:
            return
        count = network.random.randint(1, len(frames))
        when = self._loop.now_s
        for frame in frames[:count]:
            when += network.random.random() * network.faults.late_s / count
            self._loop.call_at(when, self._deliver_unheard, frame, "late")

    def _end(self, error: Exception | None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._network.links.pop(self.number, None)
        if not self._is_cut:  # closed by the client: earlier frames are still in flight
            self._is_cut = True
            self._keep_late()
        self._loop.call_soon(self._protocol.connection_lost, error)


class SimulatedNetwork:
    """All connections of one run. `trace` is called with the events of each frame."""

    def __init__(self, random: Random, faults: Faults = NO_FAULTS) -> None:
        self.random = random
        self.faults = faults
        self.loop: SimulatedLoop = SimulatedLoop(self)
        self.servers: dict[tuple[str, int], Server] = {}
        self.links: dict[int, Link] = {}
        self.trace: Callable[[Link, str, bytes], None] | None = None
        self._numbers = 0

    def note(self, link: Link, what: str, frame: bytes) -> None:
        if self.trace is not None:
            self.trace(link, what, frame)

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> asyncio.Transport:
        """Connects; refused while the broker is down."""
        await asyncio.sleep(self.random.random() * self.faults.delay_s)
        server = self.servers.get((host, port))
        if server is None or not server.is_up:
            raise ConnectionRefusedError(f"connection refused at {host}:{port}")
        self._numbers += 1
        link = Link(self, protocol, server, self._numbers)
        self.links[link.number] = link
        protocol.connection_made(link)
        return link

    def cut_all(self, *, but_new: bool = False) -> None:
        """Ends every connection, like a stopping broker; or all except those that negotiate versions."""
        for link in list(self.links.values()):
            if not but_new or link.is_in_use:
                link.cut()
