"""Partition assignors: range and roundrobin of the Java client, computed by the group's leader.

Two pure functions. Members are ordered as in Java: static members first, by instance id, the others by member id. So
the result does not depend on which client leads a mixed group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import cycle

from ...protocol.named import NamedTuple
from ..net.metadata import TopicPartition


class Member(NamedTuple):
    """A member of the group, as in the leader's JoinGroup response."""

    member_id: str
    topics: Iterable[str]
    instance_id: str | None = None


Assignor = Callable[[list[Member], Mapping[str, int]], dict[str, list[TopicPartition]]]


def _order(member: Member) -> tuple[bool, str]:
    return (member.instance_id is None, member.member_id if member.instance_id is None else member.instance_id)


def range_assignor(members: list[Member], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Assigns each topic separately, in contiguous ranges; the first members get one more.

    `counts` are the partition counts of topics, 0 for missing ones. Returns member id -> partitions.
    """
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    by_topic: dict[str, list[str]] = {}
    for member in sorted(members, key=_order):
        for topic in set(member.topics):
            by_topic.setdefault(topic, []).append(member.member_id)
    for topic in sorted(by_topic):
        readers = by_topic[topic]
        each, more = divmod(counts.get(topic, 0), len(readers))
        start = 0
        for index, member_id in enumerate(readers):
            end = start + each + (index < more)
            assigned[member_id] += [(topic, partition) for partition in range(start, end)]
            start = end
    return assigned


def roundrobin_assignor(members: list[Member], counts: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Assigns all partitions of all topics in order, one to each member, skipping members without that topic.

    Parameters and result are those of `range_assignor`.
    """
    assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ordered = sorted(members, key=_order)
    wanted = {member.member_id: frozenset(member.topics) for member in ordered}
    turn = cycle(member.member_id for member in ordered)
    for topic in sorted(frozenset[str]().union(*wanted.values())):
        for partition in range(counts.get(topic, 0)):
            reader = next(member_id for member_id in turn if topic in wanted[member_id])
            assigned[reader].append((topic, partition))
    return assigned


ASSIGNORS: Mapping[str, Assignor] = {"range": range_assignor, "roundrobin": roundrobin_assignor}
