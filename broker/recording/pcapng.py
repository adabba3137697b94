"""Writes and reads captures for Wireshark: pcapng with Ethernet, IP and TCP headers made up around the frames.

Each connection is one TCP stream with a handshake, correct sequence numbers and checksums, and an end; each frame
begins a segment of its own. Facts that the wire does not carry are JSON in comments: the recording's first line at the
section's head, a connection's facts at its SYN, the number of an exchange and its principal (unless User:ANONYMOUS) at
its request, and at a bare acknowledgement how a request without a response ended. Times are in nanoseconds. dpkt makes
and parses packets and blocks; it lacks the statistics block, which counts dropped exchanges.

Sources: draft-ietf-opsawg-pcapng, RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import dpkt  # type: ignore[reportMissingTypeStubs]  # it has no types: everything of it is Any

from ...protocol.api_key import ApiKey
from ...protocol.narrowing import is_dict
from ..security.authorizer import ANONYMOUS
from .decoding import request_value
from .exchange import Ending, Exchange, Peer, Recording, exchange_of, library_of, peer_facts, peer_of
from .redaction import without_contents

_dpkt: Any = dpkt
_blocks, _tcp = _dpkt.pcapng, _dpkt.tcp
_ACK, _FIN, _PUSH, _SYN = _tcp.TH_ACK, _tcp.TH_FIN, _tcp.TH_PUSH, _tcp.TH_SYN

SEGMENT_BYTES = 60_000  # of a frame in one packet
COMMENT_BYTES_MAX = 65_000  # an option's length has 16 bits

_STATISTICS, _DROPPED = 5, 5  # the type of a statistics block, and its option for lost packets
_NANOSECONDS = b"\x09"
_CLIENT_MAC, _BROKER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_SYN_OPTIONS = bytes.fromhex("0204ffc4 01 03030e")  # segments up to 65476 bytes, windows scaled by 2^14
_WORD = 0xFFFFFFFF
_SIZE = struct.Struct(">i")


def _options(comment: Mapping[str, Any] | None, *others: tuple[int, bytes]) -> list[Any]:
    """Returns the options of a block; an empty list if it has none."""
    options: list[Any] = [_blocks.PcapngOptionLE(code=code, data=data) for code, data in others]
    if comment is not None:
        text = json.dumps(comment, separators=(",", ":")).encode()[:COMMENT_BYTES_MAX]
        options.insert(0, _blocks.PcapngOptionLE(code=_blocks.PCAPNG_OPT_COMMENT, data=text))
    return [*options, _blocks.PcapngOptionLE()] if options else []


def _address(host: str) -> bytes:
    """Returns four bytes or sixteen; 0.0.0.0 for a host that is not an address."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


CLIENT, BROKER = 0, 1


class _Stream:
    """A connection's TCP stream: the MAC address, address and port of both sides, and the sequence numbers of the bytes
    that they send next."""

    __slots__ = ("ends", "interface", "mark", "next")

    def __init__(self, peer: Peer, interface: int) -> None:
        client, broker = _address(peer.client_host), _address(peer.local_host)
        if len(client) != len(broker):
            client, broker = (one if len(one) == 16 else bytes(10) + b"\xff\xff" + one for one in (client, broker))
        ports = peer.client_port & 0xFFFF, peer.local_port & 0xFFFF
        self.ends = (_CLIENT_MAC, client, ports[CLIENT]), (_BROKER_MAC, broker, ports[BROKER])
        # Far apart from other connections' numbers: Wireshark must not continue an old stream when a port is reused.
        self.next = [(peer.number * factor + 1) & _WORD for factor in (0x9E3779B1, 0x85EBCA6B)]
        self.mark = tuple(self.next)
        """`next` before the newest event: the sequence numbers at which a file introduces the connection."""
        self.interface = interface

    def block(
        self, side: int, time_ns: int, flags: int, data: bytes = b"", comment: Mapping[str, Any] | None = None
    ) -> bytes:
        """Returns the next packet of a side, with correct checksums; it acknowledges everything that the other side
        sent. A SYN has the options that allow large segments in its stream."""
        (mac, source, sport), (target_mac, target, dport) = self.ends[side], self.ends[1 - side]
        ack = self.next[1 - side] if flags & _ACK else 0
        opts = _SYN_OPTIONS if flags & _SYN else b""
        words = (20 + len(opts)) // 4
        tcp = _tcp.TCP(
            sport=sport, dport=dport, seq=self.next[side], ack=ack, off=words, flags=flags, opts=opts, data=data
        )
        if len(source) == 16:
            ip = _dpkt.ip6.IP6(src=source, dst=target, plen=len(tcp), nxt=_dpkt.ip.IP_PROTO_TCP, hlim=64, data=tcp)
        else:
            ip = _dpkt.ip.IP(src=source, dst=target, p=_dpkt.ip.IP_PROTO_TCP, df=1, data=tcp)
        packet = bytes(_dpkt.ethernet.Ethernet(src=mac, dst=target_mac, data=ip))
        self.advance(side, len(data) + bool(flags & (_SYN | _FIN)))
        high, low, options = time_ns >> 32 & _WORD, time_ns & _WORD, _options(comment or None)
        block = _blocks.EnhancedPacketBlockLE(
            iface_id=self.interface, ts_high=high, ts_low=low, pkt_data=packet, opts=options
        )
        return bytes(block)

    def advance(self, side: int, count: int) -> None:
        """Counts bytes as sent."""
        self.next[side] = (self.next[side] + count) & _WORD


class PcapngWriter:
    """Makes pcapng blocks of events."""

    def __init__(self, contents: bool) -> None:
        self._contents = contents
        self._streams: dict[int, _Stream] = {}
        self._interfaces: dict[tuple[int, str], int] = {}

    def head(self, meta: Mapping[str, Any]) -> bytes:
        """Returns the beginning of a file: the section, and an interface for each listener of each node."""
        options = _options(meta, (_blocks.PCAPNG_OPT_SHB_USERAPPL, f"Ottla {meta.get('ottla', '')}".encode()))
        head = bytes(_blocks.SectionHeaderBlockLE(opts=options))
        nodes: list[dict[str, Any]] = meta.get("nodes") or [{"node_id": -1, "listener": "?"}]
        for number, node in enumerate(nodes):
            self._interfaces[node["node_id"], node["listener"]] = number
            name = f"node {node['node_id']} {node['listener']}".encode()
            options = _options(None, (_blocks.PCAPNG_OPT_IF_NAME, name), (_blocks.PCAPNG_OPT_IF_TSRESOL, _NANOSECONDS))
            head += bytes(_blocks.InterfaceDescriptionBlockLE(snaplen=0, opts=options))
        return head

    def introduction(self, peer: Peer, time_ms: int) -> bytes:
        """Returns the handshake of a connection; in each file it precedes the connection's other events."""
        stream = self._stream(peer)
        after, time_ns = stream.next, time_ms * 1_000_000
        stream.next = [(start - 1) & _WORD for start in stream.mark]
        blocks = (
            stream.block(CLIENT, time_ns, _SYN, comment={"connection": peer_facts(peer)}),
            stream.block(BROKER, time_ns, _SYN | _ACK),
            stream.block(CLIENT, time_ns, _ACK),
        )
        stream.next = after
        return b"".join(blocks)

    def begun(self, exchange: Exchange) -> bytes:
        """Returns the segments of a request."""
        comment: dict[str, Any] = {"exchange": exchange.number}
        if exchange.principal != ANONYMOUS:
            comment["principal"] = exchange.principal
        return self._frame(exchange, CLIENT, exchange.begun_ns, exchange.request or b"", comment)

    def ended(self, exchange: Exchange) -> bytes:
        """Returns the segments of a response, or a bare acknowledgement if there is none. The size field of a response
        that was cut announces one byte more than was sent. A response that was not kept leaves a gap in the stream."""
        comment: dict[str, Any] = {}
        if exchange.fault is not None:
            comment["fault"] = exchange.fault
        if exchange.reason:
            comment["reason"] = exchange.reason
        if exchange.ending is not Ending.RESPONDED or exchange.response is None:
            comment |= {"exchange": exchange.number, "ending": exchange.ending.value}
        if exchange.ending is Ending.CLOSED if exchange.response is not None else exchange.response_bytes:
            comment["response_bytes"] = exchange.response_bytes
        time_ns = exchange.begun_ns + max(0, exchange.duration_ns)
        if exchange.response is not None:
            return self._frame(exchange, BROKER, time_ns, exchange.response, comment)
        stream = self._marked(exchange.peer)
        acknowledgement = stream.block(BROKER, time_ns, _ACK, comment=comment)
        if exchange.response_bytes:
            stream.advance(BROKER, 4 + exchange.response_bytes)
        return acknowledgement

    def closed(self, peer: Peer, time_ms: int) -> bytes:
        """Returns the packets that end a connection."""
        stream, time_ns = self._marked(peer), time_ms * 1_000_000
        packets = (CLIENT, _FIN | _ACK), (BROKER, _FIN | _ACK), (CLIENT, _ACK)
        return b"".join(stream.block(side, time_ns, flags) for side, flags in packets)

    def forget(self, peer: Peer) -> None:
        """Drops the state of a closed connection."""
        self._streams.pop(peer.number, None)

    def noted(self, count: Mapping[str, Any], time_ms: int) -> bytes:
        """Returns counts as statistics of the first interface."""
        time_ns = time_ms * 1_000_000
        dropped = _blocks.PcapngOptionLE(code=_DROPPED, data=struct.pack("<Q", count.get("dropped", 0)))
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

    def _marked(self, peer: Peer) -> _Stream:
        """Returns the stream of a connection, for its next event."""
        stream = self._stream(peer)
        stream.mark = tuple(stream.next)
        return stream

    def _frame(self, exchange: Exchange, side: int, time_ns: int, frame: bytes, comment: Mapping[str, Any]) -> bytes:
        stream = self._marked(exchange.peer)
        if not self._contents:
            frame = without_contents(frame, exchange.api_key, exchange.api_version, side == CLIENT)
        data = _SIZE.pack(len(frame) + ("response_bytes" in comment)) + frame[:SEGMENT_BYTES]
        segments = [stream.block(side, time_ns, _PUSH | _ACK, data, comment)]
        for start in range(SEGMENT_BYTES, len(frame), SEGMENT_BYTES):
            segments.append(stream.block(side, time_ns, _PUSH | _ACK, frame[start : start + SEGMENT_BYTES]))
        return b"".join(segments)


def blocks(data: memoryview) -> Iterator[tuple[int, int, bytes]]:
    """Yields (position, type, the whole block) of each block. Raises ValueError if one is cut or damaged."""
    position, end = 0, len(data)
    while position < end:
        if end - position < 12:
            raise ValueError(f"byte {position}: a block is cut")
        kind, size = struct.unpack_from("<II", data, position)
        if size < 12 or size % 4 or size > end - position:
            raise ValueError(f"byte {position}: a block is cut or damaged")
        yield position, kind, bytes(data[position : position + size])
        position += size


def _comment(options: Sequence[Any]) -> dict[str, Any]:
    """Returns the comment of a block. Raises ValueError."""
    for option in options:
        if option.code == _blocks.PCAPNG_OPT_COMMENT:
            found = json.loads(option.text)
            if not is_dict(found):
                raise ValueError("a comment is not a JSON object")
            return found
    return {}


def _statistics_options(block: bytes) -> list[Any]:
    options: list[Any] = []
    position = 20
    while position < len(block) - 4:
        options.append(_blocks.PcapngOptionLE(block[position:-4]))
        position += len(options[-1])
    return options


@dataclass(slots=True)
class _Flow:
    """One direction of a connection as it is read: the bytes of the frame that is not complete yet, with the time and
    the comment of its first packet. `waiting` are the requests without a response, shared by both directions."""

    peer: Peer
    side: int
    waiting: dict[int, Exchange]
    data: bytearray = field(default_factory=bytearray)
    time_ns: int = 0
    comment: Mapping[str, Any] = field(default_factory=dict[str, Any])


class PcapngReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._flows: dict[Any, _Flow] = {}  # by the (address, port) of source and target

    @staticmethod
    def meta_of(head: bytes) -> dict[str, Any] | None:
        """Returns the recording's first line, from the beginning of a file; None for a file that is not a recording."""
        try:
            _, kind, block = next(blocks(memoryview(head)))
            if kind != _blocks.PCAPNG_BT_SHB or struct.unpack_from("<I", block, 8)[0] != _blocks.BYTE_ORDER_MAGIC:
                return None
            meta = _comment(_blocks.SectionHeaderBlockLE(block).opts)
        except (ValueError, StopIteration, RecursionError, struct.error, _dpkt.Error):
            return None
        return meta if meta.get("type") == "recording" else None

    def read(self, file: BinaryIO, name: str) -> None:
        """Adds the exchanges of a file; damage is noted in the recording's `damage`."""
        position = 0
        try:
            for at, kind, block in blocks(memoryview(file.read())):
                position = at
                if kind == _blocks.PCAPNG_BT_EPB:
                    self._packet(_blocks.EnhancedPacketBlockLE(block))
                elif kind == _STATISTICS:
                    self.recording.dropped += int(_comment(_statistics_options(block)).get("dropped", 0))
        except (ValueError, TypeError, struct.error, RecursionError, _dpkt.Error) as error:
            text = str(error) or "a packet is cut"
            self.recording.damage.append(f"{name}: {text if text.startswith('byte') else f'byte {position}: {text}'}")

    def _packet(self, block: Any) -> None:
        """Adds a packet. Raises ValueError, dpkt.Error for a packet that `PcapngWriter` did not write."""
        ip: Any = _dpkt.ethernet.Ethernet(block.pkt_data).data
        try:
            tcp = ip.tcp
        except AttributeError:
            raise ValueError("a packet is not TCP, or is cut") from None
        source, target = (ip.src, tcp.sport), (ip.dst, tcp.dport)
        comment = _comment(block.opts)
        if "connection" in comment:
            self._connection(peer_of(comment["connection"]), source, target)
            return
        flow = self._flows.get((source, target))
        if flow is None or tcp.flags & (_SYN | _FIN) or not (tcp.data or comment):
            return
        if not flow.data:
            flow.time_ns, flow.comment = block.ts_high << 32 | block.ts_low, comment
        frame: bytes | None = None
        if tcp.data:
            flow.data += tcp.data
            end = 4 + int(flow.comment.get("response_bytes", _SIZE.unpack_from(flow.data)[0]))
            if len(flow.data) < end:
                return
            data, flow.data = flow.data, bytearray()
            if len(data) > end:
                raise ValueError("a packet is longer than its frame")
            frame = bytes(data[4:])
        if flow.side == CLIENT:
            self._request(flow, frame)
        else:
            self._response(flow, frame)

    def _connection(self, peer: Peer, client: Any, broker: Any) -> None:
        peer = self.recording.peers.setdefault(peer.number, peer)
        known = self._flows.get((client, broker))
        if known is None or known.peer is not peer:  # a ring's second file introduces known connections again
            waiting: dict[int, Exchange] = {}
            self._flows[client, broker] = _Flow(peer, CLIENT, waiting)
            self._flows[broker, client] = _Flow(peer, BROKER, waiting)

    def _request(self, flow: _Flow, frame: bytes | None) -> None:
        if "exchange" in flow.comment:
            number = int(flow.comment["exchange"])
            exchange = exchange_of(number, flow.peer, flow.time_ns // 1_000_000, flow.time_ns, frame)
            exchange.principal = str(flow.comment.get("principal", ANONYMOUS))
            flow.waiting[number] = exchange
            self.recording.exchanges.append(exchange)

    def _response(self, flow: _Flow, frame: bytes | None) -> None:
        """Completes the request that the comment names, or else the oldest one with the correlation id of the response.
        Ignores a response whose request was in a file that a ring removed."""
        if "exchange" in flow.comment:
            exchange = flow.waiting.get(flow.comment["exchange"])
        else:
            correlation = b"" if frame is None else frame[:4]
            exchange = next((one for one in flow.waiting.values() if (one.request or b"")[4:8] == correlation), None)
        if exchange is None:
            return
        del flow.waiting[exchange.number]
        exchange.response = frame
        exchange.response_bytes = int(flow.comment.get("response_bytes", 0)) if frame is None else len(frame)
        exchange.duration_ns = flow.time_ns - exchange.begun_ns
        exchange.ending = Ending(flow.comment.get("ending", Ending.RESPONDED))
        exchange.reason = str(flow.comment.get("reason", ""))
        exchange.fault = flow.comment.get("fault")
        if exchange.api_key == ApiKey.API_VERSIONS and (frame or b"")[4:6] == b"\0\0":
            request = request_value(exchange)
            if request is not None:  # an accepted request names the client library, which no comment has
                names = request.client_software_name or None, request.client_software_version or None
                exchange.peer.library = library_of(exchange.peer.listener, *names)
