"""What passes from the broker to the process that writes a recording: cheap to make, whole to read.

Owns the form of these notes: a head of fixed size that says how long the note is and what it tells, and bytes. The
first note is JSON, of what is to be written; a connection is JSON, too, as there are few; exchanges are packed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .exchange import Ending, Exchange, Peer
from .recorded import peer_facts

START, OPENED, BEGUN, ENDED, SOFTWARE, CLOSED, DROPPED, END = range(8)
HEAD = struct.Struct("<IB")  # the length of what follows, and what it is
_BEGUN = struct.Struct("<IBQQqqhhi")  # number, connection, time_ms, begun_ns, key, version, id
_ENDED = struct.Struct("<IBQqIiBHH")  # number, duration_ns, size, bytes or -1, ending, bytes of reason and fault
_CLOSED = struct.Struct("<IBQq")
_DROPPED = struct.Struct("<IBQq")
_ENDINGS = tuple(Ending)
_NUMBERS: Mapping[Ending, int] = {ending: number for number, ending in enumerate(_ENDINGS)}
_TEXT_BYTES_MAX = 60_000
READ_BYTES = 1 << 20
_PACKED_BEGUN, _PACKED_ENDED = _BEGUN.size - HEAD.size, _ENDED.size - HEAD.size


def _json(kind: int, value: Any) -> bytes:
    data = json.dumps(value).encode()
    return HEAD.pack(len(data), kind) + data


def start(value: Mapping[str, Any]) -> bytes:
    """How the conversation begins."""
    return _json(START, value)


def opened(peer: Peer) -> bytes:
    """A connection."""
    return _json(OPENED, peer_facts(peer))


def software(peer: Peer) -> bytes:
    """What a connection's client now calls itself."""
    return _json(SOFTWARE, (peer.number, peer.origin.software_name, peer.origin.software_version))


def begun(exchange: Exchange) -> bytes:
    """The head of a request's note; all its bytes follow."""
    return _BEGUN.pack(
        _PACKED_BEGUN + exchange.request_bytes,
        BEGUN,
        exchange.number,
        exchange.peer.number,
        exchange.time_ms,
        exchange.begun_ns,
        exchange.api_key,
        exchange.api_version,
        exchange.correlation_id,
    )


def ended(exchange: Exchange, kept: int) -> bytes:
    """The head of an answer's note; so many bytes follow, -1 where there is none or it is not told."""
    reason = exchange.reason.encode("utf-8", "replace")[:_TEXT_BYTES_MAX] if exchange.reason else b""
    fault = b"" if exchange.fault is None else exchange.fault.encode("utf-8", "replace")[:_TEXT_BYTES_MAX]
    head = _ENDED.pack(
        _PACKED_ENDED + len(reason) + len(fault) + max(0, kept),
        ENDED,
        exchange.number,
        exchange.duration_ns,
        exchange.response_bytes,
        kept,
        _NUMBERS[exchange.ending],
        len(reason),
        len(fault),
    )
    return head + reason + fault if reason or fault else head


def closed(peer: Peer, time_ms: int) -> bytes:
    """A connection is gone."""
    return _CLOSED.pack(_CLOSED.size - HEAD.size, CLOSED, peer.number, time_ms)


def dropped(count: int, time_ms: int) -> bytes:
    """So many exchanges are missing here."""
    return _DROPPED.pack(_DROPPED.size - HEAD.size, DROPPED, count, time_ms)


def end() -> bytes:
    """Nothing follows."""
    return HEAD.pack(0, END)


class Ended(NamedTuple):
    """An answer, as it is read."""

    number: int
    duration_ns: int
    response_bytes: int
    response: bytes | None
    ending: Ending
    reason: str
    fault: str | None


class Notes:
    """Reads notes from a pipe, without copying them."""

    def __init__(self) -> None:
        self._buffer = bytearray(READ_BYTES)
        self._end = 0

    def read(self, fd: int) -> bool:
        """Reads what there is, at most what there is room for; False at the end of the pipe."""
        with memoryview(self._buffer) as view, view[self._end :] as room:
            count = os.readv(fd, [room])
        self._end += count
        return count > 0

    def whole(self) -> Iterator[tuple[int, memoryview]]:
        """(kind, what follows the head) of each whole note, valid until the next is asked for. To be exhausted before
        the next `read`."""
        position = needed = 0
        with memoryview(self._buffer) as view:
            while self._end - position >= HEAD.size:
                size, kind = HEAD.unpack_from(view, position)
                needed = HEAD.size + size
                if position + needed > self._end:
                    break
                with view[position + HEAD.size : position + needed] as note:
                    yield kind, note
                position += needed
                needed = 0
            rest = bytes(view[position : self._end]) if position else b""
        if position:
            self._buffer[: len(rest)] = rest
            self._end = len(rest)
        wanted = max(READ_BYTES, needed)
        if len(self._buffer) < wanted:
            self._buffer += bytes(wanted - len(self._buffer))
        elif self._end == 0 and len(self._buffer) > READ_BYTES:
            self._buffer = bytearray(READ_BYTES)


def read_begun(data: memoryview, peers: Mapping[int, Peer]) -> Exchange:
    """A request. Raises KeyError for a connection that is not among `peers`."""
    number, connection, time_ms, begun_ns, key, version, correlation_id = struct.unpack_from("<QQqqhhi", data)
    frame = bytes(data[_PACKED_BEGUN:])
    client_id: str | None = None
    if len(frame) >= 10 and 0 <= (length := int.from_bytes(frame[8:10], "big", signed=True)) <= len(frame) - 10:
        client_id = frame[10 : 10 + length].decode("utf8", "replace")
    return Exchange(
        number, peers[connection], time_ms, begun_ns, key, version, correlation_id, client_id, frame, len(frame)
    )


def read_ended(data: memoryview) -> Ended:
    """An answer."""
    number, duration_ns, size, kept, ending, reason, fault = struct.unpack_from("<QqIiBHH", data)
    texts = bytes(data[_PACKED_ENDED : _PACKED_ENDED + reason + fault])
    frame = bytes(data[_PACKED_ENDED + reason + fault :]) if kept >= 0 else None
    return Ended(
        number,
        duration_ns,
        size,
        frame,
        _ENDINGS[ending],
        texts[:reason].decode("utf8", "replace"),
        texts[reason:].decode("utf8", "replace") if fault else None,
    )


def read_counts(data: memoryview) -> tuple[int, int]:
    """The two numbers of a note that a connection is gone, or of one that exchanges were dropped."""
    return struct.unpack_from("<Qq", data)
