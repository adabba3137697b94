"""Which partition a record goes to: as Java's client and as librdkafka choose, so that equal keys stay together.

Owns the choice and its state per topic. A partitioner is made for one producer by a factory `(rng) -> Partitioner`;
`partitioner` finds the factory for a name. Sources: Java's `DefaultPartitioner` with KIP-480 (sticky without a key) and
`RoundRobinPartitioner`; librdkafka's `partitioner` property and its `rdcrc32`.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

from ...protocol.murmur2 import java_partition
from ..net.errors import ConfigError

_INT31 = 0x7FFFFFFF


class Partitioner(Protocol):
    """Chooses partitions for one producer."""

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        """A partition, 0 <= it < `count`. `available` are those with a leader; it may be empty, then all count."""
        ...

    def batch_closed(self, topic: str, partition: int) -> None:
        """A batch of the partition is full or was sent: a sticky choice moves on."""
        ...


Factory = Callable[[random.Random], Partitioner]


def crc32_partition(key: bytes, count: int) -> int:
    """Where librdkafka's `consistent` puts a key."""
    return zlib.crc32(key) % count


class _Sticky:
    """Without a key, one random partition for a whole batch: fewer, fuller batches (KIP-480)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stuck: dict[str, int] = {}
        self._left: dict[str, int] = {}  # the partition before

    def pick(self, topic: str, count: int, available: Sequence[int]) -> int:
        stuck = self._stuck.get(topic)
        if stuck is None or stuck >= count:
            stuck = self._stuck[topic] = self._random(available or range(count), self._left.get(topic))
        return stuck

    def batch_closed(self, topic: str, partition: int) -> None:
        """The next record without a key chooses anew."""
        if self._stuck.get(topic) == partition:
            self._left[topic] = self._stuck.pop(topic)

    def _random(self, among: Sequence[int], left: int | None) -> int:
        if len(among) > 1 and left in among:
            among = [partition for partition in among if partition != left]
        return self._rng.choice(among)


class _JavaDefault(_Sticky):
    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        if key is not None:
            return java_partition(key, count)
        return self.pick(topic, count, available)


class _ConsistentRandom(_Sticky):
    """librdkafka takes an empty key for none here."""

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return zlib.crc32(key) % count if key else self.pick(topic, count, available)


class _RoundRobin:
    def __init__(self, rng: random.Random) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1 & _INT31
        return available[turn % len(available)] if available else turn % count

    def batch_closed(self, topic: str, partition: int) -> None:
        """Takes no part in the turns."""


def java_default(rng: random.Random) -> Partitioner:
    """Java's: murmur2 of the key; without one, sticky to a random partition batch by batch."""
    return _JavaDefault(rng)


def consistent_random(rng: random.Random) -> Partitioner:
    """librdkafka's default: CRC-32 of the key; random for no key and for an empty one, sticky batch by batch."""
    return _ConsistentRandom(rng)


def round_robin(rng: random.Random) -> Partitioner:
    """Java's RoundRobinPartitioner: each available partition in turn, whatever the key."""
    return _RoundRobin(rng)


BY_NAME: dict[str, Factory] = {
    "java_default": java_default,
    "murmur2_random": java_default,  # librdkafka's name for it
    "consistent_random": consistent_random,
    "round_robin": round_robin,
}


def partitioner(choice: str | Factory) -> Factory:
    """The factory for a name, or the given one. Raises ConfigError."""
    if callable(choice):
        return choice
    found = BY_NAME.get(choice)
    if found is None:
        raise ConfigError(f"unknown partitioner {choice!r}; there are {', '.join(BY_NAME)}")
    return found
