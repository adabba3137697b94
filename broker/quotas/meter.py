"""Charges one request to the quotas of its client, which gives the throttle time of the response and mutes the
connection.

Produce is charged for the bytes of the request, Fetch for those of the response (its handler calls `has_fetched`, since
a throttled response is empty), all requests for the time of their handlers, which metered_runner.py measures. KIP-124,
KIP-219, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.messages.records.produce import ProduceRequest
from ..cooperative import TimedScheduler
from ..errors import Refused

if TYPE_CHECKING:
    import asyncio

    from ..clock import Timer
    from ..cooperative import CooperativeScheduler
    from .throttle import Throttle

PERCENT_OF_NS = 100 / 1e9  # percent of one thread, over one second


class Meter:
    """The charges of one request.

    After `charge`, `throttle_ms` is the throttle time of the response, and `until_ms` the time until which its
    connection is muted or the response is held back; None if it is not.
    """

    __slots__ = (
        "_begun_ns",
        "_client_id",
        "_is_charged",
        "_is_exempt",
        "_mutated_ms",
        "_mutation_throttle_ms",
        "_node_id",
        "_request",
        "_size",
        "_spent_ns",
        "_throttle",
        "_user",
        "throttle_ms",
        "until_ms",
    )

    def __init__(
        self, throttle: Throttle, node_id: int, principal: str, client_id: str, request: Any, size: int
    ) -> None:
        """`size` is the size of the request in bytes, without its length prefix."""
        self._throttle = throttle
        self._node_id = node_id
        self._user = principal.partition(":")[2]
        self._client_id = client_id or ""
        self._request = request
        self._size = size
        self._spent_ns = 0
        self._begun_ns: int | None = None
        self._is_charged = False
        self._is_exempt = _is_of_replica(request)
        self._mutation_throttle_ms = 0
        self._mutated_ms = 0
        self.throttle_ms = 0
        self.until_ms: int | None = None

    @property
    def is_late(self) -> bool:
        """Whether responses are delayed instead of muting the connection (releases without KIP-219)."""
        return not self._throttle.mutes

    @property
    def timer(self) -> Callable[[], int]:
        """Clock of the handler time, in ns."""
        return self._throttle.timer

    @property
    def mutes(self) -> Sequence[Callable[[Callable[[], object]], Timer]]:
        """Timers that unmute the connection, as functions that take the callback."""
        if self.until_ms is None or self.is_late:
            return ()
        return (partial(self._throttle.clock.call_at, self.until_ms),)

    # --- steps of the handler

    def begin_step(self) -> None:
        self._begun_ns = self._throttle.timer()

    def end_step(self) -> None:
        """Ends the measurement of `begin_step`; does nothing if there is none."""
        if self._begun_ns is not None:
            self._spent_ns += self._throttle.timer() - self._begun_ns
            self._begun_ns = None

    def hold_back(self) -> tuple[asyncio.Future[None], Timer] | None:
        """Returns the future that a delayed response waits for, and its timer; None if the response is sent at once."""
        if self.until_ms is None or not self.is_late:
            return None
        until_ms, self.until_ms = self.until_ms, None
        return self._throttle.hold_back(until_ms)

    # --- charging

    def charge(self) -> None:
        """Charges the request after its handler has returned or raised, and sets `throttle_ms` and `until_ms`."""
        if self._is_charged:
            self.add_time(self._spent_ns)
            return
        now_ms = self._throttle.clock.now_ms()
        waits_ms = [max(0, self._mutated_ms + self._mutation_throttle_ms - now_ms)]
        if isinstance(self._request, ProduceRequest):
            produce = self._throttle.produce
            waits_ms.append(produce.record(self._node_id, self._user, self._client_id, self._size, now_ms))
            self._is_exempt = self._request.acks == 0
        if not self._is_exempt:
            waits_ms.append(self._charge_time(now_ms))
        self._throttled(max(waits_ms), now_ms)

    def _charge_time(self, now_ms: int) -> int:
        percent = self._spent_ns * PERCENT_OF_NS
        return self._throttle.request.record(self._node_id, self._user, self._client_id, percent, now_ms)

    def _throttled(self, wait_ms: int, now_ms: int) -> None:
        self._is_charged = True
        if wait_ms > 0:
            self.throttle_ms = wait_ms
            self.until_ms = now_ms + wait_ms

    def add_time(self, ns: int) -> None:
        """Charges time for parsing the request and building its response. It counts for later requests only."""
        if self._is_charged and not self._is_exempt:
            percent, now_ms = ns * PERCENT_OF_NS, self._throttle.clock.now_ms()
            self._throttle.request.add(self._node_id, self._user, self._client_id, percent, now_ms)

    # --- called by handlers

    def timed(self, scheduler: CooperativeScheduler) -> TimedScheduler:
        """Returns a scheduler that charges the work which the handler awaits but does not run in its own coroutine."""
        return TimedScheduler(scheduler, self._throttle.timer, self._worked)

    def _worked(self, ns: int) -> None:
        if self._is_charged:
            self.add_time(ns)
        else:
            self._spent_ns += ns

    def fetch_bytes_max(self) -> int | None:
        """Returns the largest size of a Fetch response that can be within the quota, or None for no limit."""
        if self._is_exempt:
            return None
        most = self._throttle.fetch.most_at_once(self._user, self._client_id)
        return None if most is None else int(min(most, INT32_MAX))

    def has_fetched(self, size: Callable[[], int]) -> bool:
        """Charges a Fetch for the bytes of its response. Returns True if the response must be empty; its bytes are not
        charged then.
        """
        if self._is_exempt:
            return False
        self.end_step()
        throttle, now_ms, who = self._throttle, self._throttle.clock.now_ms(), (self._user, self._client_id)
        wait_ms = self._charge_time(now_ms)
        has_limit = throttle.fetch.limits.find(*who) is not None
        bytes_sent = size() if has_limit else 0
        if has_limit:
            wait_ms = max(wait_ms, throttle.fetch.record(self._node_id, *who, bytes_sent, now_ms))
        self._throttled(wait_ms, now_ms)
        self._spent_ns, self._begun_ns = 0, throttle.timer()
        if wait_ms <= 0 or self.is_late:
            return False
        if has_limit:
            throttle.fetch.add(self._node_id, *who, -bytes_sent, now_ms)
        return True

    def mutated(self, controller: int, partitions: int, *, strict: bool, reports_wait: bool) -> None:
        """Charges the creation or deletion of partitions by the controller, the node of that id.

        Raises Refused with `strict` if the quota is exceeded. `reports_wait` puts the wait into the response's throttle
        time.
        """
        now_ms = self._throttle.clock.now_ms()
        is_refused, wait_ms = self._throttle.mutations.take(
            controller, self._user, self._client_id, partitions, now_ms, strict=strict
        )
        if wait_ms and reports_wait:
            self._mutation_throttle_ms, self._mutated_ms = wait_ms, now_ms
        if is_refused:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, wordless=True)


def _is_of_replica(request: Any) -> bool:
    """Whether another broker sent the request; replication has its own quotas."""
    return isinstance(request, FetchRequest) and max(request.replica_id, request.replica_state.replica_id) >= 0
