"""The process that writes a recording, so that neither decoding nor a slow disk holds a broker up.

Owns the files from the moment when they are the recording's: their sizes, the turns of a ring, what stands in them.
Notes (`notes.py`) lie in a spool that the broker fills; standard input says how far it may be read. A line of JSON goes
out by standard output when there is something to tell: that the recording is full or cannot be written. It ends with
its input, so that what a broker said until it was killed is written, too. Files hold whole lines or blocks; one that a
full disk cut is cut again before that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ..config.record_options import Format
from . import notes
from .contents import without_contents
from .exchange import Exchange, Peer
from .files import FORMER
from .jsonl import JsonWriter
from .pcapng import PcapngWriter
from .recorded import Parts, origin_of, peer_of
from .spool import SpoolReader, write_all

_WRITE_BYTES = 1 << 20
_END_BYTES = 1024  # of the limit of a file; kept for what is said last
_POSITION_BYTES = 8
_TOLD_BYTES = 1 << 16
_LOOK_S = 1.0  # where a copy of the broker's process holds the pipe open


def _bytes(parts: Parts) -> int:
    return sum(map(len, parts))


class Full(Exception):
    """The recording has reached its size."""


class Writer(Protocol):
    """The form of a file: what happens as bytes."""

    def head(self, meta: dict[str, Any]) -> bytes: ...

    def mark(self, peer: Peer) -> Any: ...

    def introduction(self, peer: Peer, mark: Any, time_ms: int) -> Parts: ...

    def begun(self, exchange: Exchange) -> Parts: ...

    def ended(self, exchange: Exchange) -> Parts: ...

    def closed(self, peer: Peer, time_ms: int) -> Parts: ...

    def noted(self, count: dict[str, Any], time_ms: int) -> Parts: ...


class Output:
    """The file, or the two files that take turns. Raises OSError, and Full at the limit."""

    def __init__(self, fd: int, task: dict[str, Any], writer: Writer) -> None:
        self._fd = fd
        self._path: str = task["path"]
        self._ring: bool = task["ring"]
        self._limit: int = (task["max_bytes"] // 2 if self._ring else task["max_bytes"]) - _END_BYTES
        self._meta: dict[str, Any] = task["meta"]
        self._writer = writer
        self._waiting: Parts = []
        self._waiting_bytes = 0
        self._size: int = task["size"]
        self._head_bytes = self._size
        self._told: set[int] = set()  # connections that this file has been told of
        writer.head(self._meta)

    def put(self, peer: Peer, make: Callable[[], Parts], time_ms: int) -> bool:
        """Writes what `make` makes, behind what has to be known of its connection. False if it is too large for any
        file."""
        mark = self._writer.mark(peer)
        parts = [] if peer.number in self._told else self._writer.introduction(peer, mark, time_ms)
        made = make()
        if not made and not parts:
            return True
        if self._size + _bytes(parts) + _bytes(made) > self._limit:
            if not self._ring:
                raise Full
            if self._head_bytes + _bytes(made) > self._limit:  # for nothing that does not fit goes what does
                return False
            self._turn()
            parts = self._writer.introduction(peer, mark, time_ms)
            if self._size + _bytes(parts) + _bytes(made) > self._limit:
                return False
        self._told.add(peer.number)
        self._add(parts + made)
        return True

    def note(self, parts: Parts) -> None:
        """Writes what is of no connection."""
        if self._size + _bytes(parts) <= self._limit + _END_BYTES:
            self._add(parts)

    def forget(self, peer: Peer) -> None:
        """A connection is gone."""
        self._told.discard(peer.number)

    def _add(self, parts: Parts) -> None:
        size = _bytes(parts)
        self._waiting += parts
        self._waiting_bytes += size
        self._size += size
        if self._waiting_bytes >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what has gathered: all of it, or nothing."""
        if not self._waiting:
            return
        start = self._size - self._waiting_bytes
        try:
            write_all(self._fd, self._waiting, start)
        except OSError:
            self._size = start
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise
        finally:
            self._waiting.clear()
            self._waiting_bytes = 0

    def _turn(self) -> None:
        """What was written is the older file from now on; a new one begins."""
        self.flush()
        os.replace(self._path, self._path + FORMER)
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        os.fchmod(fd, mode)  # the process's umask may have taken something away
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._told.clear()
        self._meta["part"] += 1
        self._add([self._writer.head(self._meta)])


class Recording:
    """Notes in, what they tell out."""

    def __init__(self, task: dict[str, Any], fd: int) -> None:
        self._contents: bool = task["contents"]
        is_json = task["format"] == Format.JSON
        self._writer: Writer = JsonWriter(self._contents) if is_json else PcapngWriter()
        self._leaves_contents = not self._contents and not is_json
        self.output = Output(fd, task, self._writer)
        self._peers: dict[int, Peer] = {}
        self._pending: dict[int, Exchange] = {}
        self._time_ms: int = task["meta"]["time_ms"]
        self._begin_ms = self._time_ms
        self._dropped = 0
        self._written = 0
        self.has_ended = False

    def take(self, note: memoryview) -> None:
        """One note. Raises Full, OSError."""
        kind = note[0]
        if kind == notes.BEGUN:
            self._begun(notes.read_begun(note, self._peers))
        elif kind == notes.ENDED:
            self._ended(notes.read_ended(note))
        elif kind == notes.OPENED:
            peer = peer_of(notes.read_json(note))
            self._peers[peer.number] = peer
            self._put(peer, list, max(peer.opened_ms, self._begin_ms))
        elif kind == notes.SOFTWARE:
            number, name, version = notes.read_json(note)
            peer = self._peers[number]
            peer.origin = origin_of(peer.listener, name, version)
        elif kind == notes.CLOSED:
            number, self._time_ms = notes.read_counts(note)
            peer = self._peers.pop(number)
            self._put(peer, lambda: self._writer.closed(peer, self._time_ms))
            self.output.forget(peer)
        elif kind == notes.DROPPED:
            count, self._time_ms = notes.read_counts(note)
            self._note_dropped(count)
        elif kind == notes.END:
            self.has_ended = True

    def _put(self, peer: Peer, make: Callable[[], Parts], time_ms: int | None = None) -> bool:
        return self.output.put(peer, make, self._time_ms if time_ms is None else time_ms)

    def _note_dropped(self, count: int) -> None:
        self._dropped += count
        self.output.note(self._writer.noted({"type": "dropped", "dropped": count}, self._time_ms))

    def _begun(self, exchange: Exchange) -> None:
        self._time_ms = exchange.time_ms
        exchange.request = self._kept(exchange.request, exchange, True)
        self._pending[exchange.number] = exchange
        if not self._put(exchange.peer, lambda: self._writer.begun(exchange)):
            del self._pending[exchange.number]
            self._note_dropped(1)

    def _ended(self, ended: notes.Ended) -> None:
        exchange = self._pending.pop(ended.number, None)
        if exchange is None:  # it began before the recording
            return
        exchange.duration_ns, exchange.ending = ended.duration_ns, ended.ending
        exchange.reason, exchange.fault = ended.reason, ended.fault
        exchange.response, exchange.response_bytes = ended.response, ended.response_bytes
        exchange.response = self._kept(exchange.response, exchange, False)
        if self._put(exchange.peer, lambda: self._writer.ended(exchange)):
            self._written += 1
        else:
            self._note_dropped(1)

    def _kept(self, frame: bytes | None, exchange: Exchange, is_request: bool) -> bytes | None:
        """A frame without what is not to be kept."""
        if frame is None or not self._leaves_contents:
            return frame
        return without_contents(frame, exchange.api_key, exchange.api_version, is_request)

    def end(self, reason: str) -> None:
        """What had begun and has no end is told as it is; then why nothing follows."""
        if isinstance(self._writer, JsonWriter):
            for exchange in self._pending.values():
                writer = self._writer
                with contextlib.suppress(Full):
                    self._put(exchange.peer, lambda writer=writer, exchange=exchange: writer.ended(exchange))
        note = {"type": "end", "reason": reason, "exchanges": self._written, "dropped_in_all": self._dropped}
        self.output.note(self._writer.noted(note, self._time_ms))
        self.output.flush()


def _tell(**value: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(value).encode() + b"\n")


def _told(parent: int, spool: SpoolReader) -> tuple[int, bool]:
    """Waits to be told how far the spool may be read; with whether more may come. When the broker is gone that is all
    that it wrote."""
    while not select.select([0], [], [], _LOOK_S)[0]:
        if os.getppid() != parent:
            return spool.written, False
    data = os.read(0, _TOLD_BYTES)
    return (int.from_bytes(data[-_POSITION_BYTES:], sys.byteorder), True) if data else (spool.written, False)


def record(parent: int, fd: int, memory: int, spooled: int) -> None:
    """Writes what comes until nothing does."""
    recording: Recording | None = None
    try:
        spool = SpoolReader(memory, spooled)
        goes_on = True
        while goes_on:
            position, goes_on = _told(parent, spool)
            for note in spool.notes(position):
                if recording is None:
                    recording = Recording(notes.read_json(note), fd)
                else:
                    recording.take(note)
            if recording is not None:
                recording.output.flush()
                if recording.has_ended:
                    recording.end("stopped")
                    return
        if recording is not None:
            recording.end("the broker is gone")
    except Full:
        assert recording is not None
        recording.end("full")
        _tell(reason="it has reached its size")
    except OSError as error:
        _tell(reason=error.strerror or str(error))
        if recording is not None:
            with contextlib.suppress(OSError, Full):
                recording.end("it could not be written")
    except Exception as error:
        _tell(reason=f"{type(error).__name__}: {error}")
        raise


def main() -> None:
    """The parent's id and the descriptors of the file and of the spool's two parts are the arguments."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the broker gets them, too, and ends this in its turn
    record(*map(int, sys.argv[1:5]))


if __name__ == "__main__":
    main()
