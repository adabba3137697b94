"""Records requests and responses to a file: raw frames first, decoded later.

The broker's loop appends events to a bounded queue. A thread writes them to a raw file beside the recording and decodes
them into the recording itself: some when clients pause, all when the recording ends. The loop never waits for the disk
or for decoding. An exchange for which the queue has no room is dropped and counted. Credentials are blanked before an
event is queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ...protocol.named import NamedTuple
from ..config.record_options import FORMER, RecordError, RecordOptions
from ..config.serve_options import WILDCARDS
from ..logs import get_logger
from ..version import own_version
from .conversion import Conversion
from .exchange import Buffer, Exchange, Peer, Sink, peer_facts
from .files import claim
from .raw import Begun, Closed, Event, Full, Opened, RawFiles, ended_of, event_head
from .redaction import blanked, may_carry

if TYPE_CHECKING:
    from ..broker_state import BrokerState

QUEUE_BYTES = 128 << 20
WRITE_S = 1.0  # between two writes while clients are busy: writing slows them down
POLL_S = 0.02  # between two looks at the queue
# A pause of the clients: at most QUIET_BYTES were queued in each poll for PAUSE_S. Decoding holds the interpreter, so
# it must not begin between the requests of a busy client.
QUIET_BYTES = 16 << 10
PAUSE_S = 0.25
STOP_S = 60.0  # without any progress: a disk that hangs does not keep the broker from stopping
CLOSING_STEPS = 3
FULL = "it has reached its size"
FAILED = "it failed; the broker's log has the error"


class _Connections(Protocol):
    def listen(self, sink: Sink, frame_bytes_max: int | None = None, **more: Any) -> None: ...
    def unlisten(self, sink: Sink) -> None: ...


class RecordedBroker(Protocol):
    """A broker whose requests can be recorded: its state, its ports by node and listener, its connections."""

    @property
    def state(self) -> BrokerState: ...
    @property
    def ports(self) -> dict[tuple[int, str], int]: ...
    @property
    def connections(self) -> _Connections: ...


class RecordingState(NamedTuple):
    """The recording that runs, or the last one. Sizes in bytes. `exchanges` were recorded, `waiting_bytes` are not
    decoded yet; `ended` is the reason of its end, None while it runs."""

    options: RecordOptions
    since_ms: int
    exchanges: int
    dropped: int
    waiting_bytes: int
    size_bytes: int
    ended: str | None


class Recorder:
    """At most one recording at a time of a broker's requests and responses. All methods run on the broker's loop."""

    def __init__(self) -> None:
        self._last: _Recording | None = None

    @property
    def state(self) -> RecordingState | None:
        """The state of the recording that runs, or of the last one; None before the first."""
        return None if self._last is None else self._last.state

    @property
    def is_running(self) -> bool:
        """Whether a recording runs."""
        return self._last is not None and self._last.outcome is None

    def start(self, running: RecordedBroker, options: RecordOptions, fd: int | None = None) -> None:
        """Begins a recording; `fd` is its file if that was claimed before. Raises RecordError."""
        if self._last is not None and self._last.outcome is None:
            raise RecordError(f"{self._last.options.path} is being recorded to already")
        self._last = _Recording(running, options, claim(options) if fd is None else fd)

    async def stop(self) -> None:
        """Ends the recording, if there is one, and returns when all of it is decoded and written."""
        if self._last is not None:
            for _ in range(CLOSING_STEPS):  # connections that were just aborted report their end
                await asyncio.sleep(0)
            await self._last.stop()


def meta_of(running: RecordedBroker, options: RecordOptions) -> dict[str, Any]:
    """Returns the first line of a recording, which describes the broker."""
    state = running.state
    hosts = {listener.name: listener.host for listener in state.options.listeners}
    nodes: list[dict[str, Any]] = []
    for (node_id, name), port in running.ports.items():
        host, port = state.options.advertised_address(name, port, hosts[name], node_id)
        nodes.append({"node_id": node_id, "listener": name, "host": "" if host in WILDCARDS else host, "port": port})
    return {
        "type": "recording",
        "format": 1,
        "part": 1,
        "ottla": own_version(),
        "release": state.profile.name,
        "cluster_id": state.cluster_id,
        "nodes": nodes,
        "time_ms": state.clock.now_ms(),
        "contents": options.contents,
    }


class _Writer(threading.Thread):
    """Writes queued events to the raw files and decodes these. Calls `report` in its thread: with None when it accepts
    no more events, and with the reason of its end when everything is written. Raises OSError for a file that cannot be
    written.

    The queue is two buffers, together of QUEUE_BYTES: one is filled while the other is written. They keep their memory,
    since to get memory from the system takes longer than to copy a frame.
    """

    def __init__(
        self, fd: int, options: RecordOptions, meta: dict[str, Any], report: Callable[[str | None], object]
    ) -> None:
        super().__init__(name="recording", daemon=True)
        self._report = report
        self.conversion = Conversion(fd, options, meta)
        self._raw = RawFiles(options, meta, os.fstat(fd).st_mode & 0o777)
        self._lock = threading.Lock()
        self._filled, self._other = memoryview(mmap.mmap(-1, QUEUE_BYTES)), memoryview(mmap.mmap(-1, QUEUE_BYTES))
        self._filled_bytes = self._other_bytes = 0
        self._more = bytearray()  # events that must be kept, after those in a full buffer
        self._write_bytes = min(QUEUE_BYTES, options.file_bytes_max) // 2
        self._stop_reason, self._last_place = "", 0
        self._stop = threading.Event()

    def put(self, event: Event, frame: Sequence[Buffer] = (), *, always: bool = False) -> bool:
        """Queues an event with the pieces of its frame. Returns False if there is no room; `always` makes some."""
        frame_bytes = sum(map(len, frame))
        head = event_head(event, frame_bytes)
        with self._lock:
            if self._more or self.queued_bytes + len(head) + frame_bytes > QUEUE_BYTES:
                self._more += head if always else b""
                return always
            for piece in (head, *frame):
                end = self._filled_bytes + len(piece)
                self._filled[self._filled_bytes : end] = piece
                self._filled_bytes = end
        return True

    @property
    def queued_bytes(self) -> int:
        """The bytes of the events that are not written yet."""
        return self._filled_bytes + self._other_bytes + len(self._more)

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are not decoded yet."""
        return self.queued_bytes + self._raw.written_bytes - self._raw.converted_bytes

    def stop(self, reason: str, place: int = 0) -> None:
        """Ends the recording after the events that are queued now; `place` is the place of the last request."""
        self._stop_reason, self._last_place = self._stop_reason or reason, place
        self._stop.set()

    def run(self) -> None:
        reason = FAILED
        try:
            reason = self._record()
        except Exception:
            get_logger().exception("recording failed")
        with contextlib.suppress(OSError):
            self.conversion.output.close()
        self._raw.remove()
        self._report(reason)

    def _record(self) -> str:
        """Writes and decodes until the end, and returns the reason."""
        try:
            failure = self._write_until_stop()
            self._report(None)
            self._convert(None)
        except (Full, OSError) as error:
            failure = error
        reason = note = self._stop_reason
        if isinstance(failure, Full):
            reason, note = FULL, "full"
        elif failure is not None:
            reason, note = failure.strerror or str(failure), "it could not be written"
        with contextlib.suppress(OSError):
            self.conversion.end(note, self._last_place if failure is None else 0)
        return reason

    def _write_until_stop(self) -> Full | OSError | None:
        """Writes events, and decodes them in pauses. Returns the error that ended the writing, if any. Raises Full,
        OSError if they cannot be decoded."""
        busy_at = written_at = time.monotonic()
        queued_bytes = 0
        has_backlog = False
        while True:
            self._stop.wait(0 if has_backlog else POLL_S)
            is_last, now = self._stop.is_set(), time.monotonic()
            before, queued_bytes = queued_bytes, self.queued_bytes
            is_busy = queued_bytes - before > QUIET_BYTES
            if is_busy:
                busy_at = now
            if not is_busy or is_last or queued_bytes > self._write_bytes or now - written_at > WRITE_S:
                try:
                    self._write()
                except (Full, OSError) as error:
                    return error
                written_at, queued_bytes = now, 0
            if is_last:
                return None
            has_backlog = now - busy_at >= PAUSE_S and self._convert(now + POLL_S)

    def _write(self) -> None:
        """Writes all events of the queue to the raw files."""
        with self._lock:
            self._filled, self._other = self._other, self._filled
            self._filled_bytes, self._other_bytes = 0, self._filled_bytes
            more, self._more = self._more, bytearray()
        try:
            for events in (self._other[: self._other_bytes], more):
                if events:
                    self._raw.write(events)
        finally:
            self._other_bytes = 0

    def _convert(self, deadline: float | None) -> bool:
        """Decodes raw events: all, or until a deadline or the end of the pause. Returns whether there are more."""
        while (found := self._raw.read()) is not None:
            self.conversion.take(*found)
            if deadline is not None and (time.monotonic() > deadline or self.queued_bytes > QUIET_BYTES):
                break
            time.sleep(0)  # releases the interpreter: the event loop would wait 5 ms for it
        self.conversion.output.flush()
        return found is not None


class _Recording:
    """One recording, from its beginning to its end: a subscriber of requests and responses."""

    def __init__(self, running: RecordedBroker, options: RecordOptions, fd: int) -> None:
        self.options = options
        self._running = running
        self._facts: dict[int, msgspec.Raw] = {}  # of recorded connections
        self._open: set[int] = set()  # exchanges whose request was recorded
        self._exchanges = self._place = self._dropped = 0
        self._event_bytes_max = options.file_bytes_max if options.ring else QUEUE_BYTES
        meta = meta_of(running, options)
        self._since_ms: int = meta["time_ms"]
        self._done: asyncio.Future[str] = running.state.loop.create_future()
        try:
            self._writer = _Writer(fd, options, meta, self._report)
        except OSError as error:
            os.close(fd)
            raise RecordError(f"{options.path} cannot be recorded to: {error.strerror or error}") from error
        self._writer.start()
        running.connections.listen(self, 0, failed=partial(self._writer.stop, FAILED))

    @property
    def outcome(self) -> str | None:
        """The reason of its end; None while it runs."""
        return self._done.result() if self._done.done() else None

    @property
    def state(self) -> RecordingState:
        """The state of the recording now."""
        size = 0
        for path in (self.options.path, self.options.path + FORMER)[: 1 + self.options.ring]:
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
        waiting = 0 if self._done.done() else self._writer.waiting_bytes
        dropped = max(self._dropped, self._writer.conversion.dropped)
        return RecordingState(self.options, self._since_ms, self._exchanges, dropped, waiting, size, self.outcome)

    # Events of connections

    def opened(self, peer: Peer) -> None:
        """Records a connection."""
        facts = msgspec.Raw(msgspec.msgpack.encode(tuple(peer_facts(peer).values())))
        if self._writer.put(Opened(peer.number, facts)):
            self._facts[peer.number] = facts

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        """Records a request."""
        self._place += 1
        data: Buffer = frame
        if may_carry(exchange.api_key, exchange.api_version):
            data = blanked(bytes(frame), exchange.api_key, exchange.api_version)
        connection = exchange.peer.number
        facts = self._facts.get(connection)
        if facts is not None and len(data) < self._event_bytes_max:
            times = exchange.time_ms, exchange.begun_ns
            event = Begun(self._place, exchange.number, connection, facts, *times, exchange.principal)
            if self._writer.put(event, (data,)):
                self._open.add(exchange.number)
                return
        self._dropped += 1

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        """Records the response, or that there is none."""
        if exchange.number not in self._open:  # it began before the recording, or was dropped
            return
        self._open.discard(exchange.number)
        self._exchanges += 1
        frame = response
        if response and may_carry(exchange.api_key, exchange.api_version):
            frame = (blanked(b"".join(response), exchange.api_key, exchange.api_version, request=False),)
        is_kept = bool(frame) and exchange.response_bytes < self._event_bytes_max
        if not is_kept or not self._writer.put(ended_of(exchange, True), frame):
            # Even into a full queue: the request is recorded and needs an end.
            self._writer.put(ended_of(exchange, False), always=True)

    def closed(self, peer: Peer) -> None:
        """Records the end of a connection."""
        if self._facts.pop(peer.number, None) is not None:
            self._writer.put(Closed(peer.number, self._running.state.clock.now_ms()), always=True)

    # The end

    def _report(self, outcome: str | None) -> None:
        """Receives the reports of the writer, in its thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._running.state.loop.call_soon_threadsafe(self._end, outcome)

    def _end(self, outcome: str | None) -> None:
        """Unsubscribes; then notes the outcome, if there is one."""
        self._running.connections.unlisten(self)
        if outcome is None or self._done.done():  # `stop` did not wait any longer
            return
        self._done.set_result(outcome)
        if outcome != "stopped":
            get_logger().warning("recording ended", file=self.options.path, reason=outcome)
        if dropped := self.state.dropped:
            get_logger().warning("recording lacks exchanges", file=self.options.path, dropped=dropped)

    async def stop(self) -> None:
        """Ends the recording, and returns when everything is written."""
        self._running.connections.unlisten(self)
        self._writer.stop("stopped", self._place)
        while not self._done.done():
            before = self._writer.waiting_bytes
            await asyncio.wait([self._done], timeout=STOP_S)
            if not self._done.done() and self._writer.waiting_bytes == before:
                # The disk hangs. The thread is left running, so that the broker can stop.
                reason = "its writing took too long"
                get_logger().warning("recording is not whole", file=self.options.path, reason=reason)
                self._done.set_result(reason)
