"""The raw files of a recording: a thread writes events to them while the broker runs, and decodes them later.

An event is the sizes of its head and of its frame (4 bytes each, little-endian), the head in MessagePack, and the frame
of a request or response. The first event of each file is a Head.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..config.record_options import FORMER, LEAST_BYTES, RecordOptions
from ..security.authorizer import ANONYMOUS
from .exchange import Buffer, Ending, Exchange

RAW = ".raw"  # after the name of the recording
SIZES = struct.Struct("<II")
_TEXT_MAX = 1000
_READ_BYTES = 1 << 20


class Full(Exception):
    """The recording has reached its size."""


class Head(msgspec.Struct, array_like=True, tag=0):
    """The recording's options and its first line."""

    max_bytes: Annotated[int, msgspec.Meta(ge=LEAST_BYTES)]
    ring: bool
    contents: bool
    meta: dict[str, Any]


class Opened(msgspec.Struct, array_like=True, tag=1):
    """A connection, with the values of its `peer_facts`. Each request repeats them: a ring loses its oldest events."""

    connection: int
    facts: msgspec.Raw


class Begun(msgspec.Struct, array_like=True, tag=2):
    """A request; its frame follows. `place` counts requests from the beginning of the recording, also dropped ones."""

    place: int
    number: int
    connection: int
    facts: msgspec.Raw
    time_ms: int
    begun_ns: int
    principal: str = ANONYMOUS


class Ended(msgspec.Struct, array_like=True, tag=3):
    """The end of an exchange; its response follows if `has_frame`. The software is that of its connection."""

    number: int
    software_name: str | None
    software_version: str | None
    duration_ns: int
    ending: Ending
    reason: str
    fault: str | None
    response_bytes: int
    has_frame: bool


class Closed(msgspec.Struct, array_like=True, tag=4):
    """The end of a connection."""

    connection: int
    time_ms: int


Event = Head | Opened | Begun | Ended | Closed
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Event).decode


def event_head(event: Event, frame_bytes: int = 0) -> bytes:
    """Returns an event up to its frame, which must follow."""
    head = _encode(event)
    return SIZES.pack(len(head), frame_bytes) + head


def ended_of(exchange: Exchange, has_frame: bool) -> Ended:
    """Returns the end of an exchange as an event."""
    library, fault = exchange.peer.library, exchange.fault
    return Ended(
        exchange.number,
        library.software_name,
        library.software_version,
        exchange.duration_ns,
        exchange.ending,
        _text(exchange.reason) if exchange.reason else "",
        None if fault is None else _text(fault),
        exchange.response_bytes,
        has_frame,
    )


def _text(text: str) -> str:
    return text[:_TEXT_MAX].encode("utf-8", "replace").decode()


def append(fd: int, data: Buffer, size: int) -> None:
    """Appends bytes to a file of this size: all of them, or none. Raises OSError."""
    rest, end = memoryview(data), size
    try:
        while rest:  # a disk that is getting full writes less, and raises the error at the next call
            count = os.pwrite(fd, rest, end)
            rest, end = rest[count:], end + count
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, size)
        raise


class RawReader:
    """Reads the events of a raw file in order, also while the file grows. The caller keeps and closes the
    descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = b""
        self._at = 0  # in the buffer
        self._end = 0  # of the buffer, in the file

    @property
    def position(self) -> int:
        """The bytes of all events that were read."""
        return self._end - len(self._buffer) + self._at

    def read(self) -> tuple[Event, bytes] | None:
        """Returns the next event and its frame; None while the file has no whole one. Raises msgspec.MsgspecError for
        damage."""
        if not self._has(SIZES.size):
            return None
        head_bytes, frame_bytes = SIZES.unpack_from(self._buffer, self._at)
        if not self._has(SIZES.size + head_bytes + frame_bytes):
            return None
        head_at = self._at + SIZES.size
        frame_at = head_at + head_bytes
        self._at = frame_at + frame_bytes
        return _decode(self._buffer[head_at:frame_at]), self._buffer[frame_at : self._at]

    def _has(self, size: int) -> bool:
        missing = size - (len(self._buffer) - self._at)
        if missing > 0:
            # A damaged size may be gigabytes, for which `pread` takes memory before it reads.
            if missing > os.fstat(self.fd).st_size - self._end:
                return False
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
        self._options, self._mode = options, mode
        self._head = event_head(Head(options.max_bytes, options.ring, options.contents, dict(meta)))
        self._files: deque[RawReader] = deque()
        self._size = 0  # of the newest file
        self.written_bytes = self.converted_bytes = 0
        self.remove()
        self._begin()

    def write(self, events: Buffer) -> None:
        """Appends whole events: all of them, or none. Raises Full if they reach the size limit, unless this is a ring:
        the next ones are then written to another file."""
        append(self._files[-1].fd, events, self._size)
        self._size += len(events)
        self.written_bytes += len(events)
        if self._size > self._options.file_bytes_max:
            if not self._options.ring:
                raise Full
            self._begin()

    def _begin(self) -> None:
        """Begins another file, and removes the older of two earlier ones."""
        while len(self._files) > 1:
            self._drop_oldest()
        if self._options.contents:
            if self._files:
                os.replace(self._path, self._path + FORMER)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self._mode)
        else:
            with tempfile.TemporaryFile(dir=os.path.dirname(self._path) or os.curdir) as file:
                fd = os.dup(file.fileno())
        self._files.append(RawReader(fd))
        append(fd, self._head, 0)
        self._size = len(self._head)
        self.written_bytes += self._size

    def read(self) -> tuple[Event, bytes] | None:
        """Returns the next event to decode, and its frame; None if no whole event is written."""
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
