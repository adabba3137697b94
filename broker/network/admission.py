"""Limits of connections: how many in all, how many from one address, how fast they open, how long one may be idle.

Owns the counts, and the order in which held connections are admitted (KIP-402). The connections themselves are
`connections.py`'s; here they are held, admitted, refused and expired.

Sources: KIP-402 (`max.connections`), KIP-612 (`max.connection.creation.rate`), Kafka's ConnectionQuotas, and the expiry
of idle connections in Kafka's Selector.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ...protocol.limits import INT32_MAX
from ..config.host_limits import NAME, PER_IP, host_limits
from ..quotas.rates import Rate, Windows

if TYPE_CHECKING:
    from ..clock import Clock, Timer
    from ..config.values import Config
    from ..connection_info import ConnectionInfo

UNLIMITED = INT32_MAX
IDLE_CHECKS = 20  # checks in one idle period, at most: a connection is closed late by one interval at most


class Incoming(Protocol):
    """A connection, as far as admission uses it."""

    info: ConnectionInfo
    listener: str
    last_active_ms: int

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for a response; such a connection is not idle."""
        ...

    def admit(self) -> None:
        """Starts to serve a held connection."""
        ...

    def refuse(self) -> None:
        """Closes a connection whose address has reached its limit."""
        ...

    def expire(self) -> None:
        """Closes a connection that was idle for too long."""
        ...


class Verdict(Enum):
    """The decision about a new connection."""

    SERVED = "served"
    HELD = "held"
    """Accepted; nothing is read from it until it is admitted."""
    REFUSED = "refused"
    """Its address has reached the limit of connections."""


class Line:
    """The held connections of one listener, in the order in which they were accepted."""

    def __init__(self) -> None:
        self.held: OrderedDict[Incoming, int] = OrderedDict()  # with the number of its arrival
        self.next_ms: int | None = None  # when the first held connection may be served
        self.timer: Timer | None = None

    @property
    def first(self) -> Incoming:
        return next(iter(self.held))

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Admission:
    """The limits of the connections of one node. A listener holds its connections without regard to the others, as each
    has an acceptor of its own in Kafka.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._all = 0
        self._of_listener: Counter[str] = Counter()
        self._of_host: Counter[str] = Counter()
        self._rates: dict[str, Rate] = {}  # by listener; of all under ""
        self._lines: dict[str, Line] = {}  # by listener; only those that hold connections
        self._arrivals = itertools.count()

    @property
    def excess(self) -> int:
        """How many served connections there are above `max.connections`. Kafka closes the least recently used ones."""
        return max(0, self._all - self._config.get("max.connections", UNLIMITED))

    def arrive(self, connection: Incoming) -> Verdict:
        """Decides about an accepted connection."""
        line = self._lines.get(connection.listener)
        if line is None:
            next_ms = self._start_ms(connection)
            if self._may_enter(connection, next_ms):
                return self._enter(connection)
            line = self._lines[connection.listener] = Line()
            line.next_ms = next_ms
        line.held[connection] = next(self._arrivals)
        self._wake_when_due(line)
        return Verdict.HELD

    def leave(self, connection: Incoming) -> None:
        """Removes a served or held connection that was closed."""
        line = self._lines.get(connection.listener)
        if line is not None and connection in line.held:
            self._take(line, connection)
        else:
            self._count(connection, -1)
        self.admit_held()

    def admit_held(self) -> None:
        """Admits held connections that may be served now: of the first of each listener, the longest held one first."""
        while lines := [line for line in self._lines.values() if self._is_due(line)]:
            line = min(lines, key=lambda line: line.held[line.first])
            connection = line.first
            self._take(line, connection)
            if self._enter(connection) is Verdict.SERVED:
                connection.admit()
            else:
                connection.refuse()
        for line in self._lines.values():
            self._wake_when_due(line)

    def close(self) -> None:
        """Drops all held connections; none is admitted any more."""
        for line in self._lines.values():
            line.stop_waiting()
        self._lines.clear()

    def _take(self, line: Line, connection: Incoming) -> None:
        if connection is line.first:
            line.next_ms = None
        del line.held[connection]
        if not line.held:
            line.stop_waiting()
            del self._lines[connection.listener]

    def _is_due(self, line: Line) -> bool:
        if line.next_ms is None:
            line.next_ms = self._start_ms(line.first)
        return self._may_enter(line.first, line.next_ms)

    def _start_ms(self, connection: Incoming) -> int:
        """The earliest time at which a connection may be served under the limits of the connection rate."""
        now_ms = self._clock.now_ms()
        wait_ms = 0
        limits = {
            "": self._config.get("max.connection.creation.rate", UNLIMITED),
            connection.listener: self._of(connection.listener, "max.connection.creation.rate"),
        }
        for name, limit in limits.items():
            if limit < UNLIMITED:
                windows = Windows(self._config["quota.window.num"], self._config["quota.window.size.seconds"] * 1000)
                rate = self._rates.setdefault(name, Rate(windows))
                rate.record(1, now_ms)
                wait_ms = max(wait_ms, min(rate.throttle_ms(limit, now_ms), windows.ms))
        return now_ms + wait_ms

    def _may_enter(self, connection: Incoming, start_ms: int) -> bool:
        listener = connection.listener
        return (
            self._clock.now_ms() >= start_ms
            and self._all < self._config.get("max.connections", UNLIMITED)
            and self._of_listener[listener] < self._of(listener, "max.connections")
        )

    def _of(self, listener: str, name: str) -> int:
        """The limit of a listener; older releases have none."""
        return self._config.get(f"listener.name.{listener.lower()}.{name}", UNLIMITED)

    def _wake_when_due(self, line: Line) -> None:
        if line.next_ms is not None and line.next_ms > self._clock.now_ms():
            line.stop_waiting()
            line.timer = self._clock.call_at(line.next_ms, self.admit_held)

    def _enter(self, connection: Incoming) -> Verdict:
        host = connection.info.client_host
        limit: int | None = host_limits(self._config[NAME]).get(host)
        if self._of_host[host] >= (self._config[PER_IP] if limit is None else limit):
            return Verdict.REFUSED
        self._count(connection, 1)
        return Verdict.SERVED

    def _count(self, connection: Incoming, by: int) -> None:
        host = connection.info.client_host
        self._all += by
        self._of_listener[connection.listener] += by
        self._of_host[host] += by
        if not self._of_host[host]:  # a broker may see many addresses in its life
            del self._of_host[host]


class IdleWatch:
    """Closes connections that were idle for `connections.max.idle.ms`."""

    def __init__(self, clock: Clock, idle_ms: int, connections: Collection[Incoming]) -> None:
        """Watches `connections`, which changes over time. A negative `idle_ms` closes none."""
        self._clock = clock
        self._idle_ms = idle_ms
        self._connections = connections
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Starts watching with the first connection."""
        if self._timer is None and self._idle_ms >= 0:
            self._wait(self._clock.now_ms() + self._idle_ms)

    def close(self) -> None:
        """Stops watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, until_ms: int) -> None:
        self._timer = self._clock.call_at(until_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        kept: list[int] = []
        for connection in list(self._connections):
            if connection.is_waited_for:
                connection.last_active_ms = now_ms
            if now_ms - connection.last_active_ms >= self._idle_ms:
                connection.expire()
            else:
                kept.append(connection.last_active_ms)
        if kept:
            soonest_ms = now_ms + max(1, self._idle_ms // IDLE_CHECKS)
            self._wait(max(soonest_ms, min(kept) + self._idle_ms))
