"""A broker's buckets while there is any quota: who has used how much, and how long they are to wait.

Owns the buckets of each node, made when they are first used and dropped when nobody has for an hour; a client without a
limit is not measured at all. Time is the broker's own, which tests move: rates, and for how long a connection is not
heard, go by it. What one request is charged is `meter.py`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ..futures import wake
from .limits import AddressLimits, ClientLimits, Limit
from .rates import Rate, TokenBucket, Windows

if TYPE_CHECKING:
    from ..clock import Clock, Timer

INACTIVE_MS = 3_600_000
SWEPT_EVERY_MS = 30_000

M = TypeVar("M", Rate, TokenBucket)


class Buckets(Generic[M]):
    """What is measured of everybody who has a limit of one kind, by node and bucket."""

    def __init__(self, windows: Windows, kind: Callable[[Windows], M]) -> None:
        self.windows = windows
        self._kind = kind
        self._found: dict[tuple[int, tuple[str, str]], M] = {}
        self._used_ms: dict[tuple[int, tuple[str, str]], int] = {}
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._found)

    def at(self, node_id: int, limit: Limit, now_ms: int) -> M:
        """The measure of those who share a limit."""
        key = node_id, limit.bucket
        found = self._found.get(key)
        if found is None:
            self._sweep(now_ms)
            found = self._found[key] = self._kind(self.windows)
        self._used_ms[key] = now_ms
        return found

    def _sweep(self, now_ms: int) -> None:
        if abs(now_ms - self._swept_ms) < SWEPT_EVERY_MS:
            return
        self._swept_ms = now_ms
        for key in [key for key, used_ms in self._used_ms.items() if abs(now_ms - used_ms) > INACTIVE_MS]:
            del self._found[key], self._used_ms[key]

    def forget(self, node_id: int) -> None:
        """A node has stopped, and what it knew is gone."""
        for key in [key for key in self._found if key[0] == node_id]:
            del self._found[key], self._used_ms[key]


class RateQuota:
    """What users and client ids may have of one thing per second; no wait is longer than `most_ms`."""

    def __init__(self, windows: Windows, most_ms: int | None = None) -> None:
        self.limits = ClientLimits({})
        self.buckets: Buckets[Rate] = Buckets(windows, Rate)
        self._most_ms = most_ms

    def record(self, node_id: int, user: str, client_id: str, value: float, now_ms: int) -> int:
        """How long a client is to wait after this, in ms."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0
        rate = self.buckets.at(node_id, limit, now_ms)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit.rate, now_ms)
        return wait_ms if self._most_ms is None else min(wait_ms, self._most_ms)

    def add(self, node_id: int, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Only notes it: it counts with what comes next. What is negative is taken back."""
        limit = self.limits.find(user, client_id)
        if limit is not None:
            self.buckets.at(node_id, limit, now_ms).record(value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """More than that at once is always too much; None for no limit."""
        limit = self.limits.find(user, client_id)
        if limit is None or not limit.rate > 0:
            return None
        windows = self.buckets.windows
        return limit.rate * (windows.samples - 1) * windows.ms / 1000


class MutationQuota:
    """How many partitions users and client ids may have created and deleted per second."""

    def __init__(self, windows: Windows) -> None:
        self.limits = ClientLimits({})
        self.buckets: Buckets[TokenBucket] = Buckets(windows, TokenBucket)

    def take(
        self, node_id: int, user: str, client_id: str, count: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """(whether that is refused, how long to wait in ms). `strict` takes nothing where too much was taken before,
        and has nobody wait who takes too much only now. A rate of 0 refuses for good, and nobody waits for that."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return False, 0
        bucket = self.buckets.at(node_id, limit, now_ms)
        is_refused = strict and bucket.tokens(limit.rate, now_ms) < 0
        if not is_refused:
            bucket.take(count, limit.rate, now_ms)
        waits = is_refused or not strict
        return is_refused, bucket.throttle_ms(limit.rate, now_ms) if waits else 0


class Throttle:
    """Everything that is measured, and the answers that are held back."""

    def __init__(
        self, clock: Clock, windows: Windows, controller_windows: Windows, *, mutes: bool, timer: Callable[[], int]
    ) -> None:
        """`timer` tells for how long a handler runs, in ns."""
        self.clock = clock
        self.mutes = mutes
        self.timer = timer
        self.produce = RateQuota(windows)
        self.fetch = RateQuota(windows)
        self.request = RateQuota(windows, windows.ms)
        self.mutations = MutationQuota(controller_windows)
        self.addresses = AddressLimits({})
        self._connections: Buckets[Rate] = Buckets(windows, Rate)
        self._held_back: set[asyncio.Future[None]] = set()
        self._is_closed = False

    def connected(self, node_id: int, host: str) -> int:
        """How long a connection from there is to be left unserved, in ms, before it is closed; 0: it is served."""
        limit = self.addresses.find(host)
        if limit is None:
            return 0
        now_ms = self.clock.now_ms()
        rate = self._connections.at(node_id, limit, now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit.rate, now_ms), self._connections.windows.ms)
        if wait_ms:
            rate.record(-1, now_ms)  # it does not count, not being served
        return wait_ms

    def forget(self, node_id: int) -> None:
        """A node has stopped."""
        for buckets in (self.produce.buckets, self.fetch.buckets, self.request.buckets, self.mutations.buckets):
            buckets.forget(node_id)
        self._connections.forget(node_id)

    def hold_back(self, until_ms: int, loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Future[None], Timer]:
        """What an answer waits for that is late by a quota."""
        over: asyncio.Future[None] = loop.create_future()
        if self._is_closed:
            over.set_result(None)
        self._held_back.add(over)
        over.add_done_callback(self._held_back.discard)
        return over, self.clock.call_at(until_ms, wake, over)

    @property
    def held_back(self) -> int:
        """How many answers wait."""
        return len(self._held_back)

    def close(self) -> None:
        """Ends every wait."""
        self._is_closed = True
        for over in list(self._held_back):
            wake(over)


handler_ns: Callable[[], int] = time.perf_counter_ns
"""The default of `timer`."""
