"""One client connection on the event loop: the socket's bytes, the handler under way, and the responses.

Owns reading, back-pressure and the runner of the request under way (request_runner.py), which has no task: nearly all
handlers return at their first step, so their responses leave with the read event that brought the requests. One that
waits is resumed by the future it waits for, and the next request of the connection begins after its response, as in
Kafka, which mutes a connection's channel until the response is sent (KafkaChannel.mute): a ListOffsets after a
DeleteRecords or a delayed Fetch sees what these did. Reading stops while the peer does not take its responses, or has
sent a request after one that waits, so that a slow reader costs the memory of its socket and no more.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import select
import time
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...protocol.api_key import ApiKey
from ...protocol.connection import BufferPool, FrameReceiver, add_response, write_pieces
from ...protocol.errors import ProtocolViolation
from ..connection_info import ConnectionInfo
from ..logs import get_logger, handling, levels
from ..recording.tap import Tap
from .admission import Admission, IdleWatch, Verdict
from .plain_turn import Failed, PlainTurn
from .repeated import RepeatedRequests
from .request_log import note_request
from .request_runner import HandlerRunner, Mutes, RequestRunner, failure
from .router import call

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..clock import Timer
    from ..metrics.counters import RequestMetrics
    from ..recording.exchange import Exchange, Peer, Sink
    from ..security.sasl.logins import Logins
    from ..security.sasl.session import SaslSession
    from ..security.tls import TlsListener
    from .plain_produce import PlainProduce


SEND_BYTES = 256 * 1024  # responses of one read event are joined up to this size, and then sent
WAITING_BYTES = 4096  # of a request that may wait for those of other connections: it is copied
# Outcomes of authentications, which are counted by the names of Kafka's Selector.
SUCCESSFUL, FAILED = "successful_authentication", "failed_authentication"
RENEWED, NOT_RENEWED = "successful_reauthentication", "failed_reauthentication"
EXPIRED = "expired_connections_killed"


class Connections:
    """The open connections of a broker, and the objects that they share."""

    def __init__(self, broker: BrokerState, logins: Logins | None = None) -> None:
        """`logins` are those of the listeners with SASL; None where no listener has it."""
        self.pool = BufferPool()
        self.turn = PlainTurn(lambda: self.broker.clock.now_ms())
        self.logins = logins
        self.open: set[ClientConnection] = set()
        self.admissions: dict[int, Admission] = {}
        self.idle_watch = IdleWatch(broker.waits, -1, self.open)
        self.metrics: RequestMetrics | None = None
        """Counts requests and connections; None while metrics are off. Kept when a new state is attached."""
        self.timer: Callable[[], int] = time.perf_counter_ns
        self.handling, self.levels = handling(), levels()
        self.attach(broker)
        self.stopping = False
        self.numbers = itertools.count(1)
        """Numbers of connections, in the order in which they were accepted."""
        self.idle: asyncio.Future[None] | None = None
        self.tap: Tap | None = None
        """Reports requests and responses to subscribers; None without subscribers. Kept when a new state is
        attached.
        """
        self.own_tap = Tap()
        """The tap, with or without subscribers."""

    @property
    def allows_short_way(self) -> bool:
        """Whether requests may take the short ways of plain_produce.py and repeated.py: nothing has to see or delay
        each of them.
        """
        broker = self.broker
        return (
            self.tap is None
            and broker.quotas.throttle is None
            and (broker.faults is None or not broker.faults.requests)
            and not self.levels.logs_requests
        )

    def listen(self, sink: Sink, frame_bytes_max: int | None = None, **more: Any) -> None:
        """Subscribes `sink` to requests and responses. Frames above `frame_bytes_max` are left out, see `Tap.add`."""
        self.own_tap.add(sink, frame_bytes_max, **more)
        self.tap = self.own_tap

    def unlisten(self, sink: Sink) -> None:
        """Ends a subscription."""
        self.own_tap.remove(sink)
        if not self.own_tap.has_subscribers:
            self.tap = None

    def attach(self, broker: BrokerState) -> None:
        """Serves new connections with `broker`. All connections of an earlier state must be closed."""
        self._stop_watching()
        self.turn.put_back()
        self.broker = broker
        self.admissions = {node_id: Admission(broker.config.of(node_id), broker.clock) for node_id in broker.nodes.ids}
        listeners = [(node_id, one) for node_id in broker.nodes.ids for one in broker.options.listeners]
        if self.logins is not None:
            self.logins.attach(broker.waits, broker.config, listeners)
        self.tls: dict[tuple[int, str], TlsListener] = {}
        """The listeners with TLS, by node and name."""
        if any(one.has_tls for one in broker.options.listeners):
            from ..security.tls import TlsListener  # few brokers have one, and OpenSSL takes time to load

            for node_id, listener in listeners:
                if listener.has_tls:
                    self.tls[node_id, listener.name] = TlsListener(broker.config.of(node_id), listener)
        self.idle_watch = IdleWatch(broker.waits, broker.config["connections.max.idle.ms"], self.open)
        broker.on_reconfigured = self._keep_limits
        broker.topic_metrics = None if self.metrics is None else self.metrics.topics

    def observe(self, metrics: RequestMetrics | None) -> None:
        """Switches metrics on, or off with None."""
        self.metrics = metrics
        self.timer = time.perf_counter_ns if metrics is None else metrics.timer
        self.broker.topic_metrics = None if metrics is None else metrics.topics

    def _stop_watching(self) -> None:
        self.idle_watch.close()
        if self.logins is not None:
            self.logins.detach()
        for admission in self.admissions.values():
            admission.close()

    def _keep_limits(self) -> None:
        """Admits the connections for which a changed limit makes room, or closes those above it."""
        with self.handling.aside():  # in the middle of the request that changed it
            for node_id, admission in self.admissions.items():
                admission.admit_held()
                if admission.excess:
                    served = (one for one in self.open if one.node_id == node_id and one.is_served)
                    for connection in heapq.nsmallest(admission.excess, served, key=attrgetter("last_active_ms")):
                        connection.make_room()

    def factory(self, listener: str, node_id: int) -> asyncio.BufferedProtocol:
        """Creates the protocol object for an accepted socket; the event loop calls it."""
        connection = ClientConnection(self, listener, node_id)
        tls = self.tls.get((node_id, listener)) if self.tls else None
        if tls is None:
            return connection
        from .encryption import Encryption  # few brokers have such a listener

        return Encryption(connection, self.broker, tls)

    def cut(self, node_id: int | None = None, listener: str | None = None) -> None:
        """Aborts open connections: of a node, of a listener, of both, or all of them."""
        for connection in list(self.open):
            if node_id in (None, connection.node_id) and listener in (None, connection.listener):
                connection.abort()

    async def drain(self, seconds: float) -> None:
        """Stops accepting requests. Returns when all requests in flight have a response or the time is over."""
        if self.turn.is_current:
            self.turn.finish()
        self.stopping = True
        self._stop_watching()
        for connection in list(self.open):
            connection.stop()
        if self.open:
            self.idle = self.broker.loop.create_future()
            await asyncio.wait([self.idle], timeout=seconds)
        for connection in list(self.open):
            connection.abort()

    def closed(self, connection: ClientConnection) -> None:
        self.open.discard(connection)
        if not self.open and self.idle is not None and not self.idle.done():
            self.idle.set_result(None)


class _Running:
    """A request whose handler waits. `seen` is its exchange for subscribers, or None without subscribers."""

    __slots__ = ("begun_ns", "closed", "connection", "request_bytes", "runner", "seen", "shared")

    def __init__(
        self,
        connection: ClientConnection,
        runner: RequestRunner,
        seen: Exchange | None,
        begun_ns: int,
        request_bytes: int,
    ) -> None:
        self.connection = connection
        self.shared = connection.shared
        self.runner = runner
        self.seen = seen
        self.begun_ns = begun_ns  # -1 without metrics and request log
        self.request_bytes = request_bytes
        self.closed = False

    def wait_for(self, future: asyncio.Future[Any]) -> None:
        self.note_fault()
        future.add_done_callback(self.step)

    def step(self, _future: asyncio.Future[Any]) -> None:
        if self.closed:
            return
        handling = self.shared.handling
        handling.connection, handling.call = self.connection, self.runner
        try:
            try:
                future = self.runner.resume()
                if future is None and self.runner.is_large:
                    future = self._begin_building()
            except Exception as error:
                self.connection.returned(self, error)
            else:
                if future is None:
                    self.connection.returned(self)
                else:
                    self.wait_for(future)
        except Exception as error:
            self.connection.broke(error)
        finally:
            handling.connection = handling.call = None

    def _begin_building(self) -> asyncio.Future[Any] | None:
        from .large_requests import LargeResponseRunner  # few responses need it

        self.runner = self.shared.handling.call = LargeResponseRunner(self.runner)
        return self.runner.start(self.connection)

    def note_fault(self) -> None:
        """Adds the rules of fault injection that fired so far to the exchange."""
        if self.seen is not None and (fault := self.runner.fault) is not None:
            self.seen.fault = fault

    def note(self, parts: list[Any], error: Exception | None) -> None:
        if self.begun_ns >= 0:
            note_request(self.shared, self.runner, self.request_bytes, self.begun_ns, parts, error)

    def close(self) -> None:
        self.closed = True
        self.runner.close()
        self.runner.context.end_steps()


def _host(address: Any) -> str:
    """The host of a socket's address. An IPv4 client of a dual-stack socket is shown as an IPv4 address."""
    host = address[0] if address else ""
    return host.removeprefix("::ffff:") if "." in host else host


def _port(address: Any) -> int:
    return address[1] if address else -1


class ClientConnection(asyncio.BufferedProtocol):
    """One client connection, as a protocol of the event loop."""

    __slots__ = (
        "_holds",
        "_logins",
        "_mutes",
        "_opened_ms",
        "_paused",
        "_peer",
        "_plain",
        "_reading",
        "_repeated",
        "_running",
        "_session",
        "_short",
        "_transport",
        "_verdict",
        "_why",
        "_wire",
        "info",
        "last_active_ms",
        "listener",
        "node_id",
        "number",
        "shared",
    )

    def __init__(self, shared: Connections, listener: str, node_id: int) -> None:
        self.shared = shared
        self.listener = listener
        self.node_id = node_id
        self._wire = FrameReceiver(shared.pool, shared.broker.config.of(node_id)["socket.request.max.bytes"])
        self._session: SaslSession | None = None
        self._logins = 0  # of the session, as far as they are counted
        self._running: _Running | None = None
        self._plain: PlainProduce | None = None  # set by the first request of its kind
        self._repeated: RepeatedRequests | None = None  # the same
        self._short: tuple[int, ...] = ()  # the keys of the APIs of both
        self._paused = False
        self._holds = 0  # reasons to start no request besides a running one: held by admission, and each mute
        self._mutes: list[Timer | asyncio.Handle] | None = None
        self._reading = True
        self._verdict = Verdict.REFUSED  # until admission has decided
        self._transport: Any = None
        self._peer: Peer | None = None  # set for the first subscriber
        self._why = ""  # the reason, if the broker closed the connection

    # Callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Counts the connection and serves it, holds it or refuses it, as admission decides."""
        self._transport = transport
        local, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        library = self.shared.broker.clients.library(self.listener)
        self.info = ConnectionInfo(self.listener, _host(local), _host(peer), library, self.node_id, _port(peer))
        if self.shared.logins is not None:
            session = self.shared.logins.begin(self.node_id, self.listener, lambda: self.shared.broker)
            if session is not None:
                self._session = self.info.sasl = session
                self._wire.frame_bytes_max = min(session.settings.receive_bytes_max, self._wire.frame_bytes_max)
        self.shared.open.add(self)
        self.number = next(self.shared.numbers)
        self._opened_ms = self.shared.broker.clock.now_ms()
        if self.shared.tap is not None:
            self._known(self.shared.tap)
        if self.shared.metrics is not None:
            self.shared.metrics.opened[self.listener] += 1
        self.last_active_ms = self.shared.broker.waits.now_ms()
        self.shared.idle_watch.begin()
        if self.shared.stopping:
            self.stop()
            return
        verdict = self._verdict = self.shared.admissions[self.node_id].arrive(self)
        if verdict is Verdict.SERVED:
            self._served()
        elif verdict is Verdict.HELD:
            self._hold()
        else:
            self.refuse()

    def _served(self) -> None:
        """Serves an admitted connection, unless its address has opened connections too fast (KIP-612)."""
        if (throttle := self.shared.broker.quotas.throttle) is not None:
            wait_ms = throttle.connected(self.node_id, self.info.client_host)
            if wait_ms:
                self._leave_unserved(throttle.clock.now_ms() + wait_ms)

    @property
    def principal(self) -> str | None:
        """The client's principal; None until it has one."""
        return self.info.known_principal

    def identify(self, principal: str) -> None:
        """Sets the principal that a certificate proves; with SASL it is that of the login."""
        if self._session is None:
            self.info.principal = principal

    def secured(self) -> None:
        """Counts a client that is authenticated by its handshake alone."""
        if self._session is None:
            self._count(SUCCESSFUL)

    def insecure(self, why: str) -> None:
        """Counts a handshake that failed, and notes why the connection is about to be closed."""
        self._count(FAILED)
        self.explain(why)

    def explain(self, why: str) -> None:
        """Notes why the connection is about to be closed."""
        self._why = self._why or why

    def _hold(self) -> None:
        self._holds += 1
        self._reading = False
        self._transport.pause_reading()
        # The loop starts to read after connection_made(), also where this has paused it.
        self.shared.broker.loop.call_soon(self._stay_paused)

    def _stay_paused(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._transport.resume_reading()  # asyncio takes it for paused
            self._transport.pause_reading()

    @property
    def waiting(self) -> str | None:
        """The API of its request whose handler waits, or None."""
        return None if self._running is None else self._running.runner.route.name

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for a response."""
        return self._running is not None

    def admit(self) -> None:
        """Serves a connection that was held."""
        self._verdict = Verdict.SERVED
        self._holds -= 1
        self._served()
        self._process()

    def refuse(self) -> None:
        """Closes the connection: its address has reached the limit of connections."""
        self._verdict = Verdict.REFUSED
        self._transport.close()

    def expire(self) -> None:
        """Closes the connection after connections.max.idle.ms."""
        self._why = "the connection was idle for too long"
        self._transport.close()

    @property
    def is_served(self) -> bool:
        """Whether admission counts the connection."""
        return self._verdict is Verdict.SERVED

    def make_room(self) -> None:
        """Closes the connection since max.connections was lowered."""
        self._why = "max.connections was lowered"
        self._transport.close()

    def _leave_unserved(self, until_ms: int) -> None:
        """Reads nothing from a connection above its address's connection rate until it is closed (KIP-612)."""
        self._hold()
        self._mutes = [self.shared.broker.clock.call_at(until_ms, self._transport.close)]

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._wire.receive_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handles the requests in the bytes that were received."""
        self.last_active_ms = self.shared.broker.waits.now_ms()
        self._wire.received(nbytes)
        self._process()

    def eof_received(self) -> bool:
        """Closes the connection: a client that has ended its side reads no response."""
        return False

    def pause_writing(self) -> None:
        """Stops starting requests: the client does not read its responses."""
        self._paused = True

    def resume_writing(self) -> None:
        """Continues with the requests that were received meanwhile."""
        self._paused = False
        self._process()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the handler under way, if one waits."""
        running, self._running = self._running, None
        if running is not None:
            running.close()
        for timer in self._mutes or ():
            timer.cancel()
        if self.info.on_lost is not None:
            self.info.on_lost()
        if exc is not None and not isinstance(exc, ConnectionError):  # not caused by the peer
            get_logger().warning("connection broke", error=str(exc) or repr(exc), **self.info.log_fields())
        if self._peer is not None:
            if running is not None and running.seen is not None:
                self._lost(running.seen, self._reason(exc))
            self.shared.own_tap.closed(self._peer)
        if self.shared.metrics is not None:
            self.shared.metrics.closed[self.listener] += 1
        self.shared.closed(self)
        if self._verdict is not Verdict.REFUSED:
            self.shared.admissions[self.node_id].leave(self)

    # Requests

    def _process(self) -> None:
        """Starts the received requests one after the other, until one waits or responses have to be sent first."""
        ready: list[Any] = []
        size = 0
        wire = self._wire
        clock = self.shared.broker.clock
        handling = self.shared.handling
        handling.connection = self
        try:
            while True:
                # An expired session counts as expired for every request after it, also where the loop reads sockets
                # first.
                clock.fire_overdue()
                if self._transport.is_closing() or self._is_held:
                    break
                if self._session is not None and self._session.is_failed:
                    break
                frame = wire.next_frame()
                if frame is None:
                    break
                if len(frame) > 1 and frame[1] in self._short and self._allows_short_way:
                    size, frame = self._take_short(frame, ready, size)
                    if frame is None:
                        break
                if self.shared.turn.is_open:
                    if not self.shared.turn.is_current:
                        self._begin_again(frame)
                        break
                    size += self._end_turn(ready)
                size += self._begin(frame, ready)
                handling.call = None
                if size > SEND_BYTES:  # a slow reader is noticed before the next request starts
                    self._send(ready)
                    ready, size = [], 0
            wire.settle()
        except ProtocolViolation as violation:
            if self._plain is not None and self._plain.has_taken and self.shared.turn.is_current:
                self._end_turn(ready)
            self._send(ready)
            self._violated(violation)
            return
        except Exception as error:
            self.broke(error)
            return
        finally:
            handling.connection = handling.call = None
        self._send(ready)
        self._check_session()
        # Without bytes after the running request, reading continues: otherwise a closed peer would not be noticed.
        stuck = self._paused or self.shared.stopping or (self._is_held and wire.has_unread)
        if stuck == self._reading and not self._transport.is_closing():
            self._reading = not stuck
            (self._transport.pause_reading if stuck else self._transport.resume_reading)()

    @property
    def _allows_short_way(self) -> bool:
        session = self._session
        is_served = session is None or session.serves(self.shared.broker.clock.now_ms())
        return is_served and self.shared.allows_short_way

    def _learn(self, frame: memoryview, runner: HandlerRunner, parts: list[Any]) -> None:
        """Remembers a request that was handled, for the short way of the next ones."""
        if not self.shared.allows_short_way:
            return
        if runner.route.facts is not None:
            if self._repeated is None:
                self._repeated = RepeatedRequests()
            if self._repeated.learn(frame, runner, parts) and runner.route.api_key not in self._short:
                self._short += (runner.route.api_key,)
            return
        if self._plain is None:
            from .plain_produce import PlainProduce  # has the handler of Produce, which no start needs

            self._plain = PlainProduce(self.node_id, self.shared.turn)
            self._short += (ApiKey.PRODUCE,)
        self._plain.learn(frame, runner)

    def _take_short(self, frame: memoryview, ready: list[Any], size: int) -> tuple[int, memoryview | None]:
        """Takes the short ways with as many requests as can, as `_take_plain` does."""
        shared, following = self.shared, frame
        while following is not None and size <= SEND_BYTES:
            if self._plain is not None:
                size, following = self._take_plain(self._plain, following, ready, size)
            if self._repeated is None or following is None or shared.turn.is_open:
                break
            response = self._repeated.take(following, shared.broker, self.info, shared.metrics)
            if response is None:
                break
            ready.append(response)
            size += len(response)
            following = self._wire.next_frame()
        return size, following

    def _take_plain(
        self, plain: PlainProduce, frame: memoryview, ready: list[Any], size: int
    ) -> tuple[int, memoryview | None]:
        """Takes the short way with as many requests as can. Returns the size of `ready`, and the first request that
        has to take the long one, if there is any. No timer may fire meanwhile, which could append to a log.
        """
        shared, turn = self.shared, self.shared.turn
        following: memoryview | None = frame
        now_ms = shared.broker.clock.now_ms()
        plain.begin(shared.timer() if shared.metrics is not None else 0)
        waits = not ready and len(frame) <= WAITING_BYTES and turn.waits()
        try:
            while following is not None and plain.take(following, shared.broker, self.info, now_ms, keeps=waits):
                following = self._wire.next_frame()
        finally:
            if not plain.has_taken:
                plain.close()
            elif waits and following is None:
                turn.wait(self, shared.broker.loop)
            elif turn.is_current:
                size += self._end_turn(ready)
            else:
                self._begin_again(following)
                following = None
        return size, following

    def _end_turn(self, ready: list[Any]) -> int:
        """Writes the plain requests of all connections. Returns the bytes of the responses of this one, which are added
        to `ready`.
        """
        failed = self.shared.turn.finish(self)
        return 0 if self._plain is None else self._plain.respond(failed, ready, self.shared, self.info)

    def _begin_again(self, frame: memoryview | None) -> None:
        """Drops the runs of this turn, since their logs have changed: the requests of all connections begin again, here
        with `frame` as the last one.
        """
        if frame is not None:
            self._wire.put_back([frame])
        again = {*self.shared.turn.put_back(), self}
        self.put_back()
        for connection in again:
            self.shared.broker.loop.call_soon(connection.resume)

    def written(self, failed: Failed) -> None:
        """Sends the responses of the requests that have waited for the write of a turn."""
        assert self._plain is not None
        ready: list[Any] = []
        try:
            self._plain.respond(failed, ready, self.shared, self.info)
        except Exception as error:
            self.broke(error)
        else:
            self._send(ready)

    def put_back(self) -> None:
        """Takes the requests that wait for a turn as if they had not begun."""
        if self._plain is not None and (frames := self._plain.take_back()):
            self._wire.put_back(frames)

    def resume(self) -> None:
        """Handles the requests that were put back."""
        if not self._transport.is_closing():
            self._process()

    @property
    def _is_held(self) -> bool:
        """Whether no request may start now."""
        return self._running is not None or self._holds > 0 or self._paused or self.shared.stopping

    def _begin(self, frame: memoryview, ready: list[Any]) -> int:
        """Starts one request. Returns the size of its response in bytes, which it adds to `ready`; 0 if the request
        waits.
        """
        shared = self.shared
        tap = shared.tap
        seen = None if tap is None else self._seen(tap, frame)
        begun_ns = shared.timer() if shared.metrics is not None or shared.levels.logs_requests else -1
        error: Exception | None = None
        try:
            if self._session is None:
                runner = call(frame, shared.broker, self.info)
            else:
                from .authentication import call_on

                runner = call_on(self._session, frame, shared.broker, self.info)
            shared.handling.call = runner
            parts: list[Any]
            try:
                future = runner.start(self)
            except ProtocolViolation:
                raise
            except Exception as raised:
                error = raised
                parts = failure(runner, raised)
            else:
                if future is not None:
                    self._running = running = _Running(self, runner, seen, begun_ns, len(frame))
                    running.wait_for(future)
                    return 0
                parts = runner.parts()
        except ProtocolViolation as violation:
            if seen is not None:
                self._lost(seen, str(violation))
            raise
        if begun_ns >= 0:
            note_request(shared, runner, len(frame), begun_ns, parts, error)
        route = runner.route
        is_learnt = route.facts is not None or route.api_key == ApiKey.PRODUCE
        if is_learnt and type(runner) is HandlerRunner:
            self._learn(frame, runner, parts)
        if runner.mutes:
            self._mute(runner.mutes)
        if seen is not None:
            self._left(seen, parts)
        return add_response(parts, ready)

    def returned(self, running: _Running, error: Exception | None = None) -> None:
        """Sends the response of a handler that waited and has returned or raised `error`, and starts the requests that
        arrived meanwhile."""
        try:
            parts = running.runner.parts() if error is None else failure(running.runner, error)
        except ProtocolViolation as violation:
            self._ended(running, violation)
            return
        running.note(parts, error)
        self._running = None
        running.runner.context.end_steps()
        running.note_fault()
        if running.runner.mutes:
            self._mute(running.runner.mutes)
        if running.seen is not None:
            self._left(running.seen, parts)
        ready: list[Any] = []
        add_response(parts, ready)
        self._send(ready)
        self._check_session()
        if self.shared.stopping:
            self.stop()
        elif not self._reading:
            self._process()

    def _ended(self, running: _Running, violation: ProtocolViolation) -> None:
        """Closes the connection for a handler that waited, after the bytes that a fault still sends."""
        self._running = None
        running.runner.context.end_steps()
        sent = running.runner.last_bytes
        if sent:
            self._send([sent])
        if running.seen is not None:
            self._lost(running.seen, str(violation), sent[4:])
        self._violated(violation)

    def _mute(self, mutes: Mutes) -> None:
        """Starts no request until all these delays are over."""
        if self._mutes is None:
            self._mutes = []
        for begin in mutes:
            self._holds += 1
            self._mutes.append(begin(self._unmute))

    def _unmute(self) -> None:
        """Ends one delay. Starts the next requests after the last one."""
        self._holds -= 1
        if not self._holds:
            self._mutes = None
            if not self._transport.is_closing():
                self._process()

    def is_wanted(self) -> bool:
        """Whether it makes sense to delay a response: the peer is still connected, also where reading has stopped, and
        the broker is not stopping.
        """
        if self.shared.stopping:
            return False
        sock = self._transport.get_extra_info("socket")
        if self._reading or sock is None or not hasattr(select, "POLLRDHUP"):
            return True  # what is read shows when the peer has gone
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLRDHUP)
        return not poll.poll(0)

    # Responses

    def _send(self, ready: list[Any]) -> None:
        if ready and not self._transport.is_closing():
            write_pieces(self._transport, ready)

    def _check_session(self) -> None:
        """Closes a connection whose authentication has failed, after the response; else lets an authenticated client
        send requests of all sizes."""
        session = self._session
        if session is None:
            return
        if session.is_failed:
            if not self._transport.is_closing():
                get_logger().info("authentication failed", reason=session.failure, **self.info.log_fields())
                self._why = f"the authentication failed: {session.failure}"
                self._count(NOT_RENEWED if session.completed else FAILED)
            self._transport.close()
        elif session.completed > self._logins:
            self._count(RENEWED if self._logins else SUCCESSFUL)
            self._logins = session.completed
            self._wire.frame_bytes_max = self.shared.broker.config.of(self.node_id)["socket.request.max.bytes"]

    def _count(self, outcome: str) -> None:
        if self.shared.metrics is not None:
            self.shared.metrics.authentications[outcome, self.listener] += 1

    def _violated(self, violation: ProtocolViolation) -> None:
        if self.shared.metrics is not None:
            self.shared.metrics.violations += 1
        if self._session is not None and self._session.is_over:
            self._count(EXPIRED)
        get_logger().info("connection closed", reason=str(violation), **self.info.log_fields())
        self._why = f"the connection was closed: {violation}"
        self._transport.close()

    def broke(self, error: Exception) -> None:
        """Closes the connection for a server-side error that no response can carry, and logs it with its stack."""
        get_logger().error("connection closed", exc_info=error, **self.info.log_fields())
        self._why = "the connection was closed: unexpected server error"
        self._transport.abort()

    def stop(self) -> None:
        """Stops accepting requests and closes the connection after the responses in flight. Responses that a fault
        delays are dropped.
        """
        if self._running is not None and self._running.runner.is_held:
            self.abort()
            return
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()
        if self._running is None:
            self._transport.close()

    def abort(self) -> None:
        self._why = self._why or "the broker cut the connection"
        self._transport.abort()

    # Subscribers

    def _known(self, tap: Tap) -> Peer:
        if self._peer is None:
            local_port = _port(self._transport.get_extra_info("sockname"))
            self._peer = tap.opened(self.number, self.info, local_port, self._opened_ms)
        return self._peer

    def _seen(self, tap: Tap, frame: memoryview) -> Exchange:
        peer = self._peer or self._known(tap)
        return tap.begun(peer, frame, self.shared.broker.clock.now_ms(), self.info.principal)

    def _left(self, exchange: Exchange, parts: list[Any]) -> None:
        """Reports a response to subscribers as it is sent; a connection that is being closed sends none."""
        if self._transport.is_closing():
            self._lost(exchange, self._reason(None))
        else:
            exchange.peer.library = self.info.library
            self.shared.own_tap.responded(exchange, parts)

    def _lost(self, exchange: Exchange, reason: str, sent: bytes = b"") -> None:
        exchange.peer.library = self.info.library
        self.shared.own_tap.lost(exchange, reason, sent)

    def _reason(self, error: Exception | None) -> str:
        return self._why or ("the client closed the connection" if error is None else f"the connection broke: {error}")
