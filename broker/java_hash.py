"""`String.hashCode` of Java, by which Kafka's brokers place groups and order the entries of a HashMap."""

from __future__ import annotations

import sys
from collections.abc import Collection


def string_hash(text: str) -> int:
    """The hash as an unsigned number of 32 bits: s[0] * 31^(n-1) + ... + s[n-1], over UTF-16 units."""
    wide = f"utf-16-{sys.byteorder[0]}e"
    value = 0
    for unit in text.encode() if text.isascii() else memoryview(text.encode(wide, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def hash_ordered(names: Collection[str], buckets: int = 1) -> list[str]:
    """Returns names in the iteration order of a Java HashMap. `buckets` is a power of two, the least number: 16 for
    `new HashMap<>()`, 1 for one made with its final size.
    """
    while buckets < len(names) or len(names) > 0.75 * buckets:
        buckets *= 2

    def bucket(name: str) -> int:
        hashed = string_hash(name)
        return (hashed ^ hashed >> 16) & (buckets - 1)

    return sorted(names, key=bucket)


_GOLDEN = -7046029254386353131 & (1 << 64) - 1


def timeline_place(text: str) -> int:
    """The place of a key in the iteration of a TimelineHashMap, which Kafka's coordinators use: the first bits of this
    number are its slot in a table of any size (BaseHashTable, Fibonacci hashing).
    """
    value = string_hash(text)
    signed = value - (1 << 32) if value >> 31 else value
    return signed * _GOLDEN & (1 << 64) - 1
