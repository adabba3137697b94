"""What the broker tells the process that writes a recording: cheap to make, whole to read.

Owns the form of these notes: how long it is, a byte that says what it tells, and what follows that; who reads one gets
it without its length. The first is JSON, of what is to be written; a connection is JSON, too, as there are few;
exchanges are packed, and their frames lie behind.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from .exchange import HEAD_BYTES, Ending, Exchange, Peer, client_id_of
from .recorded import peer_facts
from .spool import LENGTH

START, OPENED, BEGUN, ENDED, SOFTWARE, CLOSED, DROPPED, END = range(8)
_BEGUN = struct.Struct("<IBQQqqhhi")  # number, connection, time_ms, begun_ns, key, version, id
_ENDED = struct.Struct("<IBQqIiBHH")  # number, duration_ns, size, bytes or -1, ending, bytes of reason and fault
_COUNTS = struct.Struct("<IBQq")
_BEGUN_READ, _ENDED_READ, _COUNTS_READ = (struct.Struct("<" + one.format[2:]) for one in (_BEGUN, _ENDED, _COUNTS))
_ENDINGS = tuple(Ending)
_NUMBERS: Mapping[Ending, int] = {ending: number for number, ending in enumerate(_ENDINGS)}
_TEXT_BYTES_MAX = 60_000
ENDED_BYTES = _ENDED.size  # of a note that tells no more than that an exchange has ended


def _json(kind: int, value: Any) -> bytes:
    data = json.dumps(value).encode()
    return LENGTH.pack(1 + len(data)) + bytes((kind,)) + data


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
        _BEGUN_READ.size + exchange.request_bytes,
        BEGUN,
        exchange.number,
        exchange.peer.number,
        exchange.time_ms,
        exchange.begun_ns,
        exchange.api_key,
        exchange.api_version,
        exchange.correlation_id,
    )


def ended(exchange: Exchange, kept: int, *, says_why: bool = True) -> bytes:
    """The head of an answer's note; so many bytes follow, -1 where there is none or it is not told."""
    reason = fault = b""
    if says_why and exchange.reason:
        reason = exchange.reason.encode("utf-8", "replace")[:_TEXT_BYTES_MAX]
    if says_why and exchange.fault is not None:
        fault = exchange.fault.encode("utf-8", "replace")[:_TEXT_BYTES_MAX]
    head = _ENDED.pack(
        _ENDED_READ.size + len(reason) + len(fault) + max(0, kept),
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
    return _COUNTS.pack(_COUNTS_READ.size, CLOSED, peer.number, time_ms)


def dropped(count: int, time_ms: int) -> bytes:
    """So many exchanges are missing here."""
    return _COUNTS.pack(_COUNTS_READ.size, DROPPED, count, time_ms)


def end() -> bytes:
    """Nothing follows."""
    return LENGTH.pack(1) + bytes((END,))


class Ended(NamedTuple):
    """An answer, as it is read."""

    number: int
    duration_ns: int
    response_bytes: int
    response: bytes | None
    ending: Ending
    reason: str
    fault: str | None


def read_begun(data: memoryview, peers: Mapping[int, Peer]) -> Exchange:
    """A request. Raises KeyError for a connection that is not among `peers`."""
    _, number, connection, time_ms, begun_ns, key, version, correlation_id = _BEGUN_READ.unpack_from(data)
    frame = bytes(data[_BEGUN_READ.size :])
    length = int.from_bytes(frame[HEAD_BYTES - 2 : HEAD_BYTES], "big", signed=True)
    client_id = client_id_of(frame, key, version, length)
    return Exchange(
        number, peers[connection], time_ms, begun_ns, key, version, correlation_id, client_id, frame, len(frame)
    )


def read_ended(data: memoryview) -> Ended:
    """An answer."""
    _, number, duration_ns, size, kept, ending, reason, fault = _ENDED_READ.unpack_from(data)
    begin = _ENDED_READ.size + reason + fault
    texts = bytes(data[_ENDED_READ.size : begin])
    frame = bytes(data[begin:]) if kept >= 0 else None
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
    _, number, other = _COUNTS_READ.unpack_from(data)
    return number, other


def read_json(data: memoryview) -> Any:
    """What a note says that is JSON."""
    return json.loads(bytes(data[1:]))
