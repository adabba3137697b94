"""Raw events decoded into the files of a recording: JSON lines or a capture, one file or the two of a ring.

Runs beside the broker, in the thread that writes the raw events, and in any program that reads the recording of a
broker that was killed. Files hold whole lines or blocks: one that a full disk cuts is cut again before that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..config.record_options import FORMER, Format, RecordOptions
from . import raw_events
from .contents import without_contents
from .exchange import Exchange, Peer
from .jsonl import JsonWriter
from .raw_events import RawReader
from .raw_files import RAW, append
from .recorded import origin_of, peer_of

if TYPE_CHECKING:
    from .pcapng import PcapngWriter

    Writer = JsonWriter | PcapngWriter

_WRITE_BYTES = 1 << 20
_END_BYTES = 1024  # of the size limit; kept for the last line


class Full(Exception):
    """The recording has reached its size."""


def writer_of(options: RecordOptions) -> Writer:
    """The writer of a recording's format."""
    if options.format is Format.JSON:
        return JsonWriter(options.contents)
    from .pcapng import PcapngWriter  # only a capture needs dpkt

    return PcapngWriter()


class Output:
    """The file, or the two files of a ring. Raises OSError, and Full at the limit. Takes over the descriptor."""

    def __init__(
        self, fd: int, options: RecordOptions, meta: dict[str, Any], writer: JsonWriter | PcapngWriter
    ) -> None:
        self._fd = fd
        self._path = options.path
        self._ring = options.ring
        self._limit = (options.max_bytes // 2 if options.ring else options.max_bytes) - _END_BYTES
        self._meta = dict(meta)
        self._writer = writer
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._introduced: set[int] = set()  # connections that are in this file
        if options.ring:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path + FORMER)
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        self._size = 0
        self._begin_file()
        self.flush()

    def _begin_file(self) -> None:
        self._introduced.clear()
        head = self._writer.head(self._meta)
        self._head_bytes = len(head)
        self._add(head)

    def put(self, peer: Peer, make: Callable[[], bytes], time_ms: int) -> bool:
        """Writes what `make` returns, after the introduction of its connection. False if it fits into no file."""
        mark: Any = self._writer.mark(peer)
        intro = b"" if peer.number in self._introduced else self._writer.introduction(peer, mark, time_ms)
        made = make()
        if self._size + len(intro) + len(made) > self._limit:
            if not self._ring:
                raise Full
            if self._head_bytes + len(made) > self._limit:  # does not fit even alone: the rest of the file stays
                return False
            self._turn()
            intro = self._writer.introduction(peer, mark, time_ms)
            if self._size + len(intro) + len(made) > self._limit:
                return False
        self._introduced.add(peer.number)
        self._add(intro + made)
        return True

    def note(self, line: bytes) -> None:
        """Writes what belongs to no connection."""
        if self._size + len(line) <= self._limit + _END_BYTES:
            self._add(line)

    def forget(self, peer: Peer) -> None:
        """Removes a closed connection."""
        self._introduced.discard(peer.number)

    def _add(self, data: bytes) -> None:
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        self._size += len(data)
        if self._waiting_bytes >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes what is gathered: all of it, or nothing."""
        pieces, self._pieces = self._pieces, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        try:
            append(self._fd, b"".join(pieces))
        except OSError:
            self._size -= size
            raise

    def _turn(self) -> None:
        """Makes the file the older one of the ring, and begins a new one."""
        self.flush()
        os.replace(self._path, self._path + FORMER)
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        os.fchmod(fd, mode)  # the umask may have removed bits
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(self._fd)
        self._fd, self._size = fd, 0
        self._meta["part"] += 1
        self._begin_file()

    def close(self) -> None:
        """Closes the file, which ends its lock."""
        os.close(self._fd)


class Conversion:
    """Takes raw events and writes the recording's files. Takes over the descriptor of the claimed file.

    `head` is the body of the first HEAD event.
    """

    def __init__(self, fd: int, options: RecordOptions, head: Mapping[str, Any]) -> None:
        meta: dict[str, Any] = head["meta"]
        self._writer = writer_of(options)
        self._zeroes_contents = not options.contents and options.format is not Format.JSON  # lines leave them out
        self.output = Output(fd, options, meta, self._writer)
        self._peers: dict[int, Peer] = {}
        self._pending: dict[int, Exchange] = {}
        self._begin_ms = self._time_ms = int(meta["time_ms"])
        self._begun_count: int = head["exchanges"]
        self._written = 0
        self.dropped = 0

    def take(self, event: bytes) -> None:
        """Converts one event. Raises Full, OSError."""
        kind = event[0]
        if kind == raw_events.BEGUN:
            self._begun(raw_events.read_begun(event, self._peers))
        elif kind == raw_events.ENDED:
            self._ended(raw_events.read_ended(event))
        else:
            self._take_json(kind, raw_events.read_json(event))

    def _take_json(self, kind: int, value: Any) -> None:
        if kind == raw_events.HEAD:
            # A ring dropped a raw file before it was converted.
            missing, self._begun_count = value["exchanges"] - self._begun_count, value["exchanges"]
            if missing:
                self._note_dropped(missing)
        elif kind == raw_events.OPENED:
            peer = peer_of(value)
            if peer.number not in self._peers:
                self._peers[peer.number] = peer
                self.output.put(peer, bytes, max(peer.opened_ms, self._begin_ms))
        elif kind == raw_events.SOFTWARE:
            number, name, version = value
            self._peers[number].origin = origin_of(self._peers[number].listener, name, version)
        elif kind == raw_events.CLOSED:
            number, self._time_ms = value
            peer = self._peers.pop(number)
            self.output.put(peer, lambda: self._writer.closed(peer, self._time_ms), self._time_ms)
            self.output.forget(peer)
        elif kind == raw_events.DROPPED:
            count, self._time_ms = value
            self._note_dropped(count)

    def _note_dropped(self, count: int) -> None:
        self.dropped += count
        self.output.note(self._writer.noted({"type": "dropped", "dropped": count}, self._time_ms))

    def _begun(self, exchange: Exchange) -> None:
        self._begun_count += 1
        self._time_ms = exchange.time_ms
        exchange.request = self._kept(exchange.request, exchange, True)
        self._pending[exchange.number] = exchange
        if not self.output.put(exchange.peer, lambda: self._writer.begun(exchange), self._time_ms):
            del self._pending[exchange.number]
            self._note_dropped(1)

    def _ended(self, ended: raw_events.Ended) -> None:
        exchange = self._pending.pop(ended.number, None)
        if exchange is None:  # its request is in no file
            return
        exchange.duration_ns, exchange.ending = ended.duration_ns, ended.ending
        exchange.reason, exchange.fault = ended.reason, ended.fault
        exchange.response_bytes = ended.response_bytes
        exchange.response = self._kept(ended.response, exchange, False)
        if self.output.put(exchange.peer, lambda: self._writer.ended(exchange), self._time_ms):
            self._written += 1
        else:
            self._note_dropped(1)

    def _kept(self, frame: bytes | None, exchange: Exchange, is_request: bool) -> bytes | None:
        if frame is None or not self._zeroes_contents:
            return frame
        return without_contents(frame, exchange.api_key, exchange.api_version, is_request)

    def end(self, reason: str) -> None:
        """Writes the exchanges that have not ended, and the last line. Raises OSError."""
        if isinstance(self._writer, JsonWriter):
            for exchange in self._pending.values():
                line = self._writer.ended(exchange)
                with contextlib.suppress(Full):
                    self.output.put(exchange.peer, lambda line=line: line, self._time_ms)
        note = {"type": "end", "reason": reason, "exchanges": self._written, "dropped_in_all": self.dropped}
        self.output.note(self._writer.noted(note, self._time_ms))
        self.output.flush()


def head_of(options: RecordOptions, meta: dict[str, Any], exchanges: int = 0) -> dict[str, Any]:
    """The body of a HEAD event; `exchanges` requests were recorded before its file."""
    facts = {name: value for name, value in asdict(options).items() if name != "path"}
    return {"meta": meta, "options": facts, "exchanges": exchanges}


def options_of(path: str, raw_path: str) -> RecordOptions | None:
    """The options of the recording whose raw events are in a file; None for a file that has none."""
    try:
        with open(raw_path, "rb") as file:
            event = RawReader(file.fileno()).read()
        if event and event[0] == raw_events.HEAD:
            return RecordOptions(path, **raw_events.read_json(event)["options"])
    except (ValueError, KeyError, TypeError):
        pass
    return None


def finish(path: str) -> None:
    """Converts the raw files that a killed broker left beside its recording, and removes them. Does nothing where there
    are none, where they hold no raw events, or where a broker still records. Raises OSError."""
    raw_paths = [one for one in (path + RAW + FORMER, path + RAW) if os.path.isfile(one)]
    options = options_of(path, raw_paths[0]) if raw_paths else None
    if options is None:
        return
    with contextlib.ExitStack() as files:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        files.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        readers = [RawReader(files.enter_context(open(one, "rb")).fileno()) for one in raw_paths]
        conversion = Conversion(os.dup(fd), options, raw_events.read_json(readers[0].read() or b""))
        files.callback(conversion.output.close)
        conversion.end(_taken(conversion, readers))
    for one in raw_paths:
        os.remove(one)


def _taken(conversion: Conversion, readers: Iterable[RawReader]) -> str:
    """Converts all events, and returns why there are no more. Raises OSError."""
    try:
        for reader in readers:
            while (event := reader.read()) is not None:
                conversion.take(event)
    except Full:
        return "full"
    except (ValueError, LookupError, TypeError, struct.error):  # as after a power loss, which may leave zeros
        return "the broker is gone, and its raw file is damaged"
    return "the broker is gone"
