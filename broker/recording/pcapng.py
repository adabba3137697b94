"""Exchanges as a capture that Wireshark reads: pcapng with Ethernet, IP and TCP headers made up around the frames.

Each connection is one TCP stream with a handshake, the right sequence numbers and checksums, and an end; each frame
begins a segment of its own. What the wire does not carry stands in comments, as JSON: the recording's first line at the
section's head, a connection's facts at its SYN, the number of an exchange at its request, and at a bare acknowledgement
how a request without a response ended. Times are in nanoseconds. dpkt makes and reads packets and blocks, but for the
statistics that count dropped exchanges, which it lacks.

Sources: draft-ietf-opsawg-pcapng, RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import dpkt
from dpkt.ethernet import ETH_TYPE_IP, ETH_TYPE_IP6, Ethernet
from dpkt.ip import IP, IP_PROTO_TCP
from dpkt.ip6 import IP6
from dpkt.pcapng import (
    BYTE_ORDER_MAGIC,
    PCAPNG_BT_EPB,
    PCAPNG_BT_SHB,
    PCAPNG_OPT_COMMENT,
    PCAPNG_OPT_IF_NAME,
    PCAPNG_OPT_IF_TSRESOL,
    PCAPNG_OPT_SHB_USERAPPL,
    EnhancedPacketBlockLE,
    InterfaceDescriptionBlockLE,
    PcapngOptionLE,
    SectionHeaderBlockLE,
)
from dpkt.tcp import TCP, TH_ACK, TH_FIN, TH_PUSH, TH_SYN

from .exchange import Ending, Exchange, Peer
from .recorded import Recording, Times, exchange_of, note_software, peer_facts, peer_of

SEGMENT_BYTES = 60_000  # of a frame in one packet
COMMENT_BYTES_MAX = 65_000  # an option's length has 16 bits

_STATISTICS, _DROPPED = 5, 5  # the type of a statistics block, and its option for lost packets
_NANOSECONDS = b"\x09"
_CLIENT_MAC, _BROKER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_SYN_OPTIONS = bytes.fromhex("0204ffc4 01 03030e")  # segments up to 65476 bytes, windows scaled by 2^14
_WORD = 0xFFFFFFFF
_SIZE = struct.Struct(">i")


# --- writing


def _options(comment: Mapping[str, Any] | None, *others: tuple[int, bytes]) -> list[PcapngOptionLE]:
    """The options of a block: a comment, and others; none at all without either."""
    options = [PcapngOptionLE(code=code, data=data) for code, data in others]
    if comment is not None:
        text = json.dumps(comment, separators=(",", ":")).encode()[:COMMENT_BYTES_MAX]
        options.insert(0, PcapngOptionLE(code=PCAPNG_OPT_COMMENT, data=text))
    return [*options, PcapngOptionLE()] if options else []


def section(meta: Mapping[str, Any]) -> bytes:
    """The head of a file: the section, and an interface for each listener of each node in `meta["nodes"]`."""
    options = _options(meta, (PCAPNG_OPT_SHB_USERAPPL, f"Ottla {meta.get('ottla', '')}".encode()))
    blocks = [bytes(SectionHeaderBlockLE(opts=options))]
    for node in meta.get("nodes") or [{"node_id": -1, "listener": "?"}]:
        name = f"node {node['node_id']} {node['listener']}".encode()
        options = _options(None, (PCAPNG_OPT_IF_NAME, name), (PCAPNG_OPT_IF_TSRESOL, _NANOSECONDS))
        blocks.append(bytes(InterfaceDescriptionBlockLE(snaplen=0, opts=options)))
    return b"".join(blocks)


class _End(NamedTuple):
    """One side of a connection."""

    mac: bytes
    address: bytes
    port: int


def _address(host: str) -> bytes:
    """Four bytes or sixteen; 0.0.0.0 for a host that is no address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def _packet(source: _End, target: _End, sequence: int, acknowledged: int, flags: int, data: bytes) -> bytes:
    """A packet with right checksums. A SYN has the options that let its stream have large segments."""
    options = _SYN_OPTIONS if flags & TH_SYN else b""
    tcp = TCP(
        sport=source.port,
        dport=target.port,
        seq=sequence,
        ack=acknowledged if flags & TH_ACK else 0,
        off=(20 + len(options)) // 4,
        flags=flags,
        opts=options,
        data=data,
    )
    if len(source.address) == 16:
        kind = ETH_TYPE_IP6
        ip = IP6(src=source.address, dst=target.address, plen=len(tcp), nxt=IP_PROTO_TCP, hlim=64, data=tcp)
    else:
        kind = ETH_TYPE_IP
        ip = IP(src=source.address, dst=target.address, p=IP_PROTO_TCP, df=1, data=tcp)
    return bytes(Ethernet(src=source.mac, dst=target.mac, type=kind, data=bytes(ip)))


def _block(interface: int, time_ns: int, packet: bytes, comment: Mapping[str, Any] | None) -> bytes:
    high, low, options = time_ns >> 32 & _WORD, time_ns & _WORD, _options(comment)
    return bytes(EnhancedPacketBlockLE(iface_id=interface, ts_high=high, ts_low=low, pkt_data=packet, opts=options))


class _Stream:
    """One connection: both ends, and the sequence number of what each sends next."""

    __slots__ = ("broker", "broker_next", "client", "client_next", "interface")

    def __init__(self, peer: Peer, interface: int) -> None:
        client, broker = _address(peer.client_host), _address(peer.local_host)
        if len(client) != len(broker):
            client, broker = (one if len(one) == 16 else bytes(10) + b"\xff\xff" + one for one in (client, broker))
        self.client = _End(_CLIENT_MAC, client, peer.client_port & 0xFFFF)
        self.broker = _End(_BROKER_MAC, broker, peer.local_port & 0xFFFF)
        self.client_next = (peer.number * 0x9E3779B1 + 1) & _WORD  # apart, though a port comes again
        self.broker_next = (peer.number * 0x85EBCA6B + 1) & _WORD
        self.interface = interface

    def packet(
        self,
        is_client: bool,
        time_ns: int,
        flags: int,
        data: bytes = b"",
        comment: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The next packet of the client, or of the broker; it acknowledges all that the other side sent."""
        if is_client:
            made = _packet(self.client, self.broker, self.client_next, self.broker_next, flags, data)
        else:
            made = _packet(self.broker, self.client, self.broker_next, self.client_next, flags, data)
        return _block(self.interface, time_ns, made, comment or None)

    def advance(self, is_client: bool, count: int) -> None:
        """Counts what that side has sent."""
        if is_client:
            self.client_next = (self.client_next + count) & _WORD
        else:
            self.broker_next = (self.broker_next + count) & _WORD


Mark = tuple[int, int]


class PcapngWriter:
    """Events as blocks. The times of packets are those of the broker's clock, finer where it goes on as the machine's
    does."""

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

    def introduction(self, peer: Peer, mark: Mark, time_ms: int) -> bytes:
        """What has to stand in a file before anything else of a connection, which was so far then: its handshake."""
        stream = self._stream(peer)
        client_next, broker_next = mark
        before, interface, time_ns = (client_next - 1) & _WORD, stream.interface, time_ms * 1_000_000
        one = _packet(stream.client, stream.broker, before, 0, TH_SYN, b"")
        other = _packet(stream.broker, stream.client, (broker_next - 1) & _WORD, client_next, TH_SYN | TH_ACK, b"")
        last = _packet(stream.client, stream.broker, client_next, broker_next, TH_ACK, b"")
        comments = {"connection": peer_facts(peer)}, None, None
        return b"".join(
            _block(interface, time_ns, packet, comment)
            for packet, comment in zip((one, other, last), comments, strict=True)
        )

    def begun(self, exchange: Exchange) -> bytes:
        """A request: its segments."""
        stream = self._stream(exchange.peer)
        time_ns = self._begun_ns[exchange.number] = self._times.begun_ns(exchange)
        comment: dict[str, Any] = {"exchange": exchange.number}
        if exchange.request is None:
            comment["request_bytes"] = exchange.request_bytes
        return self._frame(stream, True, time_ns, exchange.request, exchange.request_bytes, comment)

    def ended(self, exchange: Exchange) -> bytes:
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
            return stream.packet(False, time_ns, TH_ACK, comment=comment)
        is_cut = exchange.ending is Ending.CLOSED
        if exchange.response is None or is_cut:
            comment["response_bytes"] = exchange.response_bytes
        return self._frame(stream, False, time_ns, exchange.response, exchange.response_bytes, comment, is_cut)

    def closed(self, peer: Peer, time_ms: int) -> bytes:
        """The end of a connection."""
        stream = self._streams.pop(peer.number, None)
        if stream is None:
            return b""
        time_ns = time_ms * 1_000_000
        made = b""
        for is_client in (True, False):
            made += stream.packet(is_client, time_ns, TH_FIN | TH_ACK)
            stream.advance(is_client, 1)
        return made + stream.packet(True, time_ns, TH_ACK)

    def noted(self, count: Mapping[str, Any], time_ms: int) -> bytes:
        """Counts, as statistics of the first interface."""
        time_ns = time_ms * 1_000_000
        dropped = PcapngOptionLE(code=_DROPPED, data=struct.pack("<Q", count.get("dropped", 0)))
        options = b"".join(map(bytes, (dropped, *_options(count))))
        size = 24 + len(options)
        head = struct.pack("<IIIII", _STATISTICS, size, 0, time_ns >> 32 & _WORD, time_ns & _WORD)
        return head + options + struct.pack("<I", size)

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
    ) -> bytes:
        """The segments of a frame; of one that was not kept a packet that says so, and a gap behind it. One that is cut
        claims to be longer than it is."""
        if frame is None:
            made = stream.packet(is_client, time_ns, TH_ACK, comment=comment)
            stream.advance(is_client, 4 + size_bytes)
            return made
        segments: list[bytes] = []
        head = _SIZE.pack(len(frame) + is_cut)
        for start in range(0, len(frame) or 1, SEGMENT_BYTES):
            data = head + frame[start : start + SEGMENT_BYTES]
            flags = TH_PUSH | TH_ACK
            segments.append(stream.packet(is_client, time_ns, flags, data, None if start else comment))
            stream.advance(is_client, len(data))
            head = b""
        return b"".join(segments)


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


def blocks(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """(position, type, the whole block) of each block. Raises ValueError where one is cut or damaged."""
    position, end = 0, len(data)
    while position < end:
        if end - position < 12:
            raise ValueError(f"byte {position}: a block is cut")
        kind, size = struct.unpack_from("<II", data, position)
        if size < 12 or size % 4 or size > end - position:
            raise ValueError(f"byte {position}: a block is cut or damaged")
        yield position, kind, bytes(data[position : position + size])
        position += size


def _comment(options: list[Any]) -> dict[str, Any]:
    """The comment of a block. Raises ValueError."""
    for option in options:
        if option.code == PCAPNG_OPT_COMMENT:
            found = json.loads(option.text)
            if not isinstance(found, dict):
                raise ValueError("a comment that is no object")
            return found
    return {}


def _statistics_options(block: bytes) -> list[PcapngOptionLE]:
    options, position = [], 20
    while position < len(block) - 4:
        options.append(PcapngOptionLE(block[position:-4]))
        position += len(options[-1])
    return options


def meta_of(data: memoryview) -> dict[str, Any] | None:
    """The first line of a recording in a file's head; None for a file that is no recording."""
    try:
        _, kind, block = next(blocks(data))
        if kind != PCAPNG_BT_SHB or struct.unpack_from("<I", block, 8)[0] != BYTE_ORDER_MAGIC:
            return None
        meta = _comment(SectionHeaderBlockLE(block).opts)
    except (ValueError, StopIteration, RecursionError, struct.error, dpkt.Error):
        return None
    return meta if meta.get("type") == "recording" else None


class _Segment(NamedTuple):
    """The TCP segment in a packet: (address, port) of both ends, the flags, the bytes."""

    source: tuple[bytes, int]
    target: tuple[bytes, int]
    flags: int
    data: bytes


def _parsed(packet: bytes) -> _Segment:
    """Raises ValueError, dpkt.Error for a packet that `_packet` did not make."""
    ip: Any = Ethernet(packet).data
    try:
        tcp = ip.tcp
    except AttributeError:
        raise ValueError("a packet that is no TCP, or cut") from None
    return _Segment((ip.src, tcp.sport), (ip.dst, tcp.dport), tcp.flags, tcp.data)


class PcapngReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._conversations: dict[tuple[Any, Any], _Conversation] = {}

    def read(self, data: memoryview, name: str) -> None:
        """Adds what a file has; what cannot be read is told in the recording's `damage`."""
        position = 0
        try:
            for at, kind, block in blocks(data):
                position = at
                if kind == PCAPNG_BT_EPB:
                    self._packet(EnhancedPacketBlockLE(block))
                elif kind == _STATISTICS:
                    self.recording.dropped += int(_comment(_statistics_options(block)).get("dropped", 0))
        except (ValueError, struct.error, RecursionError, dpkt.Error) as error:
            text = str(error) or "a packet that is cut"
            self.recording.damage.append(f"{name}: {text if text.startswith('byte') else f'byte {position}: {text}'}")

    def _packet(self, block: Any) -> None:
        time_ns = block.ts_high << 32 | block.ts_low
        packet = _parsed(block.pkt_data)
        comment = _comment(block.opts)
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
        packet: _Segment,
        time_ns: int,
        comment: dict[str, Any],
        take: Callable[[_Conversation, _Sent, bytes | None], None],
    ) -> None:
        if packet.flags & (TH_SYN | TH_FIN) or not (packet.data or comment):
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
