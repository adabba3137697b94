"""The broker's side of a recording: hands on what the tap tells to the process that writes it.

Owns the file's beginning, the spool in which notes wait for that process, and what becomes of a recording: running,
stopped by whoever asked for it, or ended by itself (full, disk full, killed), which costs a warning and nothing else.
Nothing here waits for the other process but `stop`. What does not fit into SPOOL_BYTES is dropped, and counted; what is
needed to end what has begun always has room. Credentials are blanked before anything is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.record_options import Format, RecordError, RecordOptions
from ..config.serve_options import WILDCARDS, StartupError
from ..logs import get_logger
from . import notes
from .exchange import Exchange, Peer
from .files import FORMER, claim
from .jsonl import JsonWriter
from .pcapng import PcapngWriter
from .secrets import blanked, may_carry
from .spool import SpoolWriter

if TYPE_CHECKING:
    from ..metrics.client_ledger import Origin
    from ..network.server import Running

SPOOL_BYTES = 1 << 30
GATHER_BYTES = 128 << 10  # of small notes are put there at once
GATHER_S = 0.02  # what is less waits so long
ALONE_BYTES = 16 << 10  # a frame above it is written from where it lies
# The other process is told when hardly anything came for a moment, of so much, or after so long: decoding takes many
# times what the broker needs for the same bytes, and whatever runs beside a busy one slows it by more than its priority
# lets expect. So it waits for a pause, and is then told of a little at a time, as the pause may end: of twice as much
# when it has read the last that soon. Of what is old it is told without a pause, but not of seconds of work.
QUIET_BYTES = 4 << 10
LITTLE_BYTES = 512 << 10
PORTION_BYTES = 8 << 20  # the most, in a pause
TELL_BYTES = SPOOL_BYTES * 3 // 4
TELL_S = 10.0
OLD_BYTES = 64 << 20
CLOSING_TURNS = 3
STOP_S = 60.0  # for the other process to read anything
NICENESS = 19  # what the broker and its clients need comes first
_POSITION = struct.Struct("=Q")
_LAST_SPARE = 256  # for what is said last
_PROCESS = "recorder_process"


class RecordingState(NamedTuple):
    """What there is to tell of the recording that runs, or of the last one. Sizes in bytes; `ended` says why it has,
    None while it runs. `exchanges` are those that were handed on; `waiting_bytes` are still to be written."""

    options: RecordOptions
    since_ms: int
    exchanges: int
    dropped: int
    waiting_bytes: int
    size_bytes: int
    ended: str | None


class Recorder:
    """At most one recording at a time of what a broker is asked and answers. All methods are for the broker's loop."""

    def __init__(self) -> None:
        self._last: _Recording | None = None

    @property
    def state(self) -> RecordingState | None:
        """Of the recording that runs, or of the last; None where there was none."""
        return None if self._last is None else self._last.state

    @property
    def is_running(self) -> bool:
        """Whether a recording runs."""
        return self._last is not None and self._last.outcome is None

    def start(self, running: Running, options: RecordOptions, fd: int | None = None) -> None:
        """Records from now on; `fd` is the claimed file, if it was claimed before. Raises RecordError."""
        if self.is_running:
            raise RecordError(f"{self._last.options.path} is being recorded to already")  # type: ignore[union-attr]
        self._last = _Recording(running, options, claim(options) if fd is None else fd)

    async def stop(self) -> None:
        """Ends the recording, if there is one, and returns when all of it is written."""
        if self._last is not None:
            for _ in range(CLOSING_TURNS):  # of connections that were aborted just now
                await asyncio.sleep(0)
            await self._last.stop()


def claimed(options: RecordOptions) -> int:
    """The file of a recording that is to begin with the broker. Raises StartupError."""
    try:
        return claim(options)
    except RecordError as error:
        raise StartupError(f"--record: {error}") from error


def let_go(options: RecordOptions, fd: int) -> None:
    """Gives up a file that was claimed for nothing; one that is new goes."""
    if os.fstat(fd).st_size == 0:
        with contextlib.suppress(OSError):
            os.remove(options.path)
    os.close(fd)


def meta_of(running: Running, options: RecordOptions) -> dict[str, Any]:
    """What a recording says of its broker."""
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


class _Recording:
    """One recording, from its beginning to its end: a sink of the tap."""

    def __init__(self, running: Running, options: RecordOptions, fd: int) -> None:
        self.options = options
        self.outcome: str | None = None
        """Why it ended; None while it runs."""
        self._running = running
        self._loop = running.state.loop
        self._ready: list[bytes] = []  # gathers
        self._ready_bytes = 0
        self._free_bytes = 0  # as far as is known
        self._timer: asyncio.TimerHandle | None = None
        self._told_position = self._seen_position = 0
        self._portion_bytes = LITTLE_BYTES  # of which it was told last, in a pause
        self._untold_since: float | None = None
        self._origins: dict[int, Origin] = {}  # of the connections that were told of
        self._open: set[int] = set()  # exchanges whose beginning was told
        # A file that ends is full then, as nothing gets smaller by being written.
        ends = options.contents and not options.ring
        self._tell_bytes = min(TELL_BYTES, options.max_bytes) if ends else TELL_BYTES
        self._exchanges = self._dropped = self._dropped_now = 0
        self._heard = b""
        self._gone = self._loop.create_future()
        meta = meta_of(running, options)
        self._since_ms: int = meta["time_ms"]
        spool: SpoolWriter | None = None
        try:
            size = self._begin_file(fd, meta)
            self._spool = spool = SpoolWriter(os.path.dirname(options.path) or os.curdir, SPOOL_BYTES)
            self._process = self._spawn(fd, spool)
        except OSError as error:
            if spool is not None:
                spool.close()
            raise RecordError(f"{options.path} cannot be recorded to: {error.strerror or error}") from error
        finally:
            os.close(fd)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._loop.add_reader(self._process.stdout.fileno(), self._hear)
        task = {
            "path": options.path,
            "ring": options.ring,
            "max_bytes": options.max_bytes,
            "contents": options.contents,
            "format": options.format,
            "size": size,
            "meta": meta,
        }
        self._add(notes.start(task))
        self._tap = running.connections.own_tap
        running.connections.listen(self, ALONE_BYTES, reads_passing=True, failed=self._fail)

    def _begin_file(self, fd: int, meta: dict[str, Any]) -> int:
        """The file is there, with its head in it, before any client is served."""
        writer = JsonWriter(True) if self.options.format is Format.JSON else PcapngWriter()
        head = writer.head(meta)
        if self.options.ring:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.options.path + FORMER)
        os.ftruncate(fd, 0)
        os.pwrite(fd, head, 0)
        return len(head)

    @staticmethod
    def _spawn(fd: int, spool: SpoolWriter) -> subprocess.Popen[bytes]:
        module = f"{__name__.rpartition('.')[0]}.{_PROCESS}"
        passed = (fd, *spool.fds)
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, (os.getpid(), *passed))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=passed,
            process_group=0,  # so that Ctrl-C is the broker's alone
        )
        with contextlib.suppress(OSError, AttributeError):  # from its first import on
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
            os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))
        return process

    @property
    def state(self) -> RecordingState:
        """What there is to tell."""
        size = 0
        for path in (self.options.path, self.options.path + FORMER)[: 1 + self.options.ring]:
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
        waiting = 0 if self._gone.done() else self._ready_bytes + self._spool.waiting_bytes
        return RecordingState(self.options, self._since_ms, self._exchanges, self._dropped, waiting, size, self.outcome)

    # What the tap tells

    def opened(self, peer: Peer) -> None:
        """A connection is there."""
        if self._offer(notes.opened(peer)):
            self._origins[peer.number] = peer.origin

    def begun(self, exchange: Exchange) -> None:
        """A request came."""
        known = exchange.peer.number in self._origins
        frame = self._shown(exchange, exchange.request, is_request=True)
        if known and self._offer(notes.begun(exchange), frame, exchange.request_bytes, notes.ENDED_BYTES):
            self._open.add(exchange.number)
        else:
            self._dropped += 1
            self._dropped_now += 1

    def ended(self, exchange: Exchange) -> None:
        """Its answer left, or will not."""
        if exchange.number not in self._open:  # it began before the recording, or was dropped
            return
        self._open.discard(exchange.number)
        peer = exchange.peer
        if self._origins[peer.number] is not peer.origin and self._offer(notes.software(peer)):
            self._origins[peer.number] = peer.origin
        self._exchanges += 1
        frame, size = self._shown(exchange, exchange.response, is_request=False), exchange.response_bytes
        kept = -1 if frame is None and not size else size
        if not self._offer(notes.ended(exchange, kept), frame, size) and not self._offer(notes.ended(exchange, -1)):
            # For so much there is room, as it was left when this began.
            self._add(notes.ended(exchange, -1, says_why=False))

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        if self._origins.pop(peer.number, None) is not None:
            self._offer(notes.closed(peer, self._running.state.clock.now_ms()))

    def _shown(self, exchange: Exchange, frame: bytes | None, *, is_request: bool) -> bytes | None:
        """A frame as it may be kept. None where there is none, or it passes and may be kept as it is."""
        if not may_carry(exchange.api_key, exchange.api_version) or not (frame or self._tap.passing):
            return frame
        frame = frame or b"".join(self._tap.passing)
        return blanked(frame, exchange.api_key, exchange.api_version, is_request)

    # The other process

    def _offer(self, head: bytes, frame: bytes | None = None, size: int = 0, spare: int = 0) -> bool:
        """Hands on a note, with a frame of so many bytes that passes if it is not here; False if there is no room for
        it, for `spare` bytes more, and for the end of what has begun."""
        if self.outcome is not None:
            return False
        needed = self._ready_bytes + len(head) + size + spare + len(self._open) * notes.ENDED_BYTES + _LAST_SPARE
        if needed > self._free_bytes:
            self._free_bytes = self._spool.free_bytes
            if needed > self._free_bytes:
                return False
        if self._dropped_now and self._free_bytes > SPOOL_BYTES // 2:
            self._note_dropped()
        if size <= ALONE_BYTES:
            self._add(head, frame)
        else:
            self._ready.append(head)  # goes with its frame: the other process is never told of half a note
            self._hand_on(self._tap.passing if frame is None else (frame,))
        return True

    def _note_dropped(self) -> None:
        """Says how many exchanges are missing here."""
        self._add(notes.dropped(self._dropped_now, self._running.state.clock.now_ms()))
        self._dropped_now = 0

    def _add(self, head: bytes, frame: bytes | None = None) -> None:
        """One more note gathers."""
        self._ready.append(head)
        self._ready_bytes += len(head)
        if frame is not None:
            self._ready.append(frame)
            self._ready_bytes += len(frame)
        if self._ready_bytes >= GATHER_BYTES:
            self._hand_on()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._pass_time)

    def _hand_on(self, frame: Sequence[Any] = ()) -> None:
        """What has gathered, and then a frame, go to where the other process reads them."""
        if not self._store(frame):
            return
        if SPOOL_BYTES - self._free_bytes >= self._tell_bytes:
            self._tell()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._pass_time)

    def _pass_time(self) -> None:
        """What gathers is stored, so that it outlives this process, and told of when it is time."""
        self._timer = None
        if not self._store():
            return
        now = self._loop.time()
        if self._untold_since is None:
            self._untold_since = now
        came = self._spool.position - self._seen_position
        self._seen_position = self._spool.position
        read = self._spool.position - self._spool.waiting_bytes
        if now - self._untold_since >= TELL_S:
            self._untold_since = now
            self._tell(read + OLD_BYTES)
        elif came <= QUIET_BYTES:
            is_quick = read >= self._told_position
            self._portion_bytes = min(self._portion_bytes * 2, PORTION_BYTES) if is_quick else LITTLE_BYTES
            self._tell(read + self._portion_bytes)
        else:
            self._timer = self._loop.call_later(GATHER_S, self._pass_time)

    def _store(self, frame: Sequence[Any] = ()) -> bool:
        """What has gathered, and then a frame, go to the spool; False if it takes nothing, which ends the recording."""
        pieces = (b"".join(self._ready), *frame)
        self._ready.clear()
        self._ready_bytes = 0
        try:
            self._spool.put(pieces)
        except OSError as error:
            self._give_up(error.strerror or str(error))
            return False
        self._free_bytes = self._spool.free_bytes
        return True

    def _tell(self, limit: int | None = None) -> None:
        """Says how far the spool may be read: to its end, or at least to a position in it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ready and not self._store():
            return
        end = position = self._spool.position
        if limit is not None and limit < end:
            position = max(limit, self._told_position)
            self._timer = self._loop.call_later(GATHER_S, self._pass_time)
        else:
            self._untold_since = None
            self._portion_bytes = LITTLE_BYTES
        if position == self._told_position:
            return
        try:
            os.write(self._stdin, _POSITION.pack(position))
            self._told_position = position
        except BlockingIOError:  # it has not read what it was told long ago
            self._timer = self._timer or self._loop.call_later(TELL_S, self._pass_time)
        except OSError:  # it is gone, which its output tells of
            pass

    def _hear(self) -> None:
        """The other process says why it ends, and ends."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self._heard += data
            return
        self._loop.remove_reader(fd)
        self._end()
        if not self._gone.done():
            self._gone.set_result(None)

    def _fail(self) -> None:
        """It could not take in what it was told of: what was told before is written."""
        with contextlib.suppress(Exception):  # what it was may be so again
            self._tell()
        self._give_up("it failed, as the log says")

    def _give_up(self, reason: str) -> None:
        """Takes nothing more; what is in the spool is written."""
        self._leave()
        if self.outcome is None:
            self.outcome = reason
            get_logger().warning("the recording has ended", file=self.options.path, reason=reason)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _end(self) -> None:
        """No process is there that writes."""
        self._leave()
        if self.outcome is None:
            self.outcome = self._reason()
            get_logger().warning("the recording has ended", file=self.options.path, reason=self.outcome)
        self._spool.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _reason(self) -> str:
        try:
            return str(json.loads(self._heard)["reason"])
        except (ValueError, KeyError, TypeError):
            return "the process that writes it has ended"

    def _leave(self) -> None:
        self._running.connections.unlisten(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """Ends it, and returns when all is written."""
        if self.outcome is None:
            self._running.connections.unlisten(self)
            if self._dropped_now:
                self._note_dropped()
            self._add(notes.end())
            self._tell()
            self.outcome = self.outcome or "stopped"
        waiting = -1
        while not self._gone.done() and waiting != (waiting := self._spool.waiting_bytes):
            await asyncio.wait([self._gone], timeout=STOP_S)
        if not self._gone.done():
            self._process.kill()
            await self._gone
            get_logger().warning("the recording is not whole: its writing took too long", file=self.options.path)
        elif self._heard and self.outcome == "stopped":
            self.outcome = self._reason()
            get_logger().warning("the recording has ended", file=self.options.path, reason=self.outcome)
