"""The raw files of a recording: a thread writes events to them while the broker runs, and decodes them later.

An event is its length (4 bytes, little-endian), a byte for its kind, and a body. Requests and responses, the most
frequent events, have a packed structure and the frame as their body; other bodies are JSON. The first event of each
file is HEAD: the recording's options, its first line, and the number of requests before this file.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..config.record_options import FORMER, RecordOptions
from .exchange import Ending, Exchange, Peer, exchange_of

HEAD, OPENED, BEGUN, ENDED, SOFTWARE, CLOSED, DROPPED = range(7)
RAW = ".raw"  # after the name of the recording
_LENGTH = struct.Struct("<I")
_BEGUN = struct.Struct("<BQQqq")  # kind, number, connection, time_ms, begun_ns
_ENDED = struct.Struct("<BQqIbBHH")  # kind, number, duration_ns, size, frame follows, ending, sizes of reason and fault
_ENDINGS = tuple(Ending)
_ENDING_NUMBERS: Mapping[Ending, int] = {ending: number for number, ending in enumerate(_ENDINGS)}
_TEXT_BYTES_MAX = 60_000
_READ_BYTES = 1 << 20


class Full(Exception):
    """The recording has reached its size."""


def append(fd: int, data: bytes) -> None:
    """Appends bytes to a file: all of them, or none. Raises OSError."""
    start = os.lseek(fd, 0, os.SEEK_CUR)
    try:
        rest = memoryview(data)
        while rest:  # a disk that is getting full writes less, and raises the error at the next call
            rest = rest[os.write(fd, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, start)
            os.lseek(fd, start, os.SEEK_SET)
        raise


def event_head(kind: int, value: Any, frame: bytes | None = None) -> bytes:
    """Returns an event up to its frame, which must follow. `value` is the exchange of a BEGUN or ENDED event, else
    JSON."""
    if kind == BEGUN:
        head = _BEGUN.pack(kind, value.number, value.peer.number, value.time_ms, value.begun_ns)
    elif kind == ENDED:
        reason, fault = _text(value.reason), _text(value.fault)
        has_frame, ending = frame is not None, _ENDING_NUMBERS[value.ending]
        sizes = len(reason), len(fault)
        head = _ENDED.pack(kind, value.number, value.duration_ns, value.response_bytes, has_frame, ending, *sizes)
        head += reason + fault
    else:
        head = bytes((kind,)) + json.dumps(value).encode()
    return _LENGTH.pack(len(head) + len(frame or b"")) + head


def _text(text: str | None) -> bytes:
    return text.encode("utf-8", "replace")[:_TEXT_BYTES_MAX] if text else b""


def read_json(event: bytes) -> Any:
    """Returns the body of an event that is JSON. Raises ValueError."""
    return json.loads(event[1:])


def read_begun(event: bytes, peers: Mapping[int, Peer]) -> Exchange:
    """Returns the request of a BEGUN event. Raises KeyError for a connection that is not among `peers`."""
    _, number, connection, time_ms, begun_ns = _BEGUN.unpack_from(event)
    return exchange_of(number, peers[connection], time_ms, begun_ns, event[_BEGUN.size :])


def read_ended(event: bytes, pending: dict[int, Exchange]) -> Exchange | None:
    """Takes the exchange of an ENDED event out of `pending`, and completes it; returns None if it is not there."""
    _, number, duration_ns, size, has_frame, ending, reason_bytes, fault_bytes = _ENDED.unpack_from(event)
    exchange = pending.pop(number, None)
    if exchange is not None:
        fault_at = _ENDED.size + reason_bytes
        frame_at = fault_at + fault_bytes
        exchange.duration_ns, exchange.ending = duration_ns, _ENDINGS[ending]
        exchange.reason = event[_ENDED.size : fault_at].decode("utf8", "replace")
        exchange.fault = event[fault_at:frame_at].decode("utf8", "replace") if fault_bytes else None
        exchange.response, exchange.response_bytes = event[frame_at:] if has_frame else None, size
    return exchange


class RawReader:
    """Reads the events of a raw file in order, also while the file grows. The caller keeps and closes the
    descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = b""
        self._at = 0  # in the buffer
        self._end = 0  # of the buffer, in the file
        self.position = 0
        """The bytes of all events that were read."""

    def read(self) -> bytes | None:
        """Returns the next event without its length; None while the file has no whole one."""
        if not self._has(_LENGTH.size):
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._at)
        if not self._has(_LENGTH.size + length):
            return None
        start = self._at + _LENGTH.size
        self._at = start + length
        self.position += _LENGTH.size + length
        return self._buffer[start : self._at]

    def _has(self, size: int) -> bool:
        if len(self._buffer) - self._at < size:
            more = os.pread(self.fd, max(_READ_BYTES, size), self._end)
            self._buffer, self._at = self._buffer[self._at :] + more, 0
            self._end += len(more)
        return len(self._buffer) - self._at >= size


class RawFiles:
    """The raw files beside a recording: one, or two for a ring, oldest first. Raises OSError.

    A recording without contents has unnamed raw files, so that no contents outlive the broker.
    """

    def __init__(self, options: RecordOptions, meta: Mapping[str, Any], mode: int) -> None:
        self._path = options.path + RAW
        self._options, self._meta, self._mode = options, meta, mode
        self._files: deque[RawReader] = deque()
        self._pieces: list[bytes] = []
        self._size = 0  # of the newest file
        self._peers: dict[int, dict[str, Any]] = {}  # open connections
        self._begun_count = 0
        self.written_bytes = self.converted_bytes = 0
        self.remove()
        self._begin()

    def put(self, kind: int, value: Any, frame: bytes | None = None) -> None:
        """Appends an event; `flush` writes it. Raises Full at the size limit, unless this is a ring."""
        head = event_head(kind, value, frame)
        size = len(head) + len(frame or b"")
        if self._size + size > self._options.file_bytes_max:
            if not self._options.ring:
                raise Full
            self._begin()
        self._pieces.append(head)
        if frame:
            self._pieces.append(frame)
        self._size += size
        if kind == BEGUN:
            self._begun_count += 1
        elif kind == OPENED:
            self._peers[value["number"]] = value
        elif kind == SOFTWARE:
            self._peers[value[0]] |= {"software_name": value[1], "software_version": value[2]}
        elif kind == CLOSED:
            del self._peers[value[0]]

    def _begin(self) -> None:
        """Begins another file with the facts of all open connections, and removes the older of two earlier files."""
        self.flush()
        while len(self._files) > 1:
            self._drop_oldest()
        has_name = self._options.contents
        if self._files and has_name:
            os.replace(self._path, self._path + FORMER)
        if has_name:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self._mode)
        else:
            with tempfile.TemporaryFile(dir=os.path.dirname(self._path) or os.curdir) as file:
                fd = os.dup(file.fileno())
        self._files.append(RawReader(fd))
        options = {name: value for name, value in asdict(self._options).items() if name != "path"}
        heads = [event_head(HEAD, {"meta": self._meta, "options": options, "exchanges": self._begun_count})]
        self._pieces = heads + [event_head(OPENED, facts) for facts in self._peers.values()]
        self._size = sum(map(len, self._pieces))

    def flush(self) -> None:
        """Writes the events to the newest file: all of them, or none."""
        data, self._pieces = b"".join(self._pieces), []
        if data:
            self.write(data)
            self.written_bytes += len(data)

    def write(self, data: bytes) -> None:
        """Appends bytes to the newest file: all of them, or none."""
        append(self._files[-1].fd, data)

    def read(self) -> bytes | None:
        """Returns the next event to decode; None if no whole event is written."""
        while True:
            reader = self._files[0]
            before = reader.position
            event = reader.read()
            self.converted_bytes += reader.position - before
            if event is not None or len(self._files) == 1:
                return event
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        reader = self._files.popleft()
        self.converted_bytes += os.fstat(reader.fd).st_size - reader.position
        os.close(reader.fd)

    def remove(self) -> None:
        """Closes and removes all files."""
        while self._files:
            os.close(self._files.popleft().fd)
        for path in (self._path, self._path + FORMER) if self._options.contents else ():
            with contextlib.suppress(OSError):
                os.remove(path)
