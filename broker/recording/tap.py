"""Who listens to what clients ask and are answered, and the telling of it.

Owns the numbers of connections and exchanges, and the copying of bytes: once per request and once per answer, whoever
listens; of large frames there is no copy for those who read them where they lie. Where nobody listens there is no tap
at all (`Connections.tap` is None), and a request costs that one question.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ..logs import get_logger
from .exchange import HEAD_BYTES, Ending, Exchange, Peer, client_id_of

if TYPE_CHECKING:
    from ..connection_info import Arrival
    from .exchange import Sink

_unpack_head = struct.Struct(">hhih").unpack_from
_PRODUCE = int(ApiKey.PRODUCE)
_ANSWERED = Ending.ANSWERED  # looking it up in the enum takes longer than the rest of its line


class Tap:
    """All who listen, and the connections that they know of."""

    def __init__(self) -> None:
        self._sinks: tuple[Sink, ...] = ()
        self._limits: dict[int, int | None] = {}
        self._failures: dict[int, Callable[[], None]] = {}
        self._kept_max: int | None = None  # bytes of the largest frame that somebody wants
        self._peers: dict[int, Peer] = {}
        self._last_exchange = 0

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._sinks)

    def add(
        self,
        sink: Sink,
        frame_bytes_max: int | None = None,
        *,
        failed: Callable[[], None] | None = None,
    ) -> None:
        """Adds a subscriber. A frame above the `frame_bytes_max` of all subscribers is not copied; None wants all
        frames. `failed` is called when the subscriber raised, which ends its subscription.

        Replays `opened` for live connections; from then on receives every exchange, including the end of ones already
        running.
        """
        self._sinks = (*self._sinks, sink)
        self._limits[id(sink)] = frame_bytes_max
        if failed is not None:
            self._failures[id(sink)] = failed
        self._count_limits()
        for peer in list(self._peers.values()):
            self._tell(sink, "opened", peer)

    def remove(self, sink: Sink) -> None:
        """One listens no more; harmless for one that does not."""
        self._sinks = tuple(one for one in self._sinks if one is not sink)
        self._limits.pop(id(sink), None)
        self._failures.pop(id(sink), None)
        self._count_limits()

    def _count_limits(self) -> None:
        limits = [limit for limit in self._limits.values() if limit is not None]
        self._kept_max = max(limits, default=0) if len(limits) == len(self._limits) else None

    # What connections tell

    def opened(self, number: int, arrival: Arrival, local_port: int, opened_ms: int) -> Peer:
        """A connection is there, or is heard of for the first time."""
        peer = Peer(
            number,
            arrival.node_id,
            arrival.listener,
            arrival.local_host,
            local_port,
            arrival.client_host,
            arrival.client_port,
            opened_ms,
            arrival.origin,
        )
        self._peers[peer.number] = peer
        for sink in self._sinks:
            self._tell(sink, "opened", peer)
        return peer

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        self._peers.pop(peer.number, None)
        for sink in self._sinks:
            self._tell(sink, "closed", peer)

    def begun(self, peer: Peer, frame: memoryview, now_ms: int) -> Exchange:
        """A request came, in a buffer that will be somebody else's."""
        number = self._last_exchange = self._last_exchange + 1
        size = len(frame)
        data = bytes(frame) if self._kept_max is None or size <= self._kept_max else None
        if size >= HEAD_BYTES:
            key, version, correlation_id, length = _unpack_head(frame)
            client_id = client_id_of(frame, key, version, length)
            exchange = Exchange(
                number, peer, now_ms, perf_counter_ns(), key, version, correlation_id, client_id, data, size
            )
            if data is None and key == _PRODUCE:
                from .produce_facts import facts_of  # with much that a broker to which nobody listens does without

                exchange.produced = facts_of(frame)
        else:
            exchange = Exchange(number, peer, now_ms, perf_counter_ns(), -1, -1, -1, None, data, size)
        for sink in self._sinks:
            try:
                sink.begun(exchange)
            except Exception:
                self._failed(sink)
        return exchange

    def answered(self, exchange: Exchange, parts: Sequence[Any]) -> None:
        """Its answer leaves, in these pieces; none where none is due."""
        exchange.duration_ns = perf_counter_ns() - exchange.begun_ns
        if parts:
            size = exchange.response_bytes = sum(map(len, parts))
            if self._kept_max is None or size <= self._kept_max:
                exchange.response = b"".join(parts)
            exchange.ending = _ANSWERED
        else:
            exchange.ending = Ending.SILENT
        for sink in self._sinks:
            try:
                sink.ended(exchange)
            except Exception:
                self._failed(sink)

    def lost(self, exchange: Exchange, reason: str, sent: bytes = b"") -> None:
        """The connection is closed for it or under it; `sent` is what left of the answer."""
        if sent:
            exchange.response, exchange.response_bytes = sent, len(sent)
        exchange.duration_ns = perf_counter_ns() - exchange.begun_ns
        exchange.reason = reason
        exchange.ending = Ending.CLOSED
        for sink in self._sinks:
            try:
                sink.ended(exchange)
            except Exception:
                self._failed(sink)

    def _tell(self, sink: Sink, name: str, peer: Peer) -> None:
        try:
            getattr(sink, name)(peer)
        except Exception:
            self._failed(sink)

    def _failed(self, sink: Sink) -> None:
        """Whoever listens does no harm to those who are heard."""
        get_logger().exception("somebody who listened failed, and is told no more", sink=type(sink).__name__)
        failed = self._failures.get(id(sink))
        self.remove(sink)
        if failed is not None:
            failed()
