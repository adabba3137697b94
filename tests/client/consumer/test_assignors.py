"""Assignors compared with those of aiokafka on random subscriptions; the encoding of subscriptions and assignments."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consumer.assignors import ASSIGNORS, Member, range_assignor, roundrobin_assignor
from ottla.client.net.metadata import by_topic
from ottla.protocol import consumer_protocol
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, read_assignment, read_subscription
from ottla.protocol.errors import MalformedMessage

THEIRS: dict[str, Any] = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
TOPICS = ("a", "b", "c", "d")


class Counts:
    """Cluster metadata as the assignors of aiokafka read it."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None


@pytest.mark.parametrize("name", ASSIGNORS)
@given(
    members=st.dictionaries(
        st.text("xyz019-", min_size=1, max_size=4), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=7
    ),
    counts=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9)),
)
def test_assignors_assign_like_aiokafka(name: str, members: dict[str, set[str]], counts: dict[str, int]) -> None:
    ours = ASSIGNORS[name]([Member(member_id, topics) for member_id, topics in members.items()], counts)
    metadata = {who: ConsumerProtocolMemberMetadata(0, sorted(topics), b"") for who, topics in members.items()}
    theirs = THEIRS[name].assign(Counts(counts), metadata)
    assert {who: sorted(parts) for who, parts in ours.items()} == {
        who: sorted((tp.topic, tp.partition) for tp in assignment.partitions()) for who, assignment in theirs.items()
    }
    given_out = sorted(part for parts in ours.values() for part in parts)
    wanted = set().union(*members.values())
    assert given_out == [(t, p) for t in TOPICS if t in wanted for p in range(counts.get(t, 0))]
    assert all(topic in members[who] for who, parts in ours.items() for topic, _ in parts)


def test_static_members_are_assigned_first_by_instance_id() -> None:
    members = [Member("a", ("t",)), Member("z", ("t",), "two"), Member("y", ("t",), "three")]
    assert range_assignor(members, {"t": 4}) == {"y": [("t", 0), ("t", 1)], "z": [("t", 2)], "a": [("t", 3)]}
    assert roundrobin_assignor(members, {"t": 4}) == {"y": [("t", 0), ("t", 3)], "z": [("t", 1)], "a": [("t", 2)]}


def subscription_bytes(topics: Iterable[str], generation: int) -> bytes:
    subscription = ConsumerProtocolSubscription(topics=sorted(topics), generation_id=generation)
    return consumer_protocol.subscription_bytes(subscription)


def assignment_bytes(partitions: Iterable[tuple[str, int]]) -> bytes:
    return consumer_protocol.assignment_bytes(by_topic(sorted(partitions)).items())


def pairs(data: bytes) -> list[tuple[str, int]]:
    return [(one.topic, index) for one in read_assignment(data).assigned_partitions for index in one.partitions]


def test_subscription_and_assignment_bytes_equal_javas() -> None:
    # Written by hand from ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, v3.
    assert subscription_bytes(["b", "a"], -1).hex(" ") == (
        "00 03 00 00 00 02 00 01 61 00 01 62 ff ff ff ff 00 00 00 00 ff ff ff ff ff ff"
    )
    assert subscription_bytes(["a"], 5).hex(" ") == (
        "00 03 00 00 00 01 00 01 61 ff ff ff ff 00 00 00 00 00 00 00 05 ff ff"
    )
    assert assignment_bytes([("b", 0), ("a", 2), ("a", 1)]).hex(" ") == (
        "00 03 00 00 00 02 00 01 61 00 00 00 02 00 00 00 01 00 00 00 02 00 01 62 00 00 00 01 00 00 00 00 ff ff ff ff"
    )


def test_bytes_of_other_clients_are_read() -> None:
    assert read_subscription(ConsumerProtocolMemberMetadata(0, ["b", "a"], b"user").encode()).topics == ["b", "a"]
    assigned = ConsumerProtocolMemberAssignment(0, [("t", [1, 0]), ("u", [])], b"")
    assert pairs(assigned.encode()) == [("t", 1), ("t", 0)]
    assert pairs(b"") == []
    ours = ConsumerProtocolMemberMetadata.decode(subscription_bytes(["b", "a"], 3))
    assert ours.subscription == ["a", "b"]
    ours = ConsumerProtocolMemberAssignment.decode(assignment_bytes([("a", 1), ("b", 0)]))
    assert [(tp.topic, tp.partition) for tp in ours.partitions()] == [("a", 1), ("b", 0)]
    # An unknown newer version is read by its known fields.
    newer = b"\x00\x09" + subscription_bytes(["a"], 3)[2:] + b"more"
    assert read_subscription(newer).topics == ["a"]


@given(st.binary(max_size=40), st.sampled_from([read_subscription, read_assignment]))
def test_malformed_bytes_raise_one_error(data: bytes, read: Any) -> None:
    for start in (b"", b"\x00\x03\x00\x00\x00\x01"):
        with contextlib.suppress(MalformedMessage):
            read(start + data)


def test_huge_count_allocates_no_memory() -> None:
    with pytest.raises(MalformedMessage, match=r"2147483647 (items|bytes) announced"):
        read_subscription(bytes.fromhex("0000 7fffffff 0000"))
    with pytest.raises(MalformedMessage, match=r"2147483647 (items|bytes) announced"):
        read_assignment(bytes.fromhex("0000 00000001 0001 61 7fffffff 0000"))
    with pytest.raises(MalformedMessage):
        read_subscription(bytes.fromhex("0000 00000001 0002 61"))


@given(
    st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 1000)), unique=True),
    st.sets(st.text(max_size=5)),
    st.integers(-1, 2**31 - 1),
)
def test_subscription_and_assignment_round_trip(
    partitions: list[tuple[str, int]], topics: set[str], generation: int
) -> None:
    assert pairs(assignment_bytes(partitions)) == sorted(partitions)
    assert read_subscription(subscription_bytes(topics, generation)).topics == sorted(topics)
