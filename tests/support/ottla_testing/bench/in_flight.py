"""Small requests with a number of them in flight on one connection or many, by one thread without a library: Produce,
and one at a time Fetch of one record and OffsetCommit.

A connection sends its next request when a response comes. The broker's processor time is measured, too: with many
connections this client needs as much as the broker.
"""

from __future__ import annotations

import selectors
import time
from contextlib import ExitStack
from typing import NamedTuple

from ottla_testing.bench import raw
from ottla_testing.bench.peers import Peer
from ottla_testing.bench.raw import BenchError, Connection
from ottla_testing.bench.stats import Measure

WARM_UP = 20  # requests of each connection


class Load(NamedTuple):
    """The connections, and the requests of each that are in flight."""

    connections: int
    each: int

    @property
    def label(self) -> str:
        """The name of its measure."""
        return f"in-flight {self.each} on {self.connections}"


LOADS = (Load(1, 1), Load(1, 64), Load(32, 2))
OTHERS = ("in-flight fetch", "in-flight commit")
MEASURES = (
    *(Measure(label, "k/s") for label in (*(load.label for load in LOADS), *OTHERS)),
    *(Measure(f"{label} cpu", "us", False) for label in (*(load.label for load in LOADS), *OTHERS)),
)


def taken(peer: Peer, topic: str, load: Load, count: int) -> dict[str, float]:
    """Sends `count` requests of one record of 10 bytes with acks=1 to a new topic. Returns thousands of requests per
    second, and the broker's microseconds for each. Raises BenchError, OSError.
    """
    request = raw.frame(raw.produce_request(topic, raw.one_record()))
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(peer.address)) for _ in range(load.connections)]
        for connection in connections:
            for _ in range(WARM_UP):
                last = connection.exchange(request)
        before = peer.cpu_seconds()
        seconds, responses = _sent(connections, bytes(request), load.each, count)
        used = peer.cpu_seconds() - before
        last = connections[0].exchange(request)
    wanted = (0, WARM_UP * load.connections + responses)
    if raw.produce_error(last) != wanted:
        raise BenchError(f"the last request has (error, offset) {raw.produce_error(last)}, not {wanted}")
    return {load.label: responses / seconds / 1e3, f"{load.label} cpu": used / responses * 1e6}


def others_taken(peer: Peer, topic: str, count: int) -> dict[str, float]:
    """The same for `count` requests of each of OTHERS, one at a time, of a new topic."""
    group = f"group-{topic}"
    fetch, commit = raw.fetch_request(topic, 0, 500), raw.commit_request(group, topic)
    found: dict[str, float] = {}
    with Connection(peer.address) as connection:
        connection.exchange(raw.frame(raw.produce_request(topic, raw.one_record())))
        raw.await_coordinator(connection, group)
        for label, request in zip(OTHERS, (fetch, commit), strict=True):
            data = raw.frame(request)
            response = b""
            for _ in range(WARM_UP):
                response = connection.exchange(data)
                if label == OTHERS[1] and raw.committed(response):  # the coordinator loads
                    time.sleep(0.05)
            before, began = peer.cpu_seconds(), time.perf_counter()
            for _ in range(count):
                response = connection.exchange(data)
            seconds, used = time.perf_counter() - began, peer.cpu_seconds() - before
            error, size = raw.fetched(response) if label == OTHERS[0] else (raw.committed(response), 1)
            if error or not size:
                raise BenchError(f"{label}: error {error}, {size} bytes")
            found |= {label: count / seconds / 1e3, f"{label} cpu": used / count * 1e6}
    return found


def _sent(connections: list[Connection], request: bytes, each: int, count: int) -> tuple[float, int]:
    """Keeps `each` requests of each connection in flight until `count` responses have come, then waits for the rest.
    Returns the seconds until `count`, and the number of all responses.
    """
    many = request * each
    received, due = 0, len(connections) * each
    seconds = 0.0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.socket.settimeout(0.0)
            selector.register(connection.socket, selectors.EVENT_READ, bytearray())
        began = time.perf_counter()
        for connection in connections:
            connection.socket.sendall(many)
        while due:
            if time.perf_counter() - began > raw.TIMEOUT_SECONDS:
                raise BenchError(f"only {received} of {count} responses in {raw.TIMEOUT_SECONDS:g} s")
            for key, _ in selector.select(1.0):
                one, pending = key.fileobj, key.data
                data = one.recv(1 << 16)  # pyright: ignore[reportAttributeAccessIssue]
                if not data:
                    raise BenchError("the connection was closed")
                pending += data
                whole, position = raw.count_responses(pending, 0, 0)
                del pending[:position]
                received += whole
                due -= whole
                if received < count:
                    one.sendall(request * whole)  # pyright: ignore[reportAttributeAccessIssue]
                    due += whole
                elif not seconds:
                    seconds = time.perf_counter() - began
    for connection in connections:
        connection.socket.settimeout(raw.TIMEOUT_SECONDS)
    return seconds, received
