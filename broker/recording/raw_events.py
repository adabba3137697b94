"""The raw form of a recording: what the broker's loop writes down of an event, and how it is read back.

An event is its length (4 bytes, little-endian), a byte for its kind, and a body. Requests and responses are packed
structures with the frame after them, because there are many; bodies of the other kinds are JSON. The first event of
each raw file is HEAD: the recording's options and its first line, and how many requests came before this file.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from .exchange import HEAD_BYTES, Ending, Exchange, Peer, client_id_of

HEAD, OPENED, BEGUN, ENDED, SOFTWARE, CLOSED, DROPPED = range(7)
_LENGTH = struct.Struct("<I")
_BEGUN = struct.Struct("<BQQqqhhi")  # kind, number, connection, time_ms, begun_ns, key, version, correlation id
_ENDED = struct.Struct("<BQqIbBHH")  # kind, number, duration_ns, size, frame follows, ending, sizes of reason and fault
_BEGUN_HEAD, _ENDED_HEAD = (struct.Struct("<I" + one.format[1:]) for one in (_BEGUN, _ENDED))
_ENDINGS = tuple(Ending)
_ENDING_NUMBERS: Mapping[Ending, int] = {ending: number for number, ending in enumerate(_ENDINGS)}
_TEXT_BYTES_MAX = 60_000
_READ_BYTES = 1 << 20


def json_event(kind: int, value: Any) -> bytes:
    """An event whose body is JSON."""
    data = json.dumps(value).encode()
    return _LENGTH.pack(1 + len(data)) + bytes((kind,)) + data


def begun_event(exchange: Exchange, frame_bytes: int) -> bytes:
    """The event of a request up to its frame, which has to follow."""
    return _BEGUN_HEAD.pack(
        _BEGUN.size + frame_bytes,
        BEGUN,
        exchange.number,
        exchange.peer.number,
        exchange.time_ms,
        exchange.begun_ns,
        exchange.api_key,
        exchange.api_version,
        exchange.correlation_id,
    )


def ended_event(exchange: Exchange, frame_bytes: int | None) -> bytes:
    """The event of a response up to its frame, which has to follow; None where there is no frame."""
    reason = exchange.reason.encode("utf-8", "replace")[:_TEXT_BYTES_MAX] if exchange.reason else b""
    fault = exchange.fault.encode("utf-8", "replace")[:_TEXT_BYTES_MAX] if exchange.fault is not None else b""
    head = _ENDED_HEAD.pack(
        _ENDED.size + len(reason) + len(fault) + (frame_bytes or 0),
        ENDED,
        exchange.number,
        exchange.duration_ns,
        exchange.response_bytes,
        frame_bytes is not None,
        _ENDING_NUMBERS[exchange.ending],
        len(reason),
        len(fault),
    )
    return head + reason + fault if reason or fault else head


class Ended(NamedTuple):
    """A response, as it is read."""

    number: int
    duration_ns: int
    response_bytes: int
    response: bytes | None
    ending: Ending
    reason: str
    fault: str | None


def read_json(event: bytes) -> Any:
    """The body of an event that is JSON."""
    return json.loads(event[1:])


def read_begun(event: bytes, peers: Mapping[int, Peer]) -> Exchange:
    """The request of a BEGUN event. Raises KeyError for a connection that is not among `peers`."""
    _, number, connection, time_ms, begun_ns, key, version, correlation_id = _BEGUN.unpack_from(event)
    frame = event[_BEGUN.size :]
    length = int.from_bytes(frame[HEAD_BYTES - 2 : HEAD_BYTES], "big", signed=True)
    client_id = client_id_of(frame, key, version, length)
    return Exchange(
        number, peers[connection], time_ms, begun_ns, key, version, correlation_id, client_id, frame, len(frame)
    )


def read_ended(event: bytes) -> Ended:
    """The response of an ENDED event."""
    _, number, duration_ns, size, has_frame, ending, reason_bytes, fault_bytes = _ENDED.unpack_from(event)
    fault_at = _ENDED.size + reason_bytes
    frame_at = fault_at + fault_bytes
    reason, fault = event[_ENDED.size : fault_at].decode("utf8", "replace"), None
    if fault_bytes:
        fault = event[fault_at:frame_at].decode("utf8", "replace")
    response = event[frame_at:] if has_frame else None
    return Ended(number, duration_ns, size, response, _ENDINGS[ending], reason, fault)


class RawReader:
    """Reads the events of a raw file in their order, also while the file grows. The descriptor stays the caller's."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._at = 0  # in the buffer
        self._end = 0  # of the buffer, in the file
        self.position = 0
        """The bytes of all events that were read."""

    def read(self) -> bytes | None:
        """The next event without its length; None where the file has no whole one."""
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
            rest = self._buffer[self._at :]
            more = os.pread(self._fd, max(_READ_BYTES, size), self._end)
            self._buffer, self._at = rest + more, 0
            self._end += len(more)
        return len(self._buffer) - self._at >= size
