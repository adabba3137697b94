"""Decodes raw events into the files of a recording: JSON lines or a capture, one file or the two of a ring.

Runs in the thread that writes the raw events, and in any program that reads the recording of a broker that was killed.
Files consist of whole lines or blocks: a full disk cuts none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ..config.record_options import FORMER, Format, RecordOptions
from .exchange import FACTS, Exchange, Peer, exchange_of, library_of, peer_of
from .jsonl import JsonWriter
from .raw import RAW, Begun, Closed, Ended, Event, Full, Head, Opened, RawReader, append

if TYPE_CHECKING:
    from .pcapng import PcapngWriter

    Writer = JsonWriter | PcapngWriter

_WRITE_BYTES = 1 << 20
_END_BYTES = 1024  # of the size limit; kept for the last line


def _writer_of(options: RecordOptions) -> Writer:
    if options.format is Format.JSON:
        return JsonWriter(options.contents)
    from .pcapng import PcapngWriter  # only a capture needs dpkt

    return PcapngWriter(options.contents)


class Output:
    """Writes the file of a recording, or the two files of a ring. Raises OSError, and Full at the size limit. Takes
    over the descriptor."""

    def __init__(self, fd: int, options: RecordOptions, meta: dict[str, Any]) -> None:
        self._fd = fd
        self._path, self._ring = options.path, options.ring
        self._limit = options.file_bytes_max - _END_BYTES
        self._meta = dict(meta)
        self.writer = _writer_of(options)
        self._gathered = bytearray()
        self._size = 0  # with what is gathered
        self._introduced: set[int] = set()  # connections that are in this file
        if options.ring:
            with contextlib.suppress(FileNotFoundError):
                os.remove(self._path + FORMER)
        os.ftruncate(fd, 0)
        self._begin_file()
        self.flush()

    def _begin_file(self) -> None:
        self._introduced.clear()
        head = self.writer.head(self._meta)
        self._head_bytes = len(head)
        self._add(head)

    def put(self, peer: Peer, data: bytes, time_ms: int) -> bool:
        """Writes the newest event of a connection, after the connection's introduction. Returns False if no file has
        room."""
        for is_new in (False, True):
            intro = b"" if peer.number in self._introduced else self.writer.introduction(peer, time_ms)
            if self._size + len(intro) + len(data) <= self._limit:
                self._introduced.add(peer.number)
                self._add(intro + data)
                return True
            if not self._ring:
                raise Full
            if is_new or self._head_bytes + len(data) > self._limit:  # an oversized event must not remove others
                return False
            self._turn()
        return False

    def note(self, count: dict[str, Any], time_ms: int) -> None:
        """Writes counts, which belong to no connection."""
        data = self.writer.noted(count, time_ms)
        if self._size + len(data) <= self._limit + _END_BYTES:
            self._add(data)

    def forget(self, peer: Peer) -> None:
        """Drops the state of a closed connection."""
        self._introduced.discard(peer.number)
        self.writer.forget(peer)

    def _add(self, data: bytes) -> None:
        self._gathered += data
        self._size += len(data)
        if len(self._gathered) >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the gathered bytes: all of them, or none."""
        data, self._gathered = self._gathered, bytearray()
        self._size -= len(data)
        append(self._fd, data, self._size)
        self._size += len(data)

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
    """Takes raw events and writes the recording's files. Takes over the descriptor of the claimed file."""

    def __init__(self, fd: int, options: RecordOptions, meta: dict[str, Any]) -> None:
        self.output = Output(fd, options, meta)
        self._writer = self.output.writer
        self._peers: dict[int, Peer] = {}
        self._pending: dict[int, Exchange] = {}
        self._begin_ms = self._time_ms = int(meta["time_ms"])
        self._offset_ns = 0  # between time.perf_counter_ns and the broker's clock
        self._place = self._written = 0
        self.dropped = 0
        """Exchanges that are missing: for want of room in the queue, or in the files of a ring."""

    def take(self, event: Event, frame: bytes) -> None:
        """Decodes one event. Raises Full, OSError, and ValueError for a damaged one."""
        match event:
            case Begun():
                self._begun(event, frame)
            case Ended():
                exchange = self._pending.pop(event.number, None)
                if exchange is not None:  # None: its request is missing
                    self._ended(exchange, event, frame)
            case Opened():
                peer = self._peer(event)
                self.output.put(peer, b"", max(peer.opened_ms, self._begin_ms))
            case Closed():
                peer = self._peers.pop(event.connection, None)
                self._time_ms = event.time_ms
                if peer is not None:
                    self.output.put(peer, self._writer.closed(peer, self._time_ms), self._time_ms)
                    self.output.forget(peer)
            case Head():
                pass

    def _peer(self, event: Opened | Begun) -> Peer:
        peer = self._peers.get(event.connection)
        if peer is None:
            values = msgspec.msgpack.decode(event.facts, type=tuple[Any, ...])
            peer = self._peers[event.connection] = peer_of(dict(zip(FACTS, values, strict=True)))
        return peer

    def _drop(self, count: int) -> None:
        if count > 0:
            self.dropped += count
            self.output.note({"type": "dropped", "dropped": count}, self._time_ms)

    def _begun(self, event: Begun, frame: bytes) -> None:
        self._time_ms = event.time_ms
        self._drop(event.place - self._place - 1)
        self._place = event.place
        exchange = exchange_of(
            event.number, self._peer(event), event.time_ms, self._since_1970_ns(event.time_ms, event.begun_ns), frame
        )
        exchange.principal = event.principal
        self._pending[exchange.number] = exchange
        if not self.output.put(exchange.peer, self._writer.begun(exchange), self._time_ms):
            del self._pending[exchange.number]
            self._drop(1)

    def _since_1970_ns(self, time_ms: int, begun_ns: int) -> int:
        """Returns when an exchange began: within its millisecond of the broker's clock, at the true distance from other
        exchanges."""
        least, found = time_ms * 1_000_000, begun_ns + self._offset_ns
        if not least <= found < least + 1_000_000:
            found = min(max(found, least), least + 999_999)
            self._offset_ns = found - begun_ns
        return found

    def _ended(self, exchange: Exchange, event: Ended, frame: bytes) -> None:
        peer = exchange.peer
        peer.library = library_of(peer.listener, event.software_name, event.software_version)
        exchange.duration_ns, exchange.ending = event.duration_ns, event.ending
        exchange.reason, exchange.fault = event.reason, event.fault
        exchange.response_bytes = event.response_bytes
        exchange.response = frame if event.has_frame else None
        if self.output.put(peer, self._writer.ended(exchange), self._time_ms):
            self._written += 1
        else:
            self._drop(1)

    def end(self, reason: str, place: int = 0) -> None:
        """Writes the exchanges that have not ended, and the last line. Requests after the last event, up to this place,
        were dropped. Raises OSError."""
        self._drop(place - self._place)
        for exchange in self._pending.values() if isinstance(self._writer, JsonWriter) else ():
            with contextlib.suppress(Full):
                self.output.put(exchange.peer, self._writer.ended(exchange), self._time_ms)
        note = {"type": "end", "reason": reason, "exchanges": self._written, "dropped_in_all": self.dropped}
        self.output.note(note, self._time_ms)
        self.output.flush()


def head_of(reader: RawReader) -> Head | None:
    """Reads the first event of a raw file; returns None for a file without raw events."""
    with contextlib.suppress(msgspec.MsgspecError):
        found = reader.read()
        if found is not None and isinstance(found[0], Head):
            return found[0]
    return None


def holds_raw_events(path: str) -> bool:
    """Returns whether a file is empty or has raw events."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return not os.fstat(file.fileno()).st_size or head_of(RawReader(file.fileno())) is not None
    return False


def finish(path: str) -> None:
    """Decodes the raw files that a killed broker left beside its recording, and removes them. Does nothing if there are
    none, if they hold no raw events, or if a broker still records. Raises OSError."""
    raw_paths = [one for one in (path + RAW + FORMER, path + RAW) if os.path.isfile(one)]
    with contextlib.ExitStack() as files:
        readers = [RawReader(files.enter_context(open(one, "rb")).fileno()) for one in raw_paths]
        head = head_of(readers[0]) if readers else None
        if head is None:
            return
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        files.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        conversion = Conversion(os.dup(fd), RecordOptions(path, head.max_bytes, head.ring, head.contents), head.meta)
        files.callback(conversion.output.close)
        conversion.end(_converted(conversion, readers))
    for one in raw_paths:
        os.remove(one)


def _converted(conversion: Conversion, readers: Iterable[RawReader]) -> str:
    """Decodes all events, and returns the reason of the recording's end. Raises OSError."""
    try:
        for reader in readers:
            while (found := reader.read()) is not None:
                conversion.take(*found)
    except Full:
        return "full"
    except (ValueError, msgspec.MsgspecError):  # as after a power loss, which may leave zeros
        return "the broker was killed, and its raw file is damaged"
    return "the broker was killed"
