"""The framing of one connection: received bytes in, whole frames out, responses with their size field.

Both sides of a connection use it; the content of a frame is opaque here. The caller reads from the socket into
`receive_buffer()`, passes the number of bytes to `received(count)`, takes frames with `next_frame()` until it returns
None, and then calls `settle()`.

Buffers: a read goes into a buffer from a pool shared by all connections. A frame that is incomplete at the end of a
read moves into a buffer of its own, which later reads fill. Idle connections therefore hold no memory, a large frame is
received without copies, and the bytes of a frame may be modified until the next `settle()`. A peer that announces a
large frame and sends little does not exhaust memory: the buffer is one read in size at first, then at most eight times
the bytes received.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from .errors import ProtocolViolation

READ_BYTES = 128 * 1024  # larger frames get their own buffer; larger reads were not faster
FRAME_BYTES_MAX = 100 << 20  # socket.request.max.bytes
JOIN_BYTES = 64 * 1024  # below it one joined write is cheaper than a list of pieces
JOIN_PIECES = 512  # a response with more pieces is joined in runs of this many
# a run is copied only if its pieces are at most this large on average; records and shared entries are larger
SMALL_PIECE_BYTES = 512
_SIZE = struct.Struct(">i")


class BufferPool:
    """Receive buffers of READ_BYTES each, reused by all connections of one event loop."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def lend(self) -> memoryview:
        """Returns a buffer for one read. It stays in the pool, and the next `take` returns it, so that a read without
        bytes, as at the end of a stream, allocates nothing for a closing connection."""
        if not self._free:
            self._free.append(memoryview(bytearray(READ_BYTES)))
        return self._free[-1]

    def take(self) -> memoryview:
        """Removes and returns the buffer that `lend` returned last, or another one. Its content is undefined."""
        return self._free.pop() if self._free else memoryview(bytearray(READ_BYTES))

    def give(self, buffer: memoryview) -> None:
        """Returns a buffer to the pool, which keeps up to four."""
        if len(self._free) < 4:
            self._free.append(buffer)


class FrameReceiver:
    """The receiving half of one connection. Raises ProtocolViolation for a frame size out of bounds."""

    def __init__(self, pool: BufferPool, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._pool = pool
        self.frame_bytes_max = frame_bytes_max
        """The most bytes of a frame; may be changed between frames."""
        self._pooled: memoryview | None = None  # the buffer of the current read
        self._own: memoryview | None = None  # holds the incomplete frame of earlier reads
        self._start = 0  # of the unread bytes in the current buffer
        self._end = 0

    def receive_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes; never empty. Valid until another connection of the pool calls this."""
        if self._own is not None:
            return self._own[self._end :]
        if self._pooled is None:
            return self._pool.lend()
        return self._pooled[self._end :]

    def received(self, count: int) -> None:
        """Records that `count` bytes were written to the start of `receive_buffer()`."""
        if self._own is None and self._pooled is None:
            self._pooled = self._pool.take()
        self._end += count

    def next_frame(self) -> memoryview | None:
        """Returns the next whole frame without its size field, or None. Valid and writable until `settle()`."""
        buffer = self._own if self._own is not None else self._pooled
        if buffer is None or self._end - self._start < 4:
            return None
        start = self._start + 4
        stop = start + self._frame_size(buffer)
        if stop > self._end:
            return None
        self._start = stop
        return buffer[start:stop]

    def put_back(self, frames: Sequence[Any]) -> None:
        """Makes these frames the next ones, in this order, before the bytes that no frame has included yet."""
        pieces = [piece for frame in frames for piece in (_SIZE.pack(len(frame)), frame)]
        data = b"".join([*pieces, self.unread(self._end - self._start)])
        self._own = memoryview(bytearray(len(data) + READ_BYTES // 32))
        self._own[: len(data)] = data
        self._start, self._end = 0, len(data)
        if self._pooled is not None:
            self._pool.give(self._pooled)
            self._pooled = None

    def unread(self, count: int) -> bytes:
        """Returns the first bytes, at most `count`, that no frame has included yet."""
        buffer = self._own if self._own is not None else self._pooled
        return b"" if buffer is None else bytes(buffer[self._start : min(self._start + count, self._end)])

    @property
    def has_unread(self) -> bool:
        """Whether received bytes remain that no frame has included yet."""
        return self._end > self._start

    def settle(self) -> None:
        """Releases the frames returned so far: keeps the incomplete rest and returns the read buffer to the pool."""
        left = self._end - self._start
        buffer = self._own if self._own is not None else self._pooled
        if buffer is None:
            return
        if left == 0:
            own = None
        elif buffer is self._own and self._start == 0 and self._end < len(buffer):
            return  # still filling
        else:
            own = memoryview(bytearray(self._own_size(buffer, left)))
            own[:left] = buffer[self._start : self._end]
        if self._pooled is not None:
            self._pool.give(self._pooled)
            self._pooled = None
        self._own, self._start, self._end = own, 0, left

    def _own_size(self, buffer: memoryview, left: int) -> int:
        if left < 4:
            return READ_BYTES // 32
        whole = 4 + self._frame_size(buffer)
        if whole <= left:  # whole frames are left when the peer does not read its responses
            return left + 1
        return min(whole, max(READ_BYTES, 8 * left))

    def _frame_size(self, buffer: memoryview) -> int:
        (size,) = _SIZE.unpack_from(buffer, self._start)
        if not 0 <= size <= self.frame_bytes_max:
            head = bytes(buffer[self._start : self._start + 4])
            raise ProtocolViolation(
                f"a frame of {size} bytes; the most is {self.frame_bytes_max}{_other_protocol(head)}"
            )
        return size


def _other_protocol(head: bytes) -> str:
    """Names the protocol, TLS or HTTP, of a client that connected to a Kafka port by mistake."""
    if head[:2] in (b"\x16\x03", b"\x15\x03"):  # a handshake, an alert
        return "; this is TLS, and PLAINTEXT is spoken here: set security.protocol=PLAINTEXT"
    if head in (b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP"):
        return "; this is HTTP, and Kafka's protocol is spoken here"
    return ""


def add_response(parts: list[Any], ready: list[Any]) -> int:
    """Appends a response to `ready`: its size field, then `parts`, the pieces of the rest. A request with acks=0 has no
    parts and gets no response. Returns the number of bytes added."""
    if not parts:
        return 0
    size = sum(map(len, parts))
    ready.append(_SIZE.pack(size))
    ready += parts
    return 4 + size


def write_pieces(transport: Any, pieces: list[Any]) -> None:
    """Writes one or more pieces to a transport."""
    if len(pieces) == 1:
        transport.write(pieces[0])
    elif sum(map(len, pieces)) < JOIN_BYTES:
        transport.write(b"".join(pieces))
    else:
        # asyncio's writelines() in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 never pauses the protocol
        # (CPython gh-127655): without a write() after it, nothing waits for a peer that does not read.
        *parts, last = joined(pieces)
        transport.writelines(parts)
        transport.write(last)


def joined(pieces: list[Any]) -> list[Any]:
    """Joins runs of small pieces. libuv refuses (EINVAL) to write more than some million pieces at once, which a
    DescribeConfigs response can have."""
    if len(pieces) <= JOIN_PIECES:
        return pieces
    out: list[Any] = []
    for start in range(0, len(pieces), JOIN_PIECES):
        run = pieces[start : start + JOIN_PIECES]
        if sum(map(len, run)) <= SMALL_PIECE_BYTES * len(run):
            out.append(b"".join(run))
        else:
            out += run
    return out
