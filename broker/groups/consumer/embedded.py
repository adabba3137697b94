"""The embedded protocol of consumers: the subscription and assignment of a member that uses the classic protocol.

    subscription: int16 version, topics (array of string), user data (bytes, -1 null), v1 owned partitions,
                  v2 int32 generation, v3 rack (string, -1 null)
    assignment:   int16 version, partitions (array of: string topic, array of int32), user data

Newer versions are read by their known fields: new fields are only appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

NEWEST_VERSION = 3
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NULL_BYTES = b"\xff\xff\xff\xff"
TopicPartitions: TypeAlias = list[tuple[str, list[int]]]
"""Topic names with partition indexes."""


class MalformedProtocol(ValueError):
    """Bytes that are not a subscription or an assignment."""


class MemberSubscription(NamedTuple):
    """The subscription of a member. `owned` are the partitions of its last assignment."""

    version: int
    topics: frozenset[str]
    owned: TopicPartitions
    rack_id: str | None = None


def read_subscription(data: bytes) -> MemberSubscription:
    """Parses a subscription. Raises MalformedProtocol."""
    reader = _Reader(data)
    version = reader.version()
    topics = frozenset(reader.text() for _ in range(reader.count(2)))
    reader.user_data()
    owned = reader.partitions() if version >= _OWNED_SINCE else []
    if version >= _GENERATION_SINCE:
        reader.int32()
    rack_id = reader.nullable_text() if version >= _RACK_SINCE else None
    return MemberSubscription(version, topics, owned, rack_id or None)


def read_assignment(data: bytes) -> tuple[TopicPartitions, bool]:
    """Parses an assignment; returns its partitions, and whether a custom assignor has added data of its own. Raises
    MalformedProtocol.
    """
    reader = _Reader(data)
    reader.version()
    return reader.partitions(), bool(reader.user_data())


def assignment_bytes(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """Builds an assignment in the version of the member's subscription, or the newest known one."""
    listed = [(topic, list(indexes)) for topic, indexes in partitions]
    out = [_INT16.pack(min(version, NEWEST_VERSION)), _INT32.pack(len(listed))]
    for topic, indexes in listed:
        name = topic.encode()
        out += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join([*out, _NULL_BYTES])


class _Reader:
    """A sequential parser; every count is bounded by the remaining bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise MalformedProtocol(f"{len(self._data)} bytes are cut: expected {size} more at byte {self._at}")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def version(self) -> int:
        (version,) = _INT16.unpack(self._take(2))
        if version < 0:
            raise MalformedProtocol(f"version {version}: expected 0 or more")
        return version

    def int32(self) -> int:
        return _INT32.unpack(self._take(4))[0]

    def count(self, least_bytes: int) -> int:
        """Reads the length of an array whose elements have at least `least_bytes` bytes."""
        count = self.int32()
        if not 0 <= count * least_bytes <= len(self._data) - self._at:
            raise MalformedProtocol(f"an array of {count} elements in {len(self._data) - self._at} bytes")
        return count

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise MalformedProtocol("a topic name that is null")
        return text

    def nullable_text(self) -> str | None:
        (size,) = _INT16.unpack(self._take(2))
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedProtocol(f"a string that is not UTF-8: {error}") from error

    def user_data(self) -> bytes:
        size = self.int32()
        return self._take(size) if size != -1 else b""

    def partitions(self) -> TopicPartitions:
        return [(self.text(), [self.int32() for _ in range(self.count(4))]) for _ in range(self.count(6))]
