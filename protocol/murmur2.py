"""MurmurHash2 as in Apache Kafka's Java client, which partitions by key with it."""

from __future__ import annotations

import struct

_INT31 = 0x7FFFFFFF
_INT32 = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the 32-bit hash of Java's client as an unsigned number (MurmurHash2 with Kafka's seed)."""
    m = 0x5BD1E995
    size = len(data)
    h = 0x9747B28C ^ size
    whole = size & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * m & _INT32
        h = h * m & _INT32 ^ (k ^ k >> 24) * m & _INT32
    if whole < size:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & _INT32
    h = (h ^ h >> 13) * m & _INT32
    return h ^ h >> 15


def java_partition(key: bytes, count: int) -> int:
    """Returns the partition, of `count`, that Java's client chooses for a key."""
    return (murmur2(key) & _INT31) % count
