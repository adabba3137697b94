"""What clients do now: how much each of them asks for, which requests wait, which of the last minute were slow.

A sink of the tap. Owns counts and a few facts of each request, never its bytes; what it keeps is bounded whatever
clients do. Times are of `timer`, the clock of `Exchange.begun_ns`. A request that waits because it asked to waits, and
is not slow: a Fetch up to its `max_wait_ms`, a JoinGroup or a SyncGroup for the other members.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.api_key import ApiKey
from ..recording.decoding import request_value
from ..recording.exchange import Ending

if TYPE_CHECKING:
    from ..metrics.client_ledger import Origin
    from ..recording.exchange import Exchange, Peer

CLIENTS_MAX = 1_000  # what is beyond is counted under no name
FRAME_BYTES_MAX = 64 * 1024  # of the requests that are looked into
TEXT_MAX = 200  # letters of a client's id; what is longer is cut
SECOND_NS = 1_000_000_000
SLOW_SECONDS = 60
SLOW_OF_A_SECOND = 20
WAITS_FOR: dict[int, str] = {ApiKey.FETCH: "records", ApiKey.JOIN_GROUP: "members", ApiKey.SYNC_GROUP: "members"}

ClientKey = tuple[str, str | None, str | None, str | None]
"""Listener, client id, software's name and version."""


@dataclass(slots=True, eq=False)
class ClientActivity:
    """All connections of one listener that named the same client id and software. `client_id` is None for those that
    named none, and for all that are beyond CLIENTS_MAX. `hosts` are those of the connections that are open now."""

    listener: str
    client_id: str | None
    software_name: str | None
    software_version: str | None
    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    last_ns: int = 0
    hosts: Counter[str] = field(default_factory=Counter[str])
    apis: dict[int, int] = field(default_factory=dict[int, int])
    """The highest version of each API that it called, by API key."""

    @property
    def connections(self) -> int:
        """How many are open now."""
        return self.hosts.total()


class SlowRequest(NamedTuple):
    """One request that took long; `ended_ns` is when it was answered."""

    duration_ns: int
    number: int
    ended_ns: int
    api_key: int
    api_version: int
    client_id: str | None
    host: str
    port: int
    request_bytes: int
    response_bytes: int
    ending: Ending
    fault: str | None


@dataclass(slots=True, eq=False)
class _Seat:
    """One open connection, and whose it is; nobody's before its first request has ended."""

    peer: Peer
    client: ClientActivity | None = None
    origin: Origin | None = None
    client_id: str | None = None


class Activity:
    """See the module. All methods are called on the broker's loop."""

    def __init__(self, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer
        self.gone = ClientActivity("", None, None, None)
        """All clients that are forgotten, together."""
        self._clients: dict[ClientKey, ClientActivity] = {}
        self._seats: dict[int, _Seat] = {}
        self._pending: dict[int, Exchange] = {}
        self._slow: deque[tuple[int, list[SlowRequest]]] = deque()  # (second, a heap of its slowest)
        self._next_ns = 0  # when another second begins
        self._floor_ns = -1  # what took no longer is none of the slowest of this second

    # What the tap tells

    def opened(self, peer: Peer) -> None:
        """A connection is there."""
        self._seats[peer.number] = _Seat(peer)

    def begun(self, exchange: Exchange) -> None:
        """A request is there."""
        self._pending[exchange.number] = exchange

    def ended(self, exchange: Exchange) -> None:
        """It is answered, or will not be."""
        self._pending.pop(exchange.number, None)
        peer = exchange.peer
        seat = self._seats[peer.number]
        client = seat.client
        if client is None or seat.origin is not peer.origin or seat.client_id != exchange.client_id:
            client = self._take_seat(seat, exchange)
        duration_ns = exchange.duration_ns
        client.requests += 1
        client.request_bytes += exchange.request_bytes
        client.response_bytes += exchange.response_bytes
        client.last_ns = ended_ns = exchange.begun_ns + duration_ns
        if client.apis.get(exchange.api_key, -1) < exchange.api_version and exchange.ending is not Ending.CLOSED:
            client.apis[exchange.api_key] = exchange.api_version
        if duration_ns > self._floor_ns or ended_ns >= self._next_ns:
            self._note_duration(exchange, ended_ns)

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        seat = self._seats.pop(peer.number, None)
        if seat is not None:
            self._leave(seat)

    # What is asked of it

    @property
    def connections(self) -> int:
        """How many are open, those included that have not asked anything."""
        return len(self._seats)

    @property
    def clients(self) -> list[ClientActivity]:
        """Those that are connected, and those that were as long as there is room; in no order."""
        return list(self._clients.values())

    def client_of(self, peer: Peer) -> ClientActivity | None:
        """Whose a connection is, None for one that is nobody's yet, or has gone."""
        seat = self._seats.get(peer.number)
        return None if seat is None else seat.client

    def waiting(self) -> Iterator[Exchange]:
        """The requests that are not answered yet, oldest first."""
        return iter(list(self._pending.values()))

    def slow(self) -> list[SlowRequest]:
        """The slowest of the last minute, slowest first."""
        self._forget(self.timer())
        return sorted((one for _, some in self._slow for one in some), reverse=True)

    # Clients

    def _take_seat(self, seat: _Seat, exchange: Exchange) -> ClientActivity:
        """Whose connection it is from here on."""
        self._leave(seat)
        seat.origin, seat.client_id = seat.peer.origin, exchange.client_id
        client = seat.client = self._client(seat.origin, exchange.client_id)
        client.hosts[seat.peer.client_host] += 1
        return client

    def _leave(self, seat: _Seat) -> None:
        if seat.client is not None:
            hosts, host = seat.client.hosts, seat.peer.client_host
            hosts[host] -= 1
            if hosts[host] <= 0:
                del hosts[host]
            seat.client = None

    def _client(self, origin: Origin, client_id: str | None) -> ClientActivity:
        key = (origin.listener, short(client_id), origin.software_name, origin.software_version)
        found = self._clients.get(key)
        if found is not None:
            return found
        if len(self._clients) >= CLIENTS_MAX:
            self._make_room()
        if len(self._clients) >= CLIENTS_MAX:
            key = (origin.listener, None, None, None)
        found = self._clients.get(key) or ClientActivity(*key)
        self._clients[key] = found
        return found

    def _make_room(self) -> None:
        """Forgets half of the clients that are gone, those of which nothing was heard for longest."""
        gone = [(client.last_ns, key) for key, client in self._clients.items() if not client.hosts]
        for _, key in heapq.nsmallest((len(gone) + 1) // 2, gone, key=lambda pair: pair[0]):
            forgotten, gone_for_good = self._clients.pop(key), self.gone
            gone_for_good.requests += forgotten.requests
            gone_for_good.request_bytes += forgotten.request_bytes
            gone_for_good.response_bytes += forgotten.response_bytes

    # Slow requests

    def _note_duration(self, exchange: Exchange, ended_ns: int) -> None:
        duration_ns = exchange.duration_ns
        if exchange.api_key in WAITS_FOR and exchange.api_key != ApiKey.FETCH:
            return
        if ended_ns >= self._next_ns:
            self._forget(ended_ns)
            second = ended_ns // SECOND_NS
            self._slow.append((second, []))
            self._next_ns, self._floor_ns = (second + 1) * SECOND_NS, -1
        heap = self._slow[-1][1]
        if exchange.api_key == ApiKey.FETCH and _asked_to_wait(exchange):
            return
        peer = exchange.peer
        found = SlowRequest(
            duration_ns,
            exchange.number,
            ended_ns,
            exchange.api_key,
            exchange.api_version,
            short(exchange.client_id),
            peer.client_host,
            peer.client_port,
            exchange.request_bytes,
            exchange.response_bytes,
            exchange.ending,
            exchange.fault,
        )
        (heapq.heappush if len(heap) < SLOW_OF_A_SECOND else heapq.heappushpop)(heap, found)
        if len(heap) == SLOW_OF_A_SECOND:
            self._floor_ns = heap[0].duration_ns

    def _forget(self, now_ns: int) -> None:
        oldest = now_ns // SECOND_NS - SLOW_SECONDS
        while self._slow and self._slow[0][0] <= oldest:
            self._slow.popleft()


def short(client_id: str | None) -> str | None:
    """A client's id as it is kept and told here."""
    return client_id if client_id is None or len(client_id) <= TEXT_MAX else client_id[: TEXT_MAX - 1] + "…"


def _asked_to_wait(exchange: Exchange) -> bool:
    """Whether a Fetch took no longer than it may wait for records; nobody knows of one that is not kept."""
    request = request_value(exchange)
    return request is None or exchange.duration_ns <= (request.max_wait_ms + 1) * 1_000_000
