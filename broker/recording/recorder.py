"""Records requests and responses to a file: raw frames first, decoded later.

The broker's loop appends events to a bounded queue. A thread writes them to a raw file beside the recording and decodes
them into the recording itself: some when clients pause, all when the recording ends. The loop never waits for the disk
or for decoding. An exchange for which the queue has no room is dropped and counted. Credentials are blanked before an
event is queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..config.record_options import FORMER, RecordError, RecordOptions
from ..config.serve_options import WILDCARDS
from ..logs import get_logger
from .conversion import Conversion
from .exchange import Exchange, Peer, peer_facts
from .files import claim
from .raw import BEGUN, CLOSED, DROPPED, ENDED, OPENED, SOFTWARE, Full, RawFiles
from .redaction import blanked

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..metrics.client_ledger import ClientLibrary
    from .exchange import Sink

QUEUE_BYTES = 64 << 20
WRITE_BYTES = 1 << 20
EVENT_BYTES = 280  # memory of an event without its frame, measured
POLL_S = 0.02  # between two writes of the queue, which is lost if the process is killed
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
        "ottla": version("ottla"),
        "release": state.profile.name,
        "cluster_id": state.cluster_id,
        "nodes": nodes,
        "time_ms": state.clock.now_ms(),
        "contents": options.contents,
    }


class _Writer(threading.Thread):
    """Writes queued events to the raw files and decodes these. Calls `left` in its thread when it accepts no more
    events, and `ended` with the reason when everything is written. Raises OSError for a file that cannot be written."""

    def __init__(
        self,
        fd: int,
        options: RecordOptions,
        meta: dict[str, Any],
        left: Callable[[], object],
        ended: Callable[[str], object],
    ) -> None:
        super().__init__(name="recording", daemon=True)
        self._left, self._ended = left, ended
        self.conversion = Conversion(fd, options, meta)
        self._raw = RawFiles(options, meta, os.fstat(fd).st_mode & 0o777)
        self._events: deque[tuple[int, Any, bytes | None]] = deque()
        self._put_bytes = self._taken_bytes = 0  # each is changed by one thread only: no lock is needed
        self._stop_reason = ""
        self._stop = threading.Event()

    def put(self, kind: int, value: Any, frame: bytes | None = None) -> None:
        """Queues an event, as `raw.event_head` describes it."""
        self._put_bytes += EVENT_BYTES + len(frame or b"")
        self._events.append((kind, value, frame))

    @property
    def queued_bytes(self) -> int:
        """The memory of the events that are not written yet."""
        return self._put_bytes - self._taken_bytes

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are not decoded yet."""
        return self.queued_bytes + self._raw.written_bytes - self._raw.converted_bytes

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes while anything is written or decoded."""
        return self._raw.written_bytes, self._raw.converted_bytes

    def stop(self, reason: str) -> None:
        """Ends the recording after the events that are queued now."""
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    def run(self) -> None:
        reason = FAILED
        try:
            reason = self._record()
        except Exception:
            get_logger().exception("recording failed")
        finally:
            with contextlib.suppress(OSError):
                self.conversion.output.close()
            self._raw.remove()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._ended(reason)

    def _record(self) -> str:
        """Writes and decodes until the end, and returns the reason."""
        try:
            failure = self._write_until_stop()
            with contextlib.suppress(RuntimeError):
                self._left()
            self._convert(None)
        except (Full, OSError) as error:
            failure = error
        reason = note = self._stop_reason
        if isinstance(failure, Full):
            reason, note = FULL, "full"
        elif failure is not None:
            reason, note = failure.strerror or str(failure), "it could not be written"
        with contextlib.suppress(OSError):
            self.conversion.end(note)
        return reason

    def _write_until_stop(self) -> Full | OSError | None:
        """Writes events, and decodes them in pauses. Returns the error that ended the writing, if any. Raises Full,
        OSError if they cannot be decoded."""
        busy_at = time.monotonic()
        has_backlog = False
        while True:
            self._stop.wait(0 if has_backlog else POLL_S)
            is_last = self._stop.is_set()
            before = self._taken_bytes
            try:
                self._write()
            except (Full, OSError) as error:
                return error
            if is_last:
                return None
            now = time.monotonic()
            if self._taken_bytes - before > QUIET_BYTES:
                busy_at = now
            has_backlog = now - busy_at >= PAUSE_S and self._convert(now + POLL_S)

    def _write(self) -> None:
        """Writes all events of the queue to the raw files."""
        while self._events:
            size = 0
            try:
                while self._events and size < WRITE_BYTES:
                    kind, value, frame = self._events.popleft()
                    size += EVENT_BYTES + len(frame or b"")
                    self._raw.put(kind, value, frame)
            finally:
                self._raw.flush()
                self._taken_bytes += size

    def _convert(self, deadline: float | None) -> bool:
        """Decodes raw events: all, or until a deadline or the end of the pause. Returns whether there are more."""
        while (event := self._raw.read()) is not None:
            self.conversion.take(event)
            if deadline is not None and (time.monotonic() > deadline or self.queued_bytes > QUIET_BYTES):
                break
            time.sleep(0)  # releases the interpreter: the event loop would wait 5 ms for it
        self.conversion.output.flush()
        return event is not None


class _Recording:
    """One recording, from its beginning to its end: a subscriber of requests and responses."""

    def __init__(self, running: RecordedBroker, options: RecordOptions, fd: int) -> None:
        self.options = options
        self.outcome: str | None = None
        """The reason of its end; None while it runs."""
        self._running = running
        self._libraries: dict[int, ClientLibrary] = {}  # by connection, as last recorded
        self._open: set[int] = set()  # exchanges whose request was recorded
        self._exchanges = self._dropped = self._dropped_now = 0
        self._event_bytes_max = options.file_bytes_max if options.ring else QUEUE_BYTES
        meta = meta_of(running, options)
        self._since_ms: int = meta["time_ms"]
        call = running.state.loop.call_soon_threadsafe
        try:
            self._writer = _Writer(
                fd, options, meta, lambda: call(self._unlisten), lambda reason: call(self._end, reason)
            )
        except OSError as error:
            os.close(fd)
            raise RecordError(f"{options.path} cannot be recorded to: {error.strerror or error}") from error
        self._done: asyncio.Future[None] = running.state.loop.create_future()
        self._writer.start()
        running.connections.listen(self, failed=self._fail)

    @property
    def state(self) -> RecordingState:
        """The state of the recording now."""
        size = 0
        for path in (self.options.path, self.options.path + FORMER)[: 1 + self.options.ring]:
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
        waiting = 0 if self._done.done() else self._writer.waiting_bytes
        return RecordingState(
            self.options, self._since_ms, self._exchanges, self._dropped_in_all, waiting, size, self.outcome
        )

    @property
    def _dropped_in_all(self) -> int:
        return self._dropped + self._writer.conversion.lost

    # Events of connections

    def opened(self, peer: Peer) -> None:
        """Records a connection."""
        if self._offer(OPENED, peer_facts(peer)):
            self._libraries[peer.number] = peer.library

    def begun(self, exchange: Exchange) -> None:
        """Records a request."""
        frame = blanked(exchange.request or b"", exchange.api_key, exchange.api_version)
        if exchange.peer.number in self._libraries and self._offer(BEGUN, exchange, frame):
            self._open.add(exchange.number)
        else:
            self._dropped += 1
            self._dropped_now += 1

    def ended(self, exchange: Exchange) -> None:
        """Records the response, or that there is none."""
        if exchange.number not in self._open:  # it began before the recording, or was dropped
            return
        self._open.discard(exchange.number)
        number, library = exchange.peer.number, exchange.peer.library
        if self._libraries[number] is not library and self._offer(
            SOFTWARE, (number, library.software_name, library.software_version)
        ):
            self._libraries[number] = library
        self._exchanges += 1
        frame = exchange.response
        if frame is not None:
            frame = blanked(frame, exchange.api_key, exchange.api_version, request=False)
        if frame is None or not self._offer(ENDED, exchange, frame):
            self._writer.put(ENDED, exchange)  # even into a full queue: the request is recorded and needs an end

    def closed(self, peer: Peer) -> None:
        """Records the end of a connection."""
        if self._libraries.pop(peer.number, None) is not None:
            self._writer.put(CLOSED, (peer.number, self._now_ms()))

    def _now_ms(self) -> int:
        return self._running.state.clock.now_ms()

    def _offer(self, kind: int, value: Any, frame: bytes | None = None) -> bool:
        """Queues an event. Returns False if the queue, or a file of a ring, has no room for it."""
        size = EVENT_BYTES + len(frame or b"")
        if size > self._event_bytes_max or self._writer.queued_bytes + size > QUEUE_BYTES:
            return False
        if self._dropped_now:
            self._note_dropped()
        self._writer.put(kind, value, frame)
        return True

    def _note_dropped(self) -> None:
        """Records how many exchanges are missing at this place."""
        dropped, self._dropped_now = self._dropped_now, 0
        self._writer.put(DROPPED, (dropped, self._now_ms()))

    # The end

    def _unlisten(self) -> None:
        self._running.connections.unlisten(self)

    def _fail(self) -> None:
        """Ends the recording because a method above raised."""
        self._writer.stop(FAILED)

    def _end(self, reason: str) -> None:
        """Notes that the writer has ended."""
        self._unlisten()
        if self._done.done():  # `stop` did not wait any longer
            return
        self.outcome = reason
        self._done.set_result(None)
        if reason != "stopped":
            get_logger().warning("recording ended", file=self.options.path, reason=reason)
        if self._dropped_in_all:
            get_logger().warning("recording lacks exchanges", file=self.options.path, dropped=self._dropped_in_all)

    async def stop(self) -> None:
        """Ends the recording, and returns when everything is written."""
        if self.outcome is not None:
            return
        if self._dropped_now:
            self._note_dropped()
        self._unlisten()
        self._writer.stop("stopped")
        while not self._done.done():
            before = self._writer.progress
            await asyncio.wait([self._done], timeout=STOP_S)
            if not self._done.done() and self._writer.progress == before:
                # The disk hangs. The thread is left running, so that the broker can stop.
                reason = self.outcome = "its writing took too long"
                get_logger().warning("recording is not whole", file=self.options.path, reason=reason)
                self._done.set_result(None)
