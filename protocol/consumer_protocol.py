"""The embedded protocol of consumers: what the members of a classic group send each other through the coordinator.

Owns ConsumerProtocolSubscription (the metadata of a member in JoinGroup) and ConsumerProtocolAssignment (its assignment
in SyncGroup), each after an int16 version. Versions newer than v3 are read by the fields of v3: new fields are only
appended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from .compiler import build, parser
from .errors import MalformedMessage
from .primitives import Bytes, Int32, Text
from .schema import field, group, message

NEWEST_VERSION = 3
NO_GENERATION = -1
T = TypeVar("T")


@group
class TopicPartitions:
    topic: Text
    partitions: list[Int32]


@message(versions="0-3")
class ConsumerProtocolSubscription:
    """The topics of a member, and in v1 and later the partitions of its last assignment."""

    topics: list[Text]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartitions] = field("1+", default=list, ignorable=True)
    generation_id: Int32 = field("2+", default=NO_GENERATION, ignorable=True)
    rack_id: Text | None = field("3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions of a member. Data of the user are those of a custom assignor."""

    assigned_partitions: list[TopicPartitions]
    user_data: Bytes | None = field(default=None)


def read_subscription(data: bytes, newest: int = NEWEST_VERSION) -> ConsumerProtocolSubscription:
    """Parses a subscription, with the fields of version `newest` at most. Raises MalformedMessage."""
    return _read(ConsumerProtocolSubscription, data, newest)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Parses an assignment. Empty bytes have no partitions: members that the leader has left out receive them.

    Raises MalformedMessage.
    """
    if not data:
        return ConsumerProtocolAssignment(assigned_partitions=[])
    return _read(ConsumerProtocolAssignment, data, NEWEST_VERSION)


def version_of(data: bytes) -> int:
    """Returns the version of a subscription or an assignment. Raises MalformedMessage."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise MalformedMessage(f"version {version} of the consumer protocol: expected 0 or more")
    return version


def subscription_bytes(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    """Returns the bytes of a subscription. Raises MalformedMessage for a name that is too long."""
    return _bytes(subscription, version)


def assignment_bytes(partitions: Iterable[tuple[str, Iterable[int]]], version: int = NEWEST_VERSION) -> bytes:
    """Returns the bytes of an assignment from pairs (topic, partition indexes), in the newest known version at most."""
    listed = [TopicPartitions(topic=topic, partitions=list(indexes)) for topic, indexes in partitions]
    return _bytes(ConsumerProtocolAssignment(assigned_partitions=listed), version)


def _read(kind: type[T], data: bytes, newest: int) -> T:
    return parser(kind, min(version_of(data), newest))(data, 2)


def _bytes(value: object, version: int) -> bytes:
    version = min(version, NEWEST_VERSION)
    return version.to_bytes(2, "big") + build(value, version)
