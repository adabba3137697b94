"""Exchanges as a capture that Wireshark reads: pcapng with a made-up Ethernet, IP and TCP around the frames.

Owns the bytes of the blocks and packets, both ways. Each connection is one TCP stream with a handshake, the right
sequence numbers and checksums, and an end; each frame begins a segment of its own. What the wire does not tell stands
in comments, as JSON: the recording's facts at the section's head, a connection's at its SYN, the number of an exchange
at its request, and at a bare acknowledgement what became of a request that got no answer. Times are in nanoseconds.

Sources: draft-ietf-opsawg-pcapng, RFC 791, RFC 8200, RFC 9293. Integers of blocks are little-endian, those of packets
big-endian.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .exchange import Ending, Exchange, Peer
from .packets import ACK, FIN, PUSH, SYN, Segment, ends, headers, parsed
from .recorded import Parts, Recording, Times, exchange_of, note_software, peer_facts, peer_of

NOTHING = memoryview(b"")
SEGMENT_BYTES = 60_000  # of a frame in one packet
COMMENT_BYTES_MAX = 65_000  # an option's length has 16 bits

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_BYTE_ORDER = 0x1A2B3C4D
_COMMENT, _END = 1, 0
_HARDWARE, _APPLICATION = 2, 4  # options of a section
_NAME, _RESOLUTION = 2, 9  # options of an interface
_DROPPED = 5  # an option of statistics
_NANOSECONDS = b"\x09"
_ETHERNET = 1
_WORD = 0xFFFFFFFF
_BLOCK, _PACKET_HEAD = struct.Struct("<II"), struct.Struct("<IIIIIII")
_SIZE = struct.Struct(">i")


# --- blocks


def _option(code: int, data: bytes) -> bytes:
    return struct.pack("<HH", code, len(data)) + data + bytes(-len(data) % 4)


def _commented(comment: Mapping[str, Any] | None) -> bytes:
    if comment is None:
        return b""
    text = json.dumps(comment, separators=(",", ":")).encode()
    return _option(_COMMENT, text[:COMMENT_BYTES_MAX]) + _option(_END, b"")


def _block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return b"".join((_BLOCK.pack(kind, size), body, struct.pack("<I", size)))


def section(meta: Mapping[str, Any]) -> bytes:
    """The head of a file: the section, and an interface for each listener of each node in `meta["nodes"]`."""
    options = _option(_COMMENT, json.dumps(meta, separators=(",", ":")).encode()[:COMMENT_BYTES_MAX])
    options += _option(_APPLICATION, f"Ottla {meta.get('ottla', '')}".encode()) + _option(_END, b"")
    blocks = [_block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + options)]
    for node in meta.get("nodes") or [{"node_id": -1, "listener": "?"}]:
        name = f"node {node['node_id']} {node['listener']}".encode()
        options = _option(_NAME, name) + _option(_RESOLUTION, _NANOSECONDS) + _option(_END, b"")
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + options))
    return b"".join(blocks)


def _packet(interface: int, time_ns: int, data: Parts, comment: Mapping[str, Any] | None) -> Parts:
    options = _commented(comment)
    length = sum(map(len, data))
    padding = -length % 4
    size = 32 + length + padding + len(options)
    head = _PACKET_HEAD.pack(_PACKET, size, interface, time_ns >> 32 & _WORD, time_ns & _WORD, length, length)
    return [head + data[0], *data[1:], bytes(padding) + options + struct.pack("<I", size)]


# --- writing


class _Stream:
    """One connection: both ends, and the sequence number of what each sends next."""

    __slots__ = ("broker", "broker_next", "client", "client_next", "interface")

    def __init__(self, peer: Peer, interface: int) -> None:
        self.client, self.broker = ends(peer)
        self.client_next = (peer.number * 0x9E3779B1 + 1) & _WORD  # apart, though a port comes again
        self.broker_next = (peer.number * 0x85EBCA6B + 1) & _WORD
        self.interface = interface

    def packet(
        self,
        is_client: bool,
        time_ns: int,
        flags: int,
        head: bytes = b"",
        data: memoryview = NOTHING,
        comment: Mapping[str, Any] | None = None,
    ) -> Parts:
        """One more that the client sends, or the broker; it acknowledges all that the other side sent."""
        if is_client:
            made = headers(self.client, self.broker, self.client_next, self.broker_next, flags, head, data)
        else:
            made = headers(self.broker, self.client, self.broker_next, self.client_next, flags, head, data)
        return _packet(self.interface, time_ns, [made + head, data], comment or None)

    def advance(self, is_client: bool, count: int) -> None:
        """That side has sent so much."""
        if is_client:
            self.client_next = (self.client_next + count) & _WORD
        else:
            self.broker_next = (self.broker_next + count) & _WORD


Mark = tuple[int, int]


class PcapngWriter:
    """What happens as blocks. Every method returns them, and none depends on the file they go to but by `introduction`.

    The times of packets are those of the broker's clock, finer where it goes on as the machine's does.
    """

    suffix = ".pcapng"

    def __init__(self) -> None:
        self._streams: dict[int, _Stream] = {}
        self._interfaces: dict[tuple[int, str], int] = {}
        self._times = Times()
        self._begun_ns: dict[int, int] = {}

    def head(self, meta: Mapping[str, Any]) -> bytes:
        """How a file begins."""
        nodes = meta.get("nodes") or ()
        self._interfaces = {(node["node_id"], node["listener"]): number for number, node in enumerate(nodes)}
        return section(meta)

    def mark(self, peer: Peer) -> Mark:
        """How far a connection is."""
        stream = self._stream(peer)
        return stream.client_next, stream.broker_next

    def introduction(self, peer: Peer, mark: Mark, time_ms: int) -> Parts:
        """What has to stand in a file before anything else of a connection, which was so far then: its handshake."""
        stream = self._stream(peer)
        client_next, broker_next = mark
        before, interface, time_ns = (client_next - 1) & _WORD, stream.interface, time_ms * 1_000_000
        one = headers(stream.client, stream.broker, before, 0, SYN)
        other = headers(stream.broker, stream.client, (broker_next - 1) & _WORD, client_next, SYN | ACK)
        last = headers(stream.client, stream.broker, client_next, broker_next, ACK)
        comment = {"connection": peer_facts(peer)}
        return [
            *_packet(interface, time_ns, [one], comment),
            *_packet(interface, time_ns, [other], None),
            *_packet(interface, time_ns, [last], None),
        ]

    def begun(self, exchange: Exchange) -> Parts:
        """A request: its segments."""
        stream = self._stream(exchange.peer)
        time_ns = self._begun_ns[exchange.number] = self._times.begun_ns(exchange)
        comment: dict[str, Any] = {"exchange": exchange.number}
        if exchange.request is None:
            comment["request_bytes"] = exchange.request_bytes
        return self._frame(stream, True, time_ns, exchange.request, exchange.request_bytes, comment)

    def ended(self, exchange: Exchange) -> Parts:
        """An answer: its segments; a bare acknowledgement that tells the rest, where there is none."""
        stream = self._stream(exchange.peer)
        time_ns = self._begun_ns.pop(exchange.number, exchange.time_ms * 1_000_000) + max(0, exchange.duration_ns)
        comment: dict[str, Any] = {}
        if exchange.fault is not None:
            comment["fault"] = exchange.fault
        if exchange.reason:
            comment["reason"] = exchange.reason
        if exchange.ending is not Ending.ANSWERED or exchange.response is None:
            comment |= {"exchange": exchange.number, "ending": exchange.ending.value}
        if exchange.response is None and not exchange.response_bytes:
            return stream.packet(False, time_ns, ACK, comment=comment)
        is_cut = exchange.ending is Ending.CLOSED
        if exchange.response is None or is_cut:
            comment["response_bytes"] = exchange.response_bytes
        return self._frame(stream, False, time_ns, exchange.response, exchange.response_bytes, comment, is_cut)

    def closed(self, peer: Peer, time_ms: int) -> Parts:
        """The end of a connection."""
        stream = self._streams.pop(peer.number, None)
        if stream is None:
            return []
        time_ns = time_ms * 1_000_000
        parts: Parts = []
        for is_client in (True, False):
            parts += stream.packet(is_client, time_ns, FIN | ACK)
            stream.advance(is_client, 1)
        return parts + stream.packet(True, time_ns, ACK)

    def noted(self, count: Mapping[str, Any], time_ms: int) -> Parts:
        """Counts, as statistics of the first interface."""
        time_ns = time_ms * 1_000_000
        options = _option(_DROPPED, struct.pack("<Q", count.get("dropped", 0))) + _commented(count)
        return [_block(_STATISTICS, struct.pack("<III", 0, time_ns >> 32 & _WORD, time_ns & _WORD) + options)]

    def _stream(self, peer: Peer) -> _Stream:
        found = self._streams.get(peer.number)
        if found is None:
            interface = self._interfaces.get((peer.node_id, peer.listener), 0)
            found = self._streams[peer.number] = _Stream(peer, interface)
        return found

    def _frame(
        self,
        stream: _Stream,
        is_client: bool,
        time_ns: int,
        frame: bytes | None,
        size_bytes: int,
        comment: Mapping[str, Any],
        is_cut: bool = False,
    ) -> Parts:
        """The segments of a frame; of one that was not kept a packet that says so, and a gap behind it. One that is cut
        claims to be longer than it is."""
        if frame is None:
            made = stream.packet(is_client, time_ns, ACK, comment=comment)
            stream.advance(is_client, 4 + size_bytes)
            return made
        parts: Parts = []
        head, data = _SIZE.pack(len(frame) + is_cut), memoryview(frame)
        for start in range(0, len(data) or 1, SEGMENT_BYTES):
            part = data[start : start + SEGMENT_BYTES]
            parts += stream.packet(is_client, time_ns, PUSH | ACK, head, part, None if start else comment)
            stream.advance(is_client, len(head) + len(part))
            head = b""
        return parts


# --- reading


@dataclass(slots=True)
class _Sent:
    """What one side of a connection is sending: the packet that began it, and its bytes so far."""

    data: bytearray = field(default_factory=bytearray)
    time_ns: int = 0
    comment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Conversation:
    """A connection as it is read."""

    peer: Peer
    client: _Sent = field(default_factory=_Sent)
    broker: _Sent = field(default_factory=_Sent)
    waiting: deque[Exchange] = field(default_factory=deque)


def blocks(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(position, kind, body) of each block. Raises ValueError where one is cut or damaged."""
    position, end = 0, len(data)
    while position < end:
        if end - position < 12:
            raise ValueError(f"byte {position}: a block is cut")
        kind, size = _BLOCK.unpack_from(data, position)
        if size < 12 or size % 4 or size > end - position:
            raise ValueError(f"byte {position}: a block is cut or damaged")
        yield position, kind, data[position + 8 : position + size - 4]
        position += size


def _options(data: memoryview) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        code, size = struct.unpack_from("<HH", data, position)
        if code == _END:
            return
        yield code, bytes(data[position + 4 : position + 4 + size])
        position += 4 + size + -size % 4


def _comment(data: memoryview) -> dict[str, Any]:
    """What a comment of ours says. Raises ValueError."""
    for code, value in _options(data):
        if code == _COMMENT:
            found = json.loads(value)
            if not isinstance(found, dict):
                raise ValueError("a comment that is no object")
            return found
    return {}


def meta_of(data: memoryview) -> dict[str, Any] | None:
    """What a file's head says; None for a file that is no recording of ours."""
    try:
        _, kind, body = next(blocks(data))
        if kind != _SECTION or struct.unpack_from("<I", body)[0] != _BYTE_ORDER:
            return None
        meta = _comment(body[16:])
    except (ValueError, StopIteration, RecursionError):
        return None
    return meta if meta.get("type") == "recording" else None


class PcapngReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._conversations: dict[tuple[Any, Any], _Conversation] = {}

    def read(self, data: memoryview, name: str) -> None:
        """Adds what a file has; what cannot be read is told in the recording's `damage`."""
        position = 0
        try:
            for at, kind, body in blocks(data):
                position = at
                if kind == _PACKET:
                    self._packet(body)
                elif kind == _STATISTICS:
                    self.recording.dropped += int(_comment(body[12:]).get("dropped", 0))
        except (ValueError, struct.error, RecursionError) as error:
            text = str(error)
            self.recording.damage.append(f"{name}: {text if text.startswith('byte') else f'byte {position}: {text}'}")

    def _packet(self, body: memoryview) -> None:
        _, high, low, size, _ = struct.unpack_from("<IIIII", body)
        time_ns = high << 32 | low
        packet = parsed(body[20 : 20 + size])
        comment = _comment(body[20 + size + -size % 4 :])
        if "connection" in comment:
            peer = peer_of(comment["connection"])
            known = self.recording.peers.setdefault(peer.number, peer)
            found = self._conversations.get((packet.source, packet.target))
            if found is None or found.peer is not known:
                self._conversations[packet.source, packet.target] = _Conversation(known)
            return
        conversation = self._conversations.get((packet.source, packet.target))
        if conversation is not None:
            self._sent(conversation, conversation.client, packet, time_ns, comment, self._request)
            return
        conversation = self._conversations.get((packet.target, packet.source))
        if conversation is not None:
            self._sent(conversation, conversation.broker, packet, time_ns, comment, self._response)

    def _sent(
        self,
        conversation: _Conversation,
        sent: _Sent,
        packet: Segment,
        time_ns: int,
        comment: dict[str, Any],
        take: Callable[[_Conversation, _Sent, bytes | None], None],
    ) -> None:
        if packet.flags & (SYN | FIN) or not (packet.data or comment):
            return
        if not sent.data:
            sent.time_ns, sent.comment = time_ns, comment
        if not packet.data:
            take(conversation, sent, None)
            return
        sent.data += packet.data
        told = sent.comment.get("response_bytes")
        size = _SIZE.unpack_from(sent.data)[0] if told is None else int(told)
        if len(sent.data) == 4 + size:
            frame, sent.data = bytes(sent.data[4:]), bytearray()
            take(conversation, sent, frame)
        elif len(sent.data) > 4 + size:
            sent.data = bytearray()
            raise ValueError("a packet that is longer than what it is of")

    def _request(self, conversation: _Conversation, sent: _Sent, frame: bytes | None) -> None:
        """A request is whole, or was not kept; a bare acknowledgement says nothing."""
        if "exchange" not in sent.comment:
            return
        exchange = exchange_of(
            int(sent.comment["exchange"]), conversation.peer, sent.time_ns // 1_000_000, sent.time_ns, frame
        )
        if frame is None:
            exchange.request_bytes = int(sent.comment.get("request_bytes", 0))
        conversation.waiting.append(exchange)
        self.recording.exchanges.append(exchange)

    def _response(self, conversation: _Conversation, sent: _Sent, frame: bytes | None) -> None:
        """The answer to the oldest request that waits, or to the one that is named; one that began in an older file,
        which is gone, has none here."""
        waiting = conversation.waiting
        named = sent.comment.get("exchange")
        if named is not None:
            while waiting and waiting[0].number < named:
                waiting.popleft()
        if not waiting or named not in (None, waiting[0].number):
            return
        exchange = waiting[0]
        if named is None and frame is not None and frame[:4] != (exchange.request or b"")[4:8]:
            return
        waiting.popleft()
        exchange.response = frame
        exchange.response_bytes = int(sent.comment.get("response_bytes", 0)) if frame is None else len(frame)
        exchange.duration_ns = sent.time_ns - exchange.begun_ns
        exchange.ending = Ending(sent.comment.get("ending", Ending.ANSWERED))
        exchange.reason = str(sent.comment.get("reason", ""))
        exchange.fault = sent.comment.get("fault")
        note_software(exchange)
