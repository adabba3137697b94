"""Partitioners, compatible with those of the Java client and of librdkafka: equal keys go to the same partition.

Owns the choice and its state for each topic. A factory `(rng) -> Partitioner` makes the partitioner of one producer;
`partitioner` returns the factory for a name. Sources: Java's `DefaultPartitioner` with KIP-480 (sticky without a key)
and `RoundRobinPartitioner`; librdkafka's `partitioner` property and its `rdcrc32`.
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
        """Returns a partition below `count`. `available` are those with a leader; if it is empty, all may be chosen."""
        ...

    def batch_closed(self, topic: str, partition: int) -> None:
        """Called when a batch is full or sent: a sticky partitioner chooses another partition."""
        ...


Factory = Callable[[random.Random], Partitioner]


class _Sticky:
    """Records without a key go to one random partition until its batch is closed: fewer, larger batches (KIP-480)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._stuck: dict[str, int] = {}
        self._left: dict[str, int] = {}  # the previous partition

    def pick(self, topic: str, count: int, available: Sequence[int]) -> int:
        stuck = self._stuck.get(topic)
        if stuck is None or stuck >= count:
            among, left = available or range(count), self._left.get(topic)
            if len(among) > 1 and left in among:
                among = [partition for partition in among if partition != left]
            stuck = self._stuck[topic] = self._rng.choice(among)
        return stuck

    def batch_closed(self, topic: str, partition: int) -> None:
        """Drops the sticky partition; the next record without a key chooses another one."""
        if self._stuck.get(topic) == partition:
            self._left[topic] = self._stuck.pop(topic)


class _JavaDefault(_Sticky):
    """Java's default: murmur2 of the key; without a key, a random partition for each batch."""

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        if key is not None:
            return java_partition(key, count)
        return self.pick(topic, count, available)


class _ConsistentRandom(_Sticky):
    """librdkafka's default: CRC-32 of the key; without one, or an empty one, a random partition for each batch."""

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return zlib.crc32(key) % count if key else self.pick(topic, count, available)


class _RoundRobin:
    """Java's RoundRobinPartitioner: available partitions in order, independent of the key."""

    def __init__(self, rng: random.Random) -> None:
        self._next: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1 & _INT31
        return available[turn % len(available)] if available else turn % count

    def batch_closed(self, topic: str, partition: int) -> None:
        """Does nothing: batches do not affect the order."""


java_default: Factory = _JavaDefault
consistent_random: Factory = _ConsistentRandom
round_robin: Factory = _RoundRobin
BY_NAME: dict[str, Factory] = {
    "java_default": java_default,
    "murmur2_random": java_default,  # librdkafka's name for it
    "consistent_random": consistent_random,
    "round_robin": round_robin,
}


def partitioner(choice: str | Factory) -> Factory:
    """Returns the factory for a name, or the given factory. Raises ConfigError."""
    if callable(choice):
        return choice
    found = BY_NAME.get(choice)
    if found is None:
        raise ConfigError(f"unknown partitioner {choice!r}: expected one of {', '.join(BY_NAME)}")
    return found
