"""Hosts of access control entries: `*`, an address, or a block of addresses in CIDR notation.

Owns the notation of Kafka 4.4, with its error messages, and the comparison of a client's address with a block.
"""

from __future__ import annotations

import functools
import ipaddress
import re

from ...protocol.named import NamedTuple

_BLOCK_4 = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class Block(NamedTuple):
    """Addresses with a common prefix: the bits of the network, and how many low bits are free."""

    version: int
    network: int
    free_bits: int


def parse_block(text: str) -> Block:
    """Returns the block of addresses of `1.2.3.0/24` or `fe80::/10`; bits after the prefix are ignored. Raises
    ValueError with Kafka's message.
    """
    return _block_6(text) if ":" in text else _block_4(text)


def is_in_block(address: str, host: str) -> bool:
    """Returns whether an address is in the block of an entry; False for an entry with another host. As in Kafka, no
    block has the address 0.0.0.0.
    """
    block, number = _known_block(host), _number(address)
    if block is None or number is None or number[0] != block.version or number == (4, 0):
        return False
    return number[1] >> block.free_bits == block.network >> block.free_bits


@functools.lru_cache(1000)
def _known_block(host: str) -> Block | None:
    try:
        return parse_block(host) if "/" in host else None
    except ValueError:
        return None


@functools.lru_cache(1000)
def _number(address: str) -> tuple[int, int] | None:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    return found.version, int(found)


def _block_4(text: str) -> Block:
    match = _BLOCK_4.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    *octets, prefix = map(int, match.groups())
    for value, highest in zip((*octets, prefix), (255, 255, 255, 255, 32), strict=True):
        if value > highest:
            raise ValueError(f"Value [{value}] not in range [0,{highest}]")
    return Block(4, int.from_bytes(octets), 32 - prefix)


def _block_6(text: str) -> Block:
    address, _, prefix = text.partition("/")
    if _NUMBER.fullmatch(prefix) is None:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= int(prefix) <= 128:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    try:
        found = ipaddress.IPv6Address(address[1:-1] if address[:1] + address[-1:] == "[]" else address)
    except ValueError:
        raise ValueError(f"Could not parse [{address}]") from None
    if found.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return Block(6, int(found), 128 - int(prefix))
