"""One connection without any I/O: received bytes in, whole frames out, and the framing of a response.

Owns framing, the bound on a frame's size and the receive buffers; both sides of a connection use them. Knows nothing of
what is in a frame. The caller reads from the socket into `receive_buffer()`, reports the number of bytes with
`received(count)`, takes frames with `next_frame()` until None, and then calls `settle()`.

Buffers: a read goes into a buffer from a pool shared by all connections; a frame that is cut off by the end of a read
moves into a buffer of its own, which the next reads fill. So idle connections hold no memory, a large frame is received
straight into its place, and a frame's bytes may be written to until the next `settle()`. A peer that announces much
and sends little gets memory only as it sends: one read's worth, then eight times what it sent.
"""

from __future__ import annotations

import struct
from typing import Any

from .errors import ProtocolViolation

READ_BYTES = 128 * 1024  # larger frames get their own buffer; larger reads were not faster
FRAME_BYTES_MAX = 100 << 20  # socket.request.max.bytes
JOIN_PIECES = 512  # so many pieces are joined where a response has more of them
SMALL_PIECE_BYTES = 512  # pieces of this size on average are copied; not larger ones, as records or shared entries
_SIZE = struct.Struct(">i")


class BufferPool:
    """Receive buffers of READ_BYTES each, reused by all connections of one event loop."""

    def __init__(self) -> None:
        self._free: list[memoryview] = []

    def lend(self) -> memoryview:
        """A buffer for one read. It stays in the pool, and the next `take` returns it: a read that ends without bytes,
        as at the end of a stream, costs a closing connection no memory."""
        if not self._free:
            self._free.append(memoryview(bytearray(READ_BYTES)))
        return self._free[-1]

    def take(self) -> memoryview:
        """The buffer that was lent last, or another one. Its content is undefined."""
        return self._free.pop() if self._free else memoryview(bytearray(READ_BYTES))

    def give(self, buffer: memoryview) -> None:
        """Takes a buffer back; a few are kept."""
        if len(self._free) < 4:
            self._free.append(buffer)


class FrameReceiver:
    """The receiving half of one connection. Raises ProtocolViolation for a size that no frame has."""

    def __init__(self, pool: BufferPool, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._pool = pool
        self._frame_bytes_max = frame_bytes_max
        self._pooled: memoryview | None = None  # the buffer of the read under way
        self._own: memoryview | None = None  # holds what a former read left over
        self._start = 0  # of what is not taken yet, in the buffer in use
        self._end = 0

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go; never empty. Valid until another connection of the pool asks for one."""
        if self._own is not None:
            return self._own[self._end :]
        if self._pooled is None:
            return self._pool.lend()
        return self._pooled[self._end :]

    def received(self, count: int) -> None:
        """`count` bytes were written to the start of `receive_buffer()`."""
        if self._own is None and self._pooled is None:
            self._pooled = self._pool.take()
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size field, or None. Valid and writable until `settle()`."""
        buffer = self._own if self._own is not None else self._pooled
        if buffer is None or self._end - self._start < 4:
            return None
        start = self._start + 4
        stop = start + self._frame_size(buffer)
        if stop > self._end:
            return None
        self._start = stop
        return buffer[start:stop]

    @property
    def has_unread(self) -> bool:
        """Whether bytes were received that no frame took yet."""
        return self._end > self._start

    def settle(self) -> None:
        """The frames taken so far are done with: keeps what is left over and gives the read buffer back."""
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
        if whole <= left:  # frames that wait because the peer does not read its answers
            return left + 1
        return min(whole, max(READ_BYTES, 8 * left))

    def _frame_size(self, buffer: memoryview) -> int:
        (size,) = _SIZE.unpack_from(buffer, self._start)
        if not 0 <= size <= self._frame_bytes_max:
            head = bytes(buffer[self._start : self._start + 4])
            raise ProtocolViolation(
                f"a frame of {size} bytes; the most is {self._frame_bytes_max}{_other_protocol(head)}"
            )
        return size


def _other_protocol(head: bytes) -> str:
    """What the four bytes of an impossible size are in the protocols that meet a Kafka port by mistake."""
    if head[:2] in (b"\x16\x03", b"\x15\x03"):  # a handshake, an alert
        return "; this is TLS, and PLAINTEXT is spoken here: set security.protocol=PLAINTEXT"
    if head in (b"GET ", b"POST", b"PUT ", b"HEAD", b"HTTP"):
        return "; this is HTTP, and Kafka's protocol is spoken here"
    return ""


def add_response(parts: list[Any], ready: list[Any]) -> int:
    """Appends a response to `ready`: its size field, then `parts`, the pieces of the rest. No parts mean no response
    (acks=0). Returns the number of bytes added."""
    if not parts:
        return 0
    size = sum(map(len, parts))
    ready.append(_SIZE.pack(size))
    ready += parts
    return 4 + size


def joined(pieces: list[Any]) -> list[Any]:
    """The same bytes in fewer pieces: runs of small ones are joined. libuv refuses (EINVAL) to write more than some
    million of them at once, as a response of DescribeConfigs may have."""
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
