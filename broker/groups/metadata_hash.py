"""The hash of the metadata of a group's topics (KIP-1101), bit for bit as Kafka computes it: XXH3 with 64 bits.

Strings are hashed as UTF-16 in little-endian order followed by their number of units, numbers in little-endian order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from .topics import TopicShape

CACHED_TOPICS = 1000


def group_hash(shapes: Iterable[TopicShape]) -> int:
    """Returns the signed hash of the topics that exist, 0 without any."""
    from xxhash import xxh3_64_intdigest  # only brokers with such groups need it

    ordered = sorted(shapes, key=lambda shape: shape.name)
    if not ordered:
        return 0
    return _signed(xxh3_64_intdigest(b"".join(topic_hash(shape).to_bytes(8, "little") for shape in ordered)))


@functools.lru_cache(maxsize=CACHED_TOPICS)
def topic_hash(shape: TopicShape) -> int:
    """Returns the unsigned hash of one topic."""
    from xxhash import xxh3_64_intdigest

    parts = [
        b"\x00",  # the version of the hash
        shape.topic_id[7::-1],
        shape.topic_id[:7:-1],
        _text(shape.name),
        shape.partitions.to_bytes(4, "little"),
    ]
    for index in range(shape.partitions):
        parts.append(index.to_bytes(4, "little"))
        for rack in sorted(shape.racks[index]) if shape.racks else ():
            units = rack.encode("utf-16-le", "surrogatepass")
            parts += [(len(units) // 2).to_bytes(4, "little"), _text(rack)]
    return xxh3_64_intdigest(b"".join(parts))


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + (len(units) // 2).to_bytes(4, "little")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
