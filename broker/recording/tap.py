"""Fans out requests, responses and connections to subscribers: the ring, the recorder, tests.

Numbers the connections' exchanges, and copies the bytes of a request and of a response once, however many subscribers
there are. Without subscribers `Connections.tap` is None, and a request costs that one check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ...protocol.named import NamedTuple
from ..logs import get_logger
from ..security.authorizer import ANONYMOUS
from .exchange import Ending, Exchange, Peer, Sink, exchange_of

if TYPE_CHECKING:
    from ..connection_info import ConnectionInfo

PRINCIPAL_MAX = 256
_PRODUCE = int(ApiKey.PRODUCE)
_RESPONDED = Ending.RESPONDED  # looking it up in the enum takes longer than the rest of its line


class _Subscription(NamedTuple):
    sink: Sink
    frame_bytes_max: int | None
    failed: Callable[[], None] | None


class Tap:
    """The subscribers, and the connections that were reported to them."""

    def __init__(self) -> None:
        self._subscriptions: list[_Subscription] = []
        self._sinks: tuple[Sink, ...] = ()
        self._kept_max: int | None = None  # bytes of the largest frame that a subscriber wants
        self._peers: dict[int, Peer] = {}
        self._last_exchange = 0

    @property
    def has_subscribers(self) -> bool:
        """Whether there are subscribers."""
        return bool(self._sinks)

    def add(
        self,
        sink: Sink,
        frame_bytes_max: int | None = None,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Adds a subscriber. Exchanges keep no frame above the `frame_bytes_max` of all subscribers; None wants all
        frames. `failed` is called when the subscriber raised, which ends its subscription.

        Replays `opened` for live connections; from then on the subscriber receives every exchange, including the end of
        those that run already.
        """
        self._subscribe([*self._subscriptions, _Subscription(sink, frame_bytes_max, failed)])
        for peer in list(self._peers.values()):
            self._report("opened", peer, (sink,))

    def remove(self, sink: Sink) -> None:
        """Ends the subscription of a sink; does nothing if it has none."""
        self._subscribe([one for one in self._subscriptions if one.sink is not sink])

    def _subscribe(self, subscriptions: list[_Subscription]) -> None:
        self._subscriptions = subscriptions
        self._sinks = tuple(one.sink for one in subscriptions)
        limits = [one.frame_bytes_max for one in subscriptions if one.frame_bytes_max is not None]
        self._kept_max = max(limits, default=0) if len(limits) == len(subscriptions) else None

    def opened(self, number: int, connection_info: ConnectionInfo, local_port: int, opened_ms: int) -> Peer:
        """Reports a connection when it opens, or at its first request while there are subscribers."""
        peer = Peer(
            number,
            connection_info.node_id,
            connection_info.listener,
            connection_info.local_host,
            local_port,
            connection_info.client_host,
            connection_info.client_port,
            opened_ms,
            connection_info.library,
        )
        self._peers[number] = peer
        self._report("opened", peer, self._sinks)
        return peer

    def closed(self, peer: Peer) -> None:
        """Reports the end of a connection."""
        self._peers.pop(peer.number, None)
        self._report("closed", peer, self._sinks)

    def begun(self, peer: Peer, frame: memoryview, now_ms: int, principal: str = ANONYMOUS) -> Exchange:
        """Reports a request. Copies the frame if a subscriber wants it: its buffer is used again afterwards."""
        number = self._last_exchange = self._last_exchange + 1
        if self._kept_max is None or len(frame) <= self._kept_max:
            exchange = exchange_of(number, peer, now_ms, perf_counter_ns(), bytes(frame))
        else:
            exchange = exchange_of(number, peer, now_ms, perf_counter_ns(), frame)
            if exchange.api_key == _PRODUCE and self._kept_max:
                from .decoding import produced_by  # not at the top: only needed with subscribers

                exchange.produced = produced_by(frame)
        exchange.principal = principal if len(principal) <= PRINCIPAL_MAX else principal[:PRINCIPAL_MAX]
        for sink in self._sinks:
            try:
                sink.begun(exchange, frame)
            except Exception:
                self._failed(sink)
        return exchange

    def responded(self, exchange: Exchange, parts: Sequence[Any]) -> None:
        """Reports a response that is sent in these pieces. No pieces: no response is due."""
        if parts:
            size = exchange.response_bytes = sum(map(len, parts))
            if self._kept_max is None or size <= self._kept_max:
                exchange.response = b"".join(parts)
            self._ended(exchange, _RESPONDED, parts)
        else:
            self._ended(exchange, Ending.SILENT, ())

    def lost(self, exchange: Exchange, reason: str, sent: bytes = b"") -> None:
        """Reports that the connection was closed instead of a response; `sent` is the part of the response that was
        sent."""
        if sent:
            exchange.response, exchange.response_bytes = sent, len(sent)
        exchange.reason = reason
        self._ended(exchange, Ending.CLOSED, (sent,) if sent else ())

    def _ended(self, exchange: Exchange, ending: Ending, parts: Sequence[Any]) -> None:
        exchange.duration_ns = perf_counter_ns() - exchange.begun_ns
        exchange.ending = ending
        for sink in self._sinks:
            try:
                sink.ended(exchange, parts)
            except Exception:
                self._failed(sink)

    def _report(self, event: str, peer: Peer, sinks: Sequence[Sink]) -> None:
        for sink in sinks:
            try:
                getattr(sink, event)(peer)
            except Exception:
                self._failed(sink)

    def _failed(self, sink: Sink) -> None:
        """Unsubscribes a sink that raised, so that it harms neither clients nor other subscribers."""
        get_logger().exception("subscriber of requests raised; unsubscribed", sink=type(sink).__name__)
        callbacks = [one.failed for one in self._subscriptions if one.sink is sink and one.failed is not None]
        self.remove(sink)
        for failed in callbacks:
            failed()
