"""The embedded consumer protocol: subscriptions and assignments in the format of the Java client.

Owns ConsumerProtocolSubscription and ConsumerProtocolAssignment. v3 is written, as by Java 3.5 and later. All versions
are read, newer ones by their known fields: new fields are only appended. Brokers do not parse these bytes.

    subscription: int16 version, topics (array of string), user data (bytes, -1 null), v1 owned partitions,
                  v2 int32 generation, v3 rack (string, -1 null)
    assignment:   int16 version, partitions (array of: string topic, array of int32), user data
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ..net.errors import ClientError

__all__ = ["Subscription", "assignment_bytes", "read_assignment", "read_subscription", "subscription_bytes"]

VERSION = 3
NO_GENERATION = -1
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NULL_BYTES, _NULL_TEXT = b"\xff\xff\xff\xff", b"\xff\xff"
_OWNED_SINCE, _GENERATION_SINCE = 1, 2
TopicPartition = tuple[str, int]


class Subscription(NamedTuple):
    """The subscription of a member; `owned` and `generation` are those of its last assignment."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def subscription_bytes(topics: Iterable[str], owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Builds a subscription as Java does: sorted topics, no user data, no rack."""
    names = sorted(topics)
    out = [_INT16.pack(VERSION), _INT32.pack(len(names)), *map(_text, names), _NULL_BYTES]
    out += [_partitions(owned), _INT32.pack(generation), _NULL_TEXT]
    return b"".join(out)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """Builds the assignment of a member."""
    return b"".join((_INT16.pack(VERSION), _partitions(partitions), _NULL_BYTES))


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    out = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        out += [_text(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join(out)


def read_subscription(data: bytes) -> Subscription:
    """Parses a subscription. Raises ClientError for malformed bytes."""
    reader = _Reader(data)
    version = reader.version()
    topics = tuple(reader.text() for _ in range(reader.count(2)))
    reader.skip_bytes()
    owned = tuple(reader.partitions()) if version >= _OWNED_SINCE else ()
    generation = reader.int32() if version >= _GENERATION_SINCE else NO_GENERATION
    return Subscription(topics, owned, generation)


def read_assignment(data: bytes) -> list[TopicPartition]:
    """Parses an assignment. Empty bytes have no partitions: brokers send them to members that the leader omitted.

    Raises ClientError for malformed bytes.
    """
    if not data:
        return []
    reader = _Reader(data)
    reader.version()
    return reader.partitions()


class _Reader:
    """A sequential parser; every count is bounded by the remaining bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ClientError(
                f"{len(self._data)} bytes of the consumer protocol are cut: expected {size} more at byte {self._at}"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def version(self) -> int:
        (version,) = _INT16.unpack(self._take(2))
        if version < 0:
            raise ClientError(f"version {version} of the consumer protocol: expected 0 or more")
        return version

    def int32(self) -> int:
        return _INT32.unpack(self._take(4))[0]

    def count(self, least_bytes: int) -> int:
        """Reads the length of an array whose elements have at least `least_bytes` bytes."""
        count = self.int32()
        if not 0 <= count * least_bytes <= len(self._data) - self._at:
            raise ClientError(f"an array of {count} elements in the remaining {len(self._data) - self._at} bytes")
        return count

    def text(self) -> str:
        (size,) = _INT16.unpack(self._take(2))
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise ClientError(f"a topic name that is not UTF-8: {error}") from error

    def skip_bytes(self) -> None:
        size = self.int32()
        if size > 0:
            self._take(size)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count(6)):
            topic = self.text()
            found += [(topic, self.int32()) for _ in range(self.count(4))]
        return found
