"""Ethernet, IP and TCP around bytes: packets that were never sent, as Wireshark wants to see them.

Owns their layout and checksums, both ways. RFC 791, RFC 8200, RFC 9293; integers are big-endian.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from .exchange import Peer

FIN, SYN, PUSH, ACK = 1, 2, 8, 16

_CLIENT_MAC, _BROKER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
_WINDOW = 0xFFFF
_SYN_OPTIONS = bytes.fromhex("0204ffc4 01 03030e")  # segments up to 65476 bytes, windows scaled by 2^14
_TCP = struct.Struct(">HHIIBBHHH")
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_IPV6 = struct.Struct(">IHBB16s16s")
_ETHERNET_BYTES = 14
_PIECE_BYTES = 8192


def ones_sum(data: bytes | memoryview) -> int:
    """The ones' complement sum of 16-bit words, as a number below 65535.

    2^16 is 1 modulo 65535, so long pieces are read as numbers, added, and divided once. Bytes in the other order are
    quicker to read, and give the sum with its bytes swapped (RFC 1071, section 2).
    """
    size, read = len(data), int.from_bytes
    if size <= _PIECE_BYTES:
        return read(data, "little") % 65535 * 256 % 65535
    pieces = [read(data[begin : begin + _PIECE_BYTES], "little") for begin in range(0, size, _PIECE_BYTES)]
    return sum(pieces) % 65535 * 256 % 65535


def _checksum(total: int) -> int:
    return 0xFFFF - (total % 65535 or 65535)


class End(NamedTuple):
    """One side of a connection."""

    mac: bytes
    address: bytes
    port: int


def _address(host: str) -> bytes:
    """Four bytes or sixteen. A host that is no address, which no socket has, is 0.0.0.0."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def ends(peer: Peer) -> tuple[End, End]:
    """The client's end and the broker's, both of one family."""
    client, broker = _address(peer.client_host), _address(peer.local_host)
    if len(client) != len(broker):
        client, broker = (one if len(one) == 16 else bytes(10) + b"\xff\xff" + one for one in (client, broker))
    return (
        End(_CLIENT_MAC, client, peer.client_port & 0xFFFF),
        End(_BROKER_MAC, broker, peer.local_port & 0xFFFF),
    )


def headers(
    source: End,
    target: End,
    sequence: int,
    acknowledged: int,
    flags: int,
    head: bytes = b"",
    data: bytes | memoryview = b"",
) -> bytes:
    """What stands in front of the bytes of one packet, of `head` (an even number of them) and `data`: from the Ethernet
    on. A SYN has the options that let its stream have large segments."""
    options = _SYN_OPTIONS if flags & SYN else b""
    offset = (_TCP.size + len(options)) // 4 << 4
    length = _TCP.size + len(options) + len(head) + len(data)
    fields = source.port, target.port, sequence, acknowledged if flags & ACK else 0, offset, flags, _WINDOW
    total = ones_sum(_TCP.pack(*fields, 0, 0) + options + head) + ones_sum(data)
    total += ones_sum(source.address) + ones_sum(target.address) + 6 + length
    tcp = _TCP.pack(*fields, _checksum(total), 0)
    if len(source.address) == 16:
        kind = b"\x86\xdd"
        ip = _IPV6.pack(6 << 28, length, 6, 64, source.address, target.address)
    else:
        kind = b"\x08\x00"
        fixed = 0x45, 0, 20 + length, 0, 0x4000, 64, 6
        ip = _IPV4.pack(*fixed, 0, source.address, target.address)
        ip = _IPV4.pack(*fixed, _checksum(ones_sum(ip)), source.address, target.address)
    return b"".join((target.mac, source.mac, kind, ip, tcp, options))


class Segment(NamedTuple):
    """What a packet says: (address, port) of both ends, the sequence number, the flags, the bytes."""

    source: tuple[bytes, int]
    target: tuple[bytes, int]
    sequence: int
    flags: int
    data: memoryview


def parsed(packet: memoryview) -> Segment:
    """Reads a packet that begins with what `headers` made. Raises ValueError for any other."""
    try:
        if packet[12:14] == b"\x86\xdd":
            position = _ETHERNET_BYTES + _IPV6.size
            _, length, protocol, _, source, target = _IPV6.unpack_from(packet, _ETHERNET_BYTES)
        elif packet[12:14] == b"\x08\x00" and packet[14] == 0x45:
            position = _ETHERNET_BYTES + _IPV4.size
            _, _, total, _, _, _, protocol, _, source, target = _IPV4.unpack_from(packet, _ETHERNET_BYTES)
            length = total - _IPV4.size
        else:
            raise ValueError("a packet that is neither IPv4 nor IPv6")
        if protocol != 6 or position + length > len(packet):
            raise ValueError("a packet that is no TCP, or cut")
        source_port, target_port, sequence, _, offset, flags, _, _, _ = _TCP.unpack_from(packet, position)
    except (struct.error, IndexError):
        raise ValueError("a packet that is cut") from None
    data = packet[position + (offset >> 4) * 4 : position + length]
    return Segment((source, source_port), (target, target_port), sequence, flags, data)
