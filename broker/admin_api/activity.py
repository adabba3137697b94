"""The activity of clients: their requests and bytes, requests that wait, and the slowest requests of the last minute.

A sink of the tap. Keeps counts and a few facts of each request, never its bytes, and its memory is bounded whatever
clients do. Times are of `timer`, the clock of `Exchange.begun_ns`. A request that lets the broker wait is not slow
while it waits: a Fetch up to its `max_wait_ms`, a JoinGroup or a SyncGroup for the other members.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...protocol.api_key import ApiKey
from ..metrics.client_ledger import shortened
from ..recording.decoding import request_value
from ..recording.exchange import Ending

if TYPE_CHECKING:
    from ..metrics.client_ledger import ClientLibrary
    from ..recording.exchange import Buffer, Exchange, Peer

CLIENTS_MAX = 1_000  # further clients are counted together, without a client id
FRAME_BYTES_MAX = 64 * 1024  # of the requests that are decoded
SECOND_NS = 1_000_000_000
SLOW_SECONDS = 60
SLOW_OF_A_SECOND = 20
WAITS_FOR: dict[int, str] = {ApiKey.FETCH: "records", ApiKey.JOIN_GROUP: "members", ApiKey.SYNC_GROUP: "members"}


@dataclass(slots=True, eq=False)
class ClientActivity:
    """All connections of one listener with the same client id and client library. `client_id` is None for clients
    without one, and for all clients beyond CLIENTS_MAX. `hosts` and `principals` are those of the connections that are
    open now."""

    listener: str
    client_id: str | None
    software_name: str | None
    software_version: str | None
    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    last_ns: int = 0
    hosts: Counter[str] = field(default_factory=Counter[str])
    principals: Counter[str] = field(default_factory=Counter[str])
    apis: dict[int, int] = field(default_factory=dict[int, int])
    """The highest version of each API that it called, by API key."""

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self.hosts.total()


@dataclass(slots=True, eq=False)
class _OpenConnection:
    """An open connection; `client` is None before its first request has ended."""

    peer: Peer
    client: ClientActivity | None = None
    library: ClientLibrary | None = None
    client_id: str | None = None
    principal: str = ""


class Activity:
    """The subscriber that counts. All methods are called on the broker's loop."""

    def __init__(self, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        self.timer = timer
        self.evicted = ClientActivity("", None, None, None)
        """The sums of all clients that were evicted for want of room."""
        self._clients: dict[tuple[str, str | None, str | None, str | None], ClientActivity] = {}
        """By listener, client id, name and version of the client library."""
        self._connections: dict[int, _OpenConnection] = {}
        self._pending: dict[int, Exchange] = {}
        self._slow: deque[tuple[int, list[tuple[int, int, Exchange]]]] = deque()
        """Of each second a heap of its slowest requests, by duration and number."""
        self._next_ns = 0  # when the next second begins
        self._floor_ns = -1  # a request must take longer than this to be among the slowest of this second

    # Events of the tap

    def opened(self, peer: Peer) -> None:
        """Adds a connection."""
        self._connections[peer.number] = _OpenConnection(peer)

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        """Adds a request that waits for its response."""
        self._pending[exchange.number] = exchange

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        """Counts a request whose response was sent, or that will get none."""
        self._pending.pop(exchange.number, None)
        peer = exchange.peer
        connection = self._connections[peer.number]
        client = connection.client
        if (
            client is None
            or connection.library is not peer.library
            or connection.client_id != exchange.client_id
            or connection.principal != exchange.principal
        ):
            client = self._assign(connection, exchange)
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
        """Removes a connection."""
        connection = self._connections.pop(peer.number, None)
        if connection is not None:
            self._leave(connection)

    # Queries

    @property
    def connections(self) -> int:
        """The number of open connections, including those without a request so far."""
        return len(self._connections)

    @property
    def clients(self) -> list[ClientActivity]:
        """The connected clients, and as many disconnected ones as there is room for; in no order."""
        return list(self._clients.values())

    def client_of(self, peer: Peer) -> ClientActivity | None:
        """Returns the client of a connection; None before its first request has ended, and after it was closed."""
        connection = self._connections.get(peer.number)
        return None if connection is None else connection.client

    def waiting(self) -> Iterator[Exchange]:
        """Iterates over the requests without a response, oldest first."""
        return iter(list(self._pending.values()))

    def slow(self) -> list[Exchange]:
        """Returns the slowest requests of the last minute, slowest first, without their bytes."""
        self._forget(self.timer())
        return [one for _, _, one in sorted((entry for _, some in self._slow for entry in some), reverse=True)]

    # Clients

    def _assign(self, connection: _OpenConnection, exchange: Exchange) -> ClientActivity:
        """Assigns a connection to the client that this request names, from now on."""
        self._leave(connection)
        connection.library, connection.client_id = connection.peer.library, exchange.client_id
        client = connection.client = self._client(connection.library, exchange.client_id)
        client.hosts[connection.peer.client_host] += 1
        connection.principal = exchange.principal
        client.principals[connection.principal] += 1
        return client

    def _leave(self, connection: _OpenConnection) -> None:
        if connection.client is not None:
            _leave_one(connection.client.hosts, connection.peer.client_host)
            _leave_one(connection.client.principals, connection.principal)
            connection.client = None

    def _client(self, library: ClientLibrary, client_id: str | None) -> ClientActivity:
        key = (library.listener, shortened(client_id), library.software_name, library.software_version)
        found = self._clients.get(key)
        if found is not None:
            return found
        if len(self._clients) >= CLIENTS_MAX:
            self._make_room()
        if len(self._clients) >= CLIENTS_MAX:
            key = (library.listener, None, None, None)
        found = self._clients.get(key) or ClientActivity(*key)
        self._clients[key] = found
        return found

    def _make_room(self) -> None:
        """Evicts half of the disconnected clients, those without requests for the longest time."""
        idle = [(client.last_ns, key) for key, client in self._clients.items() if not client.hosts]
        for _, key in heapq.nsmallest((len(idle) + 1) // 2, idle, key=lambda pair: pair[0]):
            client, total = self._clients.pop(key), self.evicted
            total.requests += client.requests
            total.request_bytes += client.request_bytes
            total.response_bytes += client.response_bytes

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
        if exchange.api_key == ApiKey.FETCH and _is_expected_wait(exchange):
            return
        kept = replace(exchange, client_id=shortened(exchange.client_id), request=None, response=None, produced=None)
        found = duration_ns, exchange.number, kept
        (heapq.heappush if len(heap) < SLOW_OF_A_SECOND else heapq.heappushpop)(heap, found)
        if len(heap) == SLOW_OF_A_SECOND:
            self._floor_ns = heap[0][0]

    def _forget(self, now_ns: int) -> None:
        oldest = now_ns // SECOND_NS - SLOW_SECONDS
        while self._slow and self._slow[0][0] <= oldest:
            self._slow.popleft()


def _leave_one(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]


def _is_expected_wait(exchange: Exchange) -> bool:
    """Returns whether a Fetch took no longer than its `max_wait_ms`; True for a request whose bytes were not kept."""
    request = request_value(exchange)
    return request is None or exchange.duration_ns <= (request.max_wait_ms + 1) * 1_000_000
