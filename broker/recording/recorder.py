"""Records requests and responses to a file: raw frames first, decoded later.

The broker's loop appends events to a bounded queue in memory; a thread writes them to a raw file beside the recording
and decodes them into the recording itself when clients pause, and all of them when the recording ends. The loop never
waits for the disk or for decoding. An exchange for which the queue has no room is dropped and counted. Credentials are
blanked before an event is queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..config.record_options import FORMER, RecordError, RecordOptions
from ..config.serve_options import WILDCARDS, StartupError
from ..logs import get_logger
from . import raw_events
from .conversion import Conversion, Full, head_of
from .exchange import Exchange, Peer
from .files import claim
from .raw_events import HEAD, begun_event, ended_event, json_event
from .raw_files import Queue, RawFiles
from .recorded import peer_facts
from .secrets import blanked, may_carry

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..metrics.client_ledger import Origin
    from .exchange import Sink

QUEUE_BYTES = 64 << 20
POLL_S = 0.02  # between two writes of the queue; what is in it is lost if the process is killed
# A pause: no more than this came between two polls, for so long. Decoding holds the interpreter, so it does not begin
# in the gaps between the requests of a busy client.
QUIET_BYTES = 4 << 10
PAUSE_S = 0.25
STOP_S = 60.0  # without any progress: a disk that hangs does not keep the broker from stopping
CLOSING_STEPS = 3
FULL = "it has reached its size"


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
    """The recording that runs, or the last one. Sizes in bytes. `exchanges` were recorded, `waiting_bytes` are still to
    be decoded; `ended` is the reason of its end, None while it runs."""

    options: RecordOptions
    since_ms: int
    exchanges: int
    dropped: int
    waiting_bytes: int
    size_bytes: int
    ended: str | None


class Recorder:
    """At most one recording at a time of a broker's requests and responses. All methods are for the broker's loop."""

    def __init__(self) -> None:
        self._last: _Recording | None = None

    @property
    def state(self) -> RecordingState | None:
        """The state of the recording that runs, or of the last one; None where there was none."""
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


def claimed(options: RecordOptions) -> int:
    """Claims the file of a recording that begins with the broker. Raises StartupError."""
    try:
        return claim(options)
    except RecordError as error:
        raise StartupError(f"--record: {error}") from error


def let_go(options: RecordOptions, fd: int) -> None:
    """Gives up a claimed file to which nothing was recorded, and removes it if it is new."""
    if os.fstat(fd).st_size == 0:
        with contextlib.suppress(OSError):
            os.remove(options.path)
    os.close(fd)


def meta_of(running: RecordedBroker, options: RecordOptions) -> dict[str, Any]:
    """The first line of a recording: its broker."""
    state = running.state
    hosts = {listener.name: listener.host for listener in state.options.listeners}
    nodes = []
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
    """Writes the queue to the raw files and converts these. It calls `ended`, in its thread, with the reason of the end
    when all is written."""

    def __init__(self, conversion: Conversion, raw: RawFiles, ended: Callable[[str], object]) -> None:
        super().__init__(name="recording", daemon=True)
        self._conversion, self._raw, self._ended = conversion, raw, ended
        self.queue = Queue()
        self._stop_reason: str | None = None
        self._stop = threading.Event()

    @property
    def waiting_bytes(self) -> int:
        """The bytes that are not decoded yet."""
        return self.queue.put_bytes - self._raw.converted_bytes

    @property
    def progress(self) -> tuple[int, int]:
        """Grows while anything is written or decoded."""
        return self.queue.taken_bytes, self._raw.converted_bytes

    def stop(self, reason: str) -> None:
        """Ends it after what is queued now."""
        self._stop_reason = self._stop_reason or reason
        self._stop.set()

    def run(self) -> None:
        reason = "it failed, as the log says"
        try:
            reason = self._record()
        except OSError as error:
            reason = error.strerror or str(error)
        except Exception:
            get_logger().exception("recording failed")
        finally:
            with contextlib.suppress(OSError):
                self._conversion.output.close()
            self._raw.remove()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._ended(reason)

    def _record(self) -> str:
        """Writes and converts until the end, and returns the reason. Raises OSError for a disk that takes no more."""
        reason: str | None = None
        failure: OSError | None = None
        try:
            busy_at = time.monotonic()
            is_behind = False
            while reason is None:
                self._stop.wait(0 if is_behind else POLL_S)
                reason = self._stop_reason
                try:
                    came = self._write()
                except OSError as error:
                    failure, reason = error, "it could not be written"
                    break
                now = time.monotonic()
                busy_at = now if came > QUIET_BYTES else busy_at
                is_behind = reason is None and now - busy_at >= PAUSE_S and self._convert(now + POLL_S)
            self._convert(None)
        except Full:
            reason = FULL
        except OSError as error:
            failure, reason = error, "it could not be written"
        with contextlib.suppress(OSError):
            self._conversion.end("full" if reason == FULL else reason)
        if failure is not None:
            raise failure
        return reason

    def _write(self) -> int:
        """Writes all that is queued to the raw files; how many bytes."""
        before = self.queue.taken_bytes
        for data, begins_file in self.queue.take():
            if begins_file:
                self._raw.begin()
            self._raw.write(data)
        return self.queue.taken_bytes - before

    def _convert(self, deadline: float | None) -> bool:
        """Converts raw events: all, or until a time or until the pause ends. Whether there are more."""
        while (event := self._raw.read()) is not None:
            self._conversion.take(event)
            if deadline is not None and (time.monotonic() > deadline or self.queue.waiting_bytes > QUIET_BYTES):
                break
            time.sleep(0)  # gives the loop the interpreter, which it would else wait 5 ms for
        self._conversion.output.flush()
        return event is not None


class _Recording:
    """One recording, from its beginning to its end: a subscriber of requests and responses."""

    def __init__(self, running: RecordedBroker, options: RecordOptions, fd: int) -> None:
        self.options = options
        self.outcome: str | None = None
        """The reason of its end; None while it runs."""
        self._running = running
        self._meta = meta_of(running, options)
        self._peers: dict[int, Peer] = {}
        self._origins: dict[int, Origin] = {}  # as they were recorded last
        self._open: set[int] = set()  # exchanges whose request was recorded
        self._begun = self._exchanges = self._dropped = self._dropped_now = 0
        self._raw_limit = options.max_bytes // 2 if options.ring else options.max_bytes
        self._raw_bytes = 0  # of the newest raw file
        head = head_of(options, self._meta)
        raw: RawFiles | None = None
        try:
            raw = RawFiles(options, os.fstat(fd).st_mode & 0o777)
            conversion = Conversion(fd, options, head)
        except OSError as error:
            os.close(fd)
            if raw is not None:
                raw.remove()
            raise RecordError(f"{options.path} cannot be recorded to: {error.strerror or error}") from error
        loop = running.state.loop
        self._done: asyncio.Future[None] = loop.create_future()
        self._writer = _Writer(conversion, raw, partial(loop.call_soon_threadsafe, self._end))
        self._queue = self._writer.queue
        self._put(json_event(HEAD, head))
        self._writer.start()
        running.connections.listen(self, failed=self._fail)

    @property
    def state(self) -> RecordingState:
        """Its state now."""
        size = 0
        for path in (self.options.path, self.options.path + FORMER)[: 1 + self.options.ring]:
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
        waiting = 0 if self._done.done() else self._writer.waiting_bytes
        since_ms = self._meta["time_ms"]
        return RecordingState(self.options, since_ms, self._exchanges, self._dropped, waiting, size, self.outcome)

    # Events of connections

    def opened(self, peer: Peer) -> None:
        """Records a connection."""
        if self._offer(json_event(raw_events.OPENED, peer_facts(peer))):
            self._peers[peer.number] = peer
            self._origins[peer.number] = peer.origin

    def begun(self, exchange: Exchange) -> None:
        """Records a request."""
        frame = self._kept(exchange, exchange.request, is_request=True)
        if exchange.peer.number in self._peers and self._offer(begun_event(exchange, len(frame)), frame):
            self._open.add(exchange.number)
            self._begun += 1
        else:
            self._dropped += 1
            self._dropped_now += 1

    def ended(self, exchange: Exchange) -> None:
        """Records the response, or that there is none."""
        if exchange.number not in self._open:  # it began before the recording, or was dropped
            return
        self._open.discard(exchange.number)
        peer = exchange.peer
        if self._origins[peer.number] is not peer.origin:
            software = peer.number, peer.origin.software_name, peer.origin.software_version
            if self._offer(json_event(raw_events.SOFTWARE, software)):
                self._origins[peer.number] = peer.origin
        self._exchanges += 1
        frame = None
        if exchange.response is not None:
            frame = self._kept(exchange, exchange.response, is_request=False)
        if frame is None or not self._offer(ended_event(exchange, len(frame)), frame):
            self._put(ended_event(exchange, None))  # however full the queue is: its request is recorded

    def closed(self, peer: Peer) -> None:
        """Records the end of a connection."""
        if self._peers.pop(peer.number, None) is not None:
            del self._origins[peer.number]
            self._put(json_event(raw_events.CLOSED, (peer.number, self._now_ms())))

    def _now_ms(self) -> int:
        return self._running.state.clock.now_ms()

    def _kept(self, exchange: Exchange, frame: bytes | None, *, is_request: bool) -> bytes:
        """A frame without credentials."""
        key, api_version = exchange.api_key, exchange.api_version
        frame = frame or b""
        return blanked(frame, key, api_version, is_request) if may_carry(key, api_version) else frame

    # The queue

    def _offer(self, head: bytes, frame: bytes = b"") -> bool:
        """Queues an event; False if there is no room for it, in the queue or in a file of a ring."""
        size = len(head) + len(frame)
        if self._queue.waiting_bytes + size > QUEUE_BYTES or (self.options.ring and size > self._raw_limit):
            return False
        if self._dropped_now:
            self._note_dropped()
        self._put(head, frame)
        return True

    def _note_dropped(self) -> None:
        """Records how many exchanges are missing here."""
        dropped, self._dropped_now = self._dropped_now, 0
        self._put(json_event(raw_events.DROPPED, (dropped, self._now_ms())))

    def _put(self, head: bytes, frame: bytes = b"") -> None:
        self._raw_bytes += len(head) + len(frame)
        if self._raw_bytes > self._raw_limit:
            if not self.options.ring:
                self._leave(FULL)
                return
            self._turn(len(head) + len(frame))
        self._queue.put(head)
        if frame:
            self._queue.put(frame)

    def _turn(self, size: int) -> None:
        """Begins another raw file, with all that has to be known of the connections that are open."""
        self._queue.turn()
        self._raw_bytes = size
        heads = [json_event(HEAD, head_of(self.options, self._meta, self._begun))]
        for head in heads + [json_event(raw_events.OPENED, peer_facts(peer)) for peer in self._peers.values()]:
            self._queue.put(head)
            self._raw_bytes += len(head)

    # The end

    def _leave(self, reason: str) -> None:
        """Takes nothing more; what was taken is decoded and written."""
        self._running.connections.unlisten(self)
        self._writer.stop(reason)

    def _fail(self) -> None:
        """Ends the recording because a method above raised."""
        self._leave("it failed, as the log says")

    def _end(self, reason: str) -> None:
        """The writer has ended."""
        self._running.connections.unlisten(self)
        if self._done.done():  # it was given up
            return
        self.outcome = reason
        self._done.set_result(None)
        if reason != "stopped":
            get_logger().warning("recording ended", file=self.options.path, reason=reason)
        if self._dropped:
            get_logger().warning("recording lacks exchanges", file=self.options.path, dropped=self._dropped)

    async def stop(self) -> None:
        """Ends it, and returns when all is written."""
        if self.outcome is None:
            if self._dropped_now:
                self._note_dropped()
            self._leave("stopped")
            while not self._done.done():
                before = self._writer.progress
                await asyncio.wait([self._done], timeout=STOP_S)
                if not self._done.done() and self._writer.progress == before:
                    self._give_up()

    def _give_up(self) -> None:
        """Leaves the writer behind, which makes no progress: its disk does not return."""
        reason = self.outcome = "its writing took too long"
        get_logger().warning("recording is not whole", file=self.options.path, reason=reason)
        self._done.set_result(None)
