"""Usage measurements of a broker while it has quotas, and the resulting throttle times.

Owns the measurements of each node, created on first use and dropped after an hour without use; clients without a limit
are not measured. Uses the broker's clock, which tests can move, for rates and for muting. `meter.py` decides what a
request is charged.
"""

from __future__ import annotations

import asyncio
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
    """The measurements for one quota key, by node and bucket."""

    def __init__(self, windows: Windows, kind: Callable[[Windows], M]) -> None:
        self.windows = windows
        self._kind = kind
        self._found: dict[tuple[int, tuple[str, str]], M] = {}
        self._used_ms: dict[tuple[int, tuple[str, str]], int] = {}
        self._swept_ms = 0

    def at(self, node_id: int, limit: Limit, now_ms: int) -> M:
        """Returns the measurement for the clients that share a limit."""
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
        """Drops the measurements of a node that stopped."""
        for key in [key for key in self._found if key[0] == node_id]:
            del self._found[key], self._used_ms[key]


class RateQuota:
    """A quota per second for users and client ids; throttle times are at most `most_ms`."""

    def __init__(self, windows: Windows, most_ms: int | None = None) -> None:
        self.limits = ClientLimits({})
        self.buckets: Buckets[Rate] = Buckets(windows, Rate)
        self._most_ms = most_ms

    def record(self, node_id: int, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Records a value and returns the throttle time in ms."""
        limit = self.limits.find(user, client_id)
        if limit is None:
            return 0
        rate = self.buckets.at(node_id, limit, now_ms)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(limit.rate, now_ms)
        return wait_ms if self._most_ms is None else min(wait_ms, self._most_ms)

    def add(self, node_id: int, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Records a value that counts for later requests; a negative value corrects an earlier one."""
        limit = self.limits.find(user, client_id)
        if limit is not None:
            self.buckets.at(node_id, limit, now_ms).record(value, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """Returns the most that a single request can use within the quota, or None for no limit."""
        limit = self.limits.find(user, client_id)
        if limit is None or not limit.rate > 0:
            return None
        windows = self.buckets.windows
        return limit.rate * (windows.samples - 1) * windows.ms / 1000


class MutationQuota:
    """A quota of partition creations and deletions per second for users and client ids."""

    def __init__(self, windows: Windows) -> None:
        self.limits = ClientLimits({})
        self.buckets: Buckets[TokenBucket] = Buckets(windows, TokenBucket)

    def take(
        self, node_id: int, user: str, client_id: str, count: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Takes `count` tokens; returns (whether the request is refused, wait in ms).

        With `strict` nothing is taken if the bucket is already negative, and a request that makes it negative does not
        wait. With a rate of 0, `strict` refuses every request once the bucket is negative, without a wait.
        """
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
    """All measurements of a broker, and the delayed responses."""

    def __init__(
        self, clock: Clock, windows: Windows, controller_windows: Windows, *, mutes: bool, timer: Callable[[], int]
    ) -> None:
        """`timer` is the clock of handler times, in ns."""
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
        """Returns the time in ms that a new connection from `host` is left unserved before it is closed; 0 if it is
        served.
        """
        limit = self.addresses.find(host)
        if limit is None:
            return 0
        now_ms = self.clock.now_ms()
        rate = self._connections.at(node_id, limit, now_ms)
        rate.record(1, now_ms)
        wait_ms = min(rate.throttle_ms(limit.rate, now_ms), self._connections.windows.ms)
        if wait_ms:
            rate.record(-1, now_ms)  # a connection that is not served does not count
        return wait_ms

    def forget(self, node_id: int) -> None:
        quotas = self.produce, self.fetch, self.request, self.mutations
        for buckets in (*(quota.buckets for quota in quotas), self._connections):
            buckets.forget(node_id)

    def hold_back(self, until_ms: int) -> tuple[asyncio.Future[None], Timer]:
        """Returns a future for a delayed response, and the timer that completes it."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            over.set_result(None)
        self._held_back.add(over)
        over.add_done_callback(self._held_back.discard)
        return over, self.clock.call_at(until_ms, wake, over)

    def close(self) -> None:
        """Sends all delayed responses now."""
        self._is_closed = True
        for over in list(self._held_back):
            wake(over)
