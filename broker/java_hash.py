"""`String.hashCode` of Java, by which Kafka's brokers place groups and order the entries of a HashMap."""

from __future__ import annotations

import sys


def string_hash(text: str) -> int:
    """The hash as an unsigned number of 32 bits: s[0] * 31^(n-1) + ... + s[n-1], over UTF-16 units."""
    wide = f"utf-16-{sys.byteorder[0]}e"
    value = 0
    for unit in text.encode() if text.isascii() else memoryview(text.encode(wide, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value
