"""The broker's side of a recording: hands on what the tap tells to the process that writes it.

Owns the file's beginning, the pipe and what waits for it, and what becomes of a recording: running, stopped by whoever
asked for it, or ended by itself (full, disk full, killed), which costs a warning and nothing else. Nothing here waits
for the disk or for the other process but `stop`. What does not fit into BACKLOG_BYTES is dropped, and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from ..logs import get_logger
from ..options import WILDCARDS, StartupError
from . import pipe
from .backlog import Backlog
from .exchange import Exchange, Peer
from .files import FORMER, claim
from .jsonl import JsonWriter
from .pcapng import PcapngWriter
from .record_options import Format, RecordError, RecordOptions

if TYPE_CHECKING:
    from ..client_ledger import Origin
    from ..server import Running

BACKLOG_BYTES = 64 << 20
GATHER_BYTES = 128 << 10  # handed on at once
ALONE_BYTES = 16 << 10  # a frame above it goes into the pipe from where it lies
_PIECES = 1000  # of one call; the system takes 1024
GATHER_S = 0.02  # what is less waits so long
CLOSING_TURNS = 3
STOP_S = 60.0  # for the other process to write what it was told
_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ of Linux
_PROCESS = "recorder_process"


class RecordingState(NamedTuple):
    """What there is to tell of the recording that runs, or of the last one. Sizes in bytes; `ended` says why it has,
    None while it runs. `exchanges` are those that were handed on."""

    options: RecordOptions
    since_ms: int
    exchanges: int
    dropped: int
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
    for number, ((node_id, name), port) in enumerate(running.ports.items()):
        host, port = state.options.advertised_address(name, port, hosts[name], number // len(hosts) + 1)
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
        self._backlog = Backlog()  # waits for the pipe
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_pipe = False
        self._origins: dict[int, Origin] = {}
        self._dropped_now = 0
        self._unknown: set[int] = set()  # exchanges whose beginning was dropped
        self._exchanges = self._dropped = 0
        self._first: int | None = None  # exchange that began since
        self._told = b""
        self._gone = self._loop.create_future()
        meta = meta_of(running, options)
        self._since_ms: int = meta["time_ms"]
        try:
            size = self._begin_file(fd, meta)
            self._process = self._spawn(fd)
        except OSError as error:
            raise RecordError(f"{options.path} cannot be recorded to: {error.strerror or error}") from error
        finally:
            os.close(fd)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        os.set_blocking(self._stdin, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._stdin, _SET_PIPE_SIZE, _PIPE_BYTES)
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
        self._add(pipe.start(task))
        self._tap = running.connections.own_tap
        running.connections.listen(self, ALONE_BYTES, reads_passing=True)

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
    def _spawn(fd: int) -> subprocess.Popen[bytes]:
        module = f"{__name__.rpartition('.')[0]}.{_PROCESS}"
        return subprocess.Popen(
            [sys.executable, "-m", module, str(os.getpid()), str(fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(fd,),
            process_group=0,  # so that Ctrl-C is the broker's alone
        )

    @property
    def state(self) -> RecordingState:
        """What there is to tell."""
        size = 0
        for path in (self.options.path, self.options.path + FORMER)[: 1 + self.options.ring]:
            with contextlib.suppress(OSError):
                size += os.stat(path).st_size
        return RecordingState(self.options, self._since_ms, self._exchanges, self._dropped, size, self.outcome)

    # What the tap tells

    def opened(self, peer: Peer) -> None:
        """A connection is there."""
        self._origins[peer.number] = peer.origin
        self._add(pipe.opened(peer))

    def begun(self, exchange: Exchange) -> None:
        """A request came."""
        if self._first is None:
            self._first = exchange.number
        size = exchange.request_bytes
        if self._ready_bytes + self._backlog.size + size > BACKLOG_BYTES:
            self._unknown.add(exchange.number)
            self._dropped += 1
            self._dropped_now += 1
            return
        if size <= ALONE_BYTES:
            self._add(pipe.begun(exchange), exchange.request)
        else:
            self._add(pipe.begun(exchange))
            self._hand_on(self._tap.passing)

    def ended(self, exchange: Exchange) -> None:
        """Its answer left, or will not."""
        if self._first is None or exchange.number < self._first:
            return
        if self._unknown and exchange.number in self._unknown:
            self._unknown.discard(exchange.number)
            return
        peer = exchange.peer
        if self._origins.get(peer.number) is not peer.origin:
            self._origins[peer.number] = peer.origin
            self._add(pipe.software(peer))
        self._exchanges += 1
        frame, size = exchange.response, exchange.response_bytes
        if frame is None and not size:
            self._add(pipe.ended(exchange, -1))
        elif self._ready_bytes + self._backlog.size + size > BACKLOG_BYTES:
            self._add(pipe.ended(exchange, -1))  # its size stays
        elif size <= ALONE_BYTES:
            self._add(pipe.ended(exchange, size), frame)
        else:
            self._add(pipe.ended(exchange, size))
            self._hand_on(self._tap.passing if frame is None else (frame,))

    def closed(self, peer: Peer) -> None:
        """A connection is gone."""
        self._origins.pop(peer.number, None)
        self._add(pipe.closed(peer, self._running.state.clock.now_ms()))

    # The pipe

    def _add(self, head: bytes, frame: bytes | None = None) -> None:
        if self.outcome is not None:
            return
        if self._dropped_now and self._backlog.size + self._ready_bytes < BACKLOG_BYTES // 2:
            note = pipe.dropped(self._dropped_now, self._running.state.clock.now_ms())
            self._dropped_now = 0
            self._add(note)
        self._ready.append(head)
        self._ready_bytes += len(head)
        if frame is not None:
            self._ready.append(frame)
            self._ready_bytes += len(frame)
        if self._ready_bytes >= GATHER_BYTES:
            self._hand_on()
        elif self._timer is None:
            self._timer = self._loop.call_later(GATHER_S, self._hand_on)

    def _hand_on(self, frame: Sequence[bytes | memoryview] = ()) -> None:
        """What has gathered, and then a frame, go into the pipe, as far as that has room; the rest waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.outcome is not None and frame:
            return
        pieces = [b"".join(self._ready), *frame] if len(frame) < _PIECES else [b"".join((*self._ready, *frame))]
        self._ready.clear()
        self._ready_bytes = 0
        written = 0
        if not self._waits_for_pipe:
            try:
                written = os.writev(self._stdin, pieces)
            except BlockingIOError:
                pass
            except OSError:  # it is gone, which its output tells of
                return
        for piece in pieces:
            size = len(piece)
            if written >= size:
                written -= size
                continue
            self._backlog.put(memoryview(piece)[written:])
            written = 0
        if self._backlog.size and not self._waits_for_pipe:
            self._waits_for_pipe = True
            self._loop.add_writer(self._stdin, self._write)

    def _write(self) -> None:
        """The pipe has room for more."""
        backlog = self._backlog
        try:
            while backlog.size:
                backlog.taken(os.write(self._stdin, backlog.first()))
        except BlockingIOError:
            return
        except OSError:  # as above
            backlog.clear()
        self._waits_for_pipe = False
        self._loop.remove_writer(self._stdin)

    def _drop_pipe(self) -> None:
        self._backlog.clear()
        if self._waits_for_pipe:
            self._waits_for_pipe = False
            self._loop.remove_writer(self._stdin)

    def _hear(self) -> None:
        """The other process says why it ends, and ends."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self._told += data
            return
        self._loop.remove_reader(fd)
        self._end()
        if not self._gone.done():
            self._gone.set_result(None)

    def _end(self) -> None:
        """No process is there that writes."""
        self._leave()
        if self.outcome is None:
            self.outcome = self._reason()
            get_logger().warning("the recording has ended", file=self.options.path, reason=self.outcome)
        self._drop_pipe()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)

    def _reason(self) -> str:
        try:
            return str(json.loads(self._told)["reason"])
        except (ValueError, KeyError, TypeError):
            return "the process that writes it has ended"

    def _leave(self) -> None:
        self._running.connections.unlisten(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ready.clear()
        self._ready_bytes = 0

    async def stop(self) -> None:
        """Ends it, and returns when all is written."""
        if self.outcome is None:
            self._running.connections.unlisten(self)
            if self._dropped_now:
                self._ready.append(pipe.dropped(self._dropped_now, self._running.state.clock.now_ms()))
                self._dropped_now = 0
            self._add(pipe.end())
            self.outcome = "stopped"
            self._hand_on()
        await asyncio.wait([self._gone], timeout=STOP_S)
        if not self._gone.done():
            self._process.kill()
            await self._gone
            get_logger().warning("the recording is not whole: its writing took too long", file=self.options.path)
        elif self._told and self.outcome == "stopped":
            self.outcome = self._reason()
            get_logger().warning("the recording has ended", file=self.options.path, reason=self.outcome)
