"""Which connections a broker serves: how many at a time, how many from one address, how long one may be idle.

Owns the counts and the order in which those that are too many for the moment wait (KIP-402). What a connection does is
`connections.py`'s; here it can be held, admitted, refused and seen to be idle.

Sources: KIP-402 (`max.connections`), KIP-612 (`max.connection.creation.rate`), Kafka's ConnectionQuotas and the
Selector's expiry of idle connections.
"""

from __future__ import annotations

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

UNLIMITED = INT32_MAX
IDLE_CHECKS = 20  # in the time after which a connection is idle, at most: one is closed so much too late


class Incoming(Protocol):
    """What is known here of a connection."""

    listener: str
    last_active_ms: int

    @property
    def client_host(self) -> str:
        """The client's address."""
        ...

    @property
    def is_waited_for(self) -> bool:
        """Whether it waits for an answer of ours, and is not idle."""
        ...

    def admit(self) -> None:
        """It is served from here on."""
        ...

    def refuse(self) -> None:
        """It is not served: its address has as many as it may have."""
        ...

    def expire(self) -> None:
        """It was idle for too long."""
        ...


class Verdict(Enum):
    """What becomes of a connection that came."""

    SERVED = "served"
    HELD = "held"
    """It is accepted, and nothing of it is read until others have gone."""
    REFUSED = "refused"
    """Its address has as many as it may have."""


class Admission:
    """The connections of one node."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._all = 0
        self._of_listener: Counter[str] = Counter()
        self._of_host: Counter[str] = Counter()
        self._rates: dict[str, Rate] = {}  # by listener; of all under ""
        self._held: OrderedDict[Incoming, None] = OrderedDict()  # in the order in which they came
        self._next_ms: int | None = None  # when the first of those held may be served, once it has been its turn
        self._timer: Timer | None = None

    def arrive(self, connection: Incoming) -> Verdict:
        """A connection was accepted."""
        if not self._held:
            self._next_ms = self._begin_turn(connection)
            if self._may_enter(connection):
                return self._enter(connection)
        self._held[connection] = None
        self._wake_when_due()
        return Verdict.HELD

    def leave(self, connection: Incoming) -> None:
        """One is gone that was served or held."""
        if connection in self._held:
            if connection is next(iter(self._held)):
                self._next_ms = None
            del self._held[connection]
        else:
            self._count(connection, -1)
        self.admit_held()

    def admit_held(self) -> None:
        """Admits those that may be served now, in the order in which they came."""
        while self._held:
            connection = next(iter(self._held))
            if self._next_ms is None:
                self._next_ms = self._begin_turn(connection)
            if not self._may_enter(connection):
                self._wake_when_due()
                return
            del self._held[connection]
            self._next_ms = None
            if self._enter(connection) is Verdict.SERVED:
                connection.admit()
            else:
                connection.refuse()

    def close(self) -> None:
        """Nobody is admitted any more."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _begin_turn(self, connection: Incoming) -> int:
        """When a connection may be served, as connections come one after the other."""
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

    def _may_enter(self, connection: Incoming) -> bool:
        assert self._next_ms is not None
        listener = connection.listener
        return (
            self._clock.now_ms() >= self._next_ms
            and self._all < self._config.get("max.connections", UNLIMITED)
            and self._of_listener[listener] < self._of(listener, "max.connections")
        )

    def _of(self, listener: str, name: str) -> int:
        """A limit that a listener may have for itself; the older releases have none."""
        return self._config.get(f"listener.name.{listener.lower()}.{name}", UNLIMITED)

    def _wake_when_due(self) -> None:
        if self._next_ms is not None and self._next_ms > self._clock.now_ms():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._clock.call_at(self._next_ms, self.admit_held)

    def _enter(self, connection: Incoming) -> Verdict:
        host = connection.client_host
        limit: int | None = host_limits(self._config[NAME]).get(host)
        if self._of_host[host] >= (self._config[PER_IP] if limit is None else limit):
            return Verdict.REFUSED
        self._count(connection, 1)
        return Verdict.SERVED

    def _count(self, connection: Incoming, by: int) -> None:
        host = connection.client_host
        self._all += by
        self._of_listener[connection.listener] += by
        self._of_host[host] += by
        if not self._of_host[host]:  # there may be many addresses in a broker's life
            del self._of_host[host]


class IdleWatch:
    """Closes connections on which nothing has come or gone for `connections.max.idle.ms`."""

    def __init__(self, clock: Clock, idle_ms: int, connections: Collection[Incoming]) -> None:
        """Of `connections`, which come and go; with a negative `idle_ms` none is closed."""
        self._clock = clock
        self._idle_ms = idle_ms
        self._connections = connections
        self._timer: Timer | None = None

    def begin(self) -> None:
        """A connection is there."""
        if self._timer is None and self._idle_ms >= 0:
            self._wait(self._clock.now_ms() + self._idle_ms)

    def close(self) -> None:
        """Looks no more."""
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
