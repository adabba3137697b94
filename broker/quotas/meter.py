"""What one request is charged, and what follows: a throttle time in the answer, and a connection that is not heard.

Drives the handler's coroutine from the outside, so that its own time on the loop is known. Produce is charged for the
bytes of the request, Fetch for those of the answer (its handler asks, since a throttled answer is empty), all for the
time of their handlers. KIP-124, KIP-219, KIP-599.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, ProtocolViolation
from ...protocol.limits import INT32_MAX
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.messages.records.produce import ProduceRequest
from ..errors import Refused
from ..network.cooperative import TimedTurns

if TYPE_CHECKING:
    import asyncio

    from ..clock import Timer
    from ..context import RequestContext
    from ..network.cooperative import Turns
    from .throttle import Throttle

PERCENT_OF_NS = 100 / 1e9  # of one second of one thread


class Meter:
    """One request's. In the place of the handler's coroutine: it is sent to and closed like one.

    `throttle_ms` is what the client is told; from `send`'s end on `until_ms` is until when its connection is not heard,
    None if nothing keeps it from being.
    """

    __slots__ = (
        "_begun_ns",
        "_client_id",
        "_context",
        "_inner",
        "_is_charged",
        "_is_exempt",
        "_mutated_ms",
        "_mutation_throttle_ms",
        "_node_id",
        "_over",
        "_request",
        "_response",
        "_size",
        "_spent_ns",
        "_throttle",
        "_timer",
        "_user",
        "throttle_ms",
        "until_ms",
    )

    def __init__(self, throttle: Throttle, context: RequestContext, request: Any, size: int) -> None:
        """`size` is that of the whole request, without its length."""
        self._throttle = throttle
        self._context = context
        self._node_id = context.node_id
        self._user = context.principal.partition(":")[2]
        self._client_id = context.client_id or ""
        self._request = request
        self._size = size
        self._spent_ns = 0
        self._begun_ns: int | None = None
        self._is_charged = False
        self._is_exempt = _is_of_replica(request)
        self._mutation_throttle_ms = 0
        self._mutated_ms = 0
        self._response: Any = None
        self._over: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        self._inner: Coroutine[Any, Any, Any] | None = None
        self.throttle_ms = 0
        self.until_ms: int | None = None

    def drive(self, coroutine: Coroutine[Any, Any, Any]) -> Meter:
        """Takes the handler's coroutine; itself."""
        self._inner = coroutine
        return self

    @property
    def is_late(self) -> bool:
        """Whether answers come late, rather than connections being mute."""
        return not self._throttle.mutes

    @property
    def timer(self) -> Callable[[], int]:
        """What tells how long something takes, in ns."""
        return self._throttle.timer

    @property
    def mutes(self) -> Sequence[Callable[[Callable[[], object]], Timer]]:
        """What keeps the connection from being heard, as a call has it."""
        if self.until_ms is None or self.is_late:
            return ()
        return (partial(self._throttle.clock.call_at, self.until_ms),)

    # As a coroutine

    def send(self, value: Any) -> Any:
        """One step. Raises StopIteration with the response, and what the handler raises."""
        if self._timer is not None:
            raise StopIteration(self._response)
        assert self._inner is not None
        self._begun_ns = self._throttle.timer()
        try:
            return self._inner.send(value)
        except StopIteration as stop:
            self._stepped()
            self._response = stop.value
            self._charge()
        except ProtocolViolation:
            raise
        except Exception:
            self._stepped()
            self._charge()  # the refusal comes at once, also where others come late
            raise
        finally:
            self._stepped()
        if self.throttle_ms and self._response is not None and hasattr(self._response, "throttle_time_ms"):
            self._response.throttle_time_ms = max(self._response.throttle_time_ms, self.throttle_ms)
        if self.until_ms is not None and self.is_late:
            self._over, self._timer = self._throttle.hold_back(self.until_ms, self._context.broker.loop)
            self.until_ms = None
            return self._over
        raise StopIteration(self._response)

    def close(self) -> None:
        """The connection is gone."""
        if self._over is not None and self._timer is not None:
            self._timer.cancel()
            self._over.cancel()
        if self._inner is not None:
            self._inner.close()

    def _stepped(self) -> None:
        if self._begun_ns is not None:
            self._spent_ns += self._throttle.timer() - self._begun_ns
            self._begun_ns = None

    # Charging

    def _charge(self) -> None:
        """When the handler has ended: what it was, and how long."""
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
        """What it took besides to read the request and to write the answer, for which nobody waits."""
        if self._is_charged and not self._is_exempt:
            percent, now_ms = ns * PERCENT_OF_NS, self._throttle.clock.now_ms()
            self._throttle.request.add(self._node_id, self._user, self._client_id, percent, now_ms)

    # What handlers ask

    def timed(self, turns: Turns) -> TimedTurns:
        """Turns that are charged: of work that the handler waits for, and does not do in its own coroutine."""
        return TimedTurns(turns, self._throttle.timer, self._worked)

    def _worked(self, ns: int) -> None:
        if self._is_charged:
            self.add_time(ns)
        else:
            self._spent_ns += ns

    def fetch_bytes_max(self) -> int | None:
        """What a Fetch may answer at most: more would always be too much. None for no limit."""
        if self._is_exempt:
            return None
        most = self._throttle.fetch.most_at_once(self._user, self._client_id)
        return None if most is None else int(min(most, INT32_MAX))

    def has_fetched(self, size: Callable[[], int]) -> bool:
        """Charges a Fetch for an answer of so many bytes; True: it is to be empty, and is charged nothing."""
        if self._is_exempt:
            return False
        self._stepped()
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

    def mutated(self, partitions: int, *, strict: bool, tells: bool) -> None:
        """Partitions are about to be created or deleted, by the controller; `strict` raises Refused where that is too
        much, and `tells` has the answer tell how long to wait."""
        now_ms = self._throttle.clock.now_ms()
        controller = self._context.broker.nodes.controller
        is_refused, wait_ms = self._throttle.mutations.take(
            controller, self._user, self._client_id, partitions, now_ms, strict=strict
        )
        if wait_ms and tells:
            self._mutation_throttle_ms, self._mutated_ms = wait_ms, now_ms
        if is_refused:
            raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, wordless=True)


def _is_of_replica(request: Any) -> bool:
    """Whether another broker fetches: it has quotas of its own."""
    return isinstance(request, FetchRequest) and max(request.replica_id, request.replica_state.replica_id) >= 0
