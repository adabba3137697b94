"""Elections and reassignments of partitions by requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.clock import ManualClock
from ottla.broker.metadata.log import MetadataLog
from ottla.broker.metadata.nodes import Nodes
from ottla.broker.metadata.topic_records import changed_record, merged, stored_assignment
from ottla.broker.metadata.topology import NOTHING_NOTED, REASSIGNMENT_MS, TopologyNote
from ottla.broker.network import server
from ottla.broker.releases.profiles import profile
from ottla.broker.replica.assignment import NO_LEADER, Assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_records.metadata_records import PartitionChangeRecord, PartitionRecord
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.cluster.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, fetch, options, produce, records, values
from ottla_testing.broker.replica_cases import outcomes, reassigning

PREFERRED, UNCLEAN = 0, 1


@asynccontextmanager
async def running(
    folder: Path,
    release: str = "ottla",
    configs: Mapping[str, str] = MappingProxyType({}),
    note: TopologyNote = NOTHING_NOTED,
) -> AsyncIterator[Broker]:
    """A broker with three nodes."""
    clock = ManualClock()
    requested = options([folder], configs, release, 3)
    broker = Broker(await server.start(requested, asyncio.get_running_loop(), clock, note=note), clock)
    try:
        yield broker
    finally:
        await broker.stop()


def made(broker: Broker, *replicas: Sequence[int], topic: str = "t") -> None:
    broker.state.topics.create(topic, len(replicas), {}, 0, replicas)


def state(broker: Broker, topic: str = "t") -> list[tuple[tuple[int, ...], tuple[int, ...], int, int]]:
    """Returns (replicas, ISR, leader, leader epoch) of each partition."""
    return [(p.replicas, p.isr, p.leader, p.leader_epoch) for p in broker.state.topics.named(topic).partitions]


async def reassigned(broker: Broker, *requested: tuple[str, int, list[int] | None], **more: Any) -> list[int]:
    client = await broker.client()
    found = outcomes(await client.call(reassigning(*requested, **more), 1))
    client.close()
    return [code for code, _ in found]


async def listed(broker: Broker, node: int = 1) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
    """Returns (replicas, adding, removing) of reassignments in progress, as reported by a node."""
    client = await broker.client(node - 1)
    response = await client.call(ListPartitionReassignmentsRequest(topics=None), 0)
    client.close()
    assert response.error_code == 0
    return {
        (topic.name, one.partition_index): (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in response.topics
        for one in topic.partitions
    }


async def elected(broker: Broker, kind: int, **requested: list[int]) -> dict[tuple[str, int], int]:
    """Returns the codes of an election of all partitions, or of some."""
    client = await broker.client()
    named = ElectLeadersRequest.TopicPartitions
    topics = [named(topic=topic, partitions=indexes) for topic, indexes in requested.items()] if requested else None
    response = await client.call(ElectLeadersRequest(election_type=kind, topic_partitions=topics), 2)
    client.close()
    assert response.error_code == 0
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


# --- reassignments


async def test_reassignment_is_listed_briefly_and_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1, 2], [2, 3])
        client = await broker.client()
        await client.call(produce(records(b"a"), "t", 0), 9)
        assert await reassigned(broker, ("t", 0, [3, 2]), ("t", 1, [3, 2, 1])) == [0, 0]
        under_way = {("t", 0): ([3, 2, 1], [3], [1]), ("t", 1): ([3, 2, 1], [1], [])}
        assert await listed(broker) == under_way
        assert [(one[0], one[2:]) for one in state(broker)] == [((3, 2, 1), (1, 0)), ((3, 2, 1), (2, 0))]
        broker.clock.advance(REASSIGNMENT_MS - 1)
        assert await listed(broker) == under_way
        broker.clock.advance(1)
        after = [((3, 2), (3, 2), 3, 1), ((3, 2, 1), (3, 2, 1), 2, 0)]
        assert state(broker) == after and await listed(broker) == {}
        requested = [MetadataRequest.MetadataRequestTopic(name="t")]
        (topic,) = (await client.call(MetadataRequest(topics=requested), 12)).topics
        assert [(p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
            (3, [3, 2], [3, 2]), (2, [3, 2, 1], [3, 2, 1]),
        ]  # fmt: skip
        third = await broker.client(2)
        (response,) = (await third.call(fetch(("t", 0, 0), max_wait_ms=0), 11)).responses
        assert values(response.partitions[0].records) == [b"a"]
        assert await reassigned(broker, ("t", 0, [3, 2])) == [0]  # the present state: nothing changes
        assert state(broker) == after
        assert await reassigned(broker, ("t", 0, [1, 2])) == [0]
    async with running(tmp_path) as broker:  # a stop in the middle: the reassignment continues
        assert await listed(broker) == {("t", 0): ([1, 2, 3], [1], [3])}
        assert state(broker)[0] == ((1, 2, 3), (2, 3), 3, 1)
        broker.clock.advance(REASSIGNMENT_MS)
        assert await listed(broker) == {} and state(broker)[0] == ((1, 2), (1, 2), 1, 2)


async def test_reassignment_in_progress_can_be_cancelled_or_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1], [1])
        assert await reassigned(broker, ("t", 0, [2]), ("t", 1, [2])) == [0, 0]
        assert await reassigned(broker, ("t", 0, None)) == [0]
        assert await reassigned(broker, ("t", 1, [3])) == [0]
        broker.clock.advance(REASSIGNMENT_MS)
        assert [one[0] for one in state(broker)] == [(1,), (3,)]
        assert await reassigned(broker, ("t", 0, [2])) == [0]
        broker.state.topics.delete(broker.state.topics.named("t"), 0)
        broker.clock.advance(REASSIGNMENT_MS)
        assert broker.state.topics.get("t") is None


async def test_reassignment_waits_for_a_stopped_node(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1], [1], [1, 2])
        broker.state.topology.stop_node(3)
        assert await reassigned(broker, ("t", 0, [3]), ("t", 1, [3, 2]), ("t", 2, [3, 1])) == [0, 0, 0]
        pending = {
            ("t", 0): ([3, 1], [3], [1]),
            ("t", 1): ([3, 2, 1], [2, 3], [1]),
            ("t", 2): ([3, 1, 2], [3], [2]),
        }
        assert await listed(broker) == pending
        assert state(broker) == [((3, 1), (1,), 1, 0), ((3, 2, 1), (1,), 1, 0), ((3, 1, 2), (1, 2), 1, 0)]
        broker.clock.advance(REASSIGNMENT_MS)
        assert await listed(broker) == pending and state(broker)[1] == ((3, 2, 1), (2, 1), 1, 0)
        assert await reassigned(broker, ("t", 0, None)) == [0]
        assert state(broker)[0] == ((1,), (1,), 1, 1)
        assert await reassigned(broker, ("t", 0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    async with running(tmp_path, note=TopologyNote(frozenset({3}))) as broker:
        del pending["t", 0]
        assert await listed(broker) == pending
        assert await reassigned(broker, ("t", 2, None)) == [0]
        assert await reassigned(broker, ("t", 2, [2])) == [0]  # nothing to add: it completes at once
        del pending["t", 2]
        assert await listed(broker) == pending
        broker.clock.advance(REASSIGNMENT_MS)
        broker.state.topology.start_node(3)
        assert await listed(broker) == {}
        assert state(broker) == [((1,), (1,), 1, 1), ((3, 2), (3, 2), 3, 1), ((2,), (2,), 2, 2)]


async def test_cancelling_may_need_an_unclean_election(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topology = broker.state.topology
        made(broker, [1])
        topology.stop_node(3)
        assert await reassigned(broker, ("t", 0, [2, 3])) == [0]
        broker.clock.advance(REASSIGNMENT_MS)
        topology.stop_node(1)  # node 2 is in sync by then
        assert await listed(broker, 2) == {("t", 0): ([2, 3, 1], [2, 3], [1])}
        client = await broker.client(1)
        (found,) = outcomes(await client.call(reassigning(("t", 0, None)), 0))
        assert found == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to revert partition assignment for t:0 because it would require an unclean leader election.",
        )


async def test_reassignment_may_have_to_keep_the_replication_factor(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1, 2])
        client = await broker.client()
        request = reassigning(("t", 0, [1]), ("t", 0, [2, 3]), allow_replication_factor_change=False)
        response = await client.call(request, 1)
        assert not response.allow_replication_factor_change
        assert outcomes(response) == [
            (ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor is changed from 2 to 1"),
            (0, None),
        ]
        broker.clock.advance(REASSIGNMENT_MS)
        assert state(broker)[0][0] == (2, 3)


# --- elections


async def test_a_preferred_replica_is_elected(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topology = broker.state.topology
        made(broker, [1, 2], [2, 3], [3, 1])
        made(broker, [1], topic="u")
        topology.move_leader("t", 0, 2)
        topology.stop_node(3)
        found = await elected(broker, PREFERRED, t=[0, 1, 2], u=[0])
        not_needed = ErrorCode.ELECTION_NOT_NEEDED
        assert found == {
            ("t", 0): 0,
            ("t", 1): not_needed,
            ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ("u", 0): not_needed,
        }
        assert [leader for _, _, leader, _ in state(broker)] == [1, 2, 1]
        topology.start_node(3)
        assert await elected(broker, PREFERRED) == {("t", 2): 0}
        assert [(leader, epoch) for _, _, leader, epoch in state(broker)] == [(1, 2), (2, 0), (3, 2)]
        topology.take_offline("t", 0)
        assert await elected(broker, PREFERRED) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


async def test_unclean_election_elects_a_running_replica(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topology = broker.state.topology
        made(broker, [3, 2], [3], [1])
        topology.stop_node(2)
        topology.stop_node(3)
        topology.start_node(2)  # without the records of node 3
        assert [leader for _, _, leader, _ in state(broker)] == [NO_LEADER, NO_LEADER, 1]
        assert await elected(broker, UNCLEAN) == {("t", 0): 0, ("t", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        assert [(isr, leader) for _, isr, leader, _ in state(broker)] == [((2,), 2), ((3,), NO_LEADER), ((1,), 1)]
        assert (await elected(broker, UNCLEAN, t=[0]))["t", 0] == ErrorCode.ELECTION_NOT_NEEDED


async def test_election_results_in_zookeeper_releases_list_only_changes(tmp_path: Path) -> None:
    async with running(tmp_path, "2.8") as broker:
        made(broker, [1, 2])
        made(broker, [2], topic="u")
        broker.state.topology.move_leader("t", 0, 2)
        client = await broker.client()
        response = await client.call(ElectLeadersRequest(topic_partitions=None), 2)
        assert [topic.topic for topic in response.replica_election_results] == ["t"]
        assert await elected(broker, PREFERRED, no=[0]) == {("no", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# --- leader rebalance


async def test_leaders_return_to_preferred_replicas(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1, 2], [2, 1])
        broker.state.topology.move_leader("t", 0, 2)
        broker.clock.advance(299_000)
        assert [leader for _, _, leader, _ in state(broker)] == [2, 2]
        broker.clock.advance(1_000)
        assert [leader for _, _, leader, _ in state(broker)] == [1, 2]


@pytest.mark.parametrize(
    ("release", "configs", "goes_back"),
    [
        ("ottla", {"auto.leader.rebalance.enable": "false"}, False),
        ("ottla", {"leader.imbalance.check.interval.seconds": "1000"}, False),
        ("3.9", {"leader.imbalance.per.broker.percentage": "50"}, True),  # KRaft ignores the percentage
        ("2.8", {"leader.imbalance.per.broker.percentage": "50"}, False),
        ("2.8", {"leader.imbalance.per.broker.percentage": "49"}, True),
    ],
)
async def test_leader_rebalance_threshold(
    release: str, configs: dict[str, str], goes_back: bool, tmp_path: Path
) -> None:
    async with running(tmp_path, release, configs) as broker:
        made(broker, [1, 2], [1, 2])
        broker.state.topology.move_leader("t", 0, 2)
        broker.clock.advance(300_000)
        assert [leader for _, _, leader, _ in state(broker)] == [1 if goes_back else 2, 1]


# --- records


async def test_change_records_match_kafka(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        made(broker, [1, 2])
        log: MetadataLog = broker.state.metadata_log
        broker.state.topology.move_leader("t", 0, 2)
        await reassigned(broker, ("t", 0, [3]))
        broker.clock.advance(REASSIGNMENT_MS)
        first, *changes = [
            record for record in log.replay() if isinstance(record, PartitionRecord | PartitionChangeRecord)
        ]
        assert isinstance(first, PartitionRecord) and len(changes) == 3
        moved, begun, other = changes
        assert (moved.leader, moved.isr, moved.replicas, moved.directories) == (2, None, None, None)
        assert (begun.replicas, begun.adding_replicas, begun.removing_replicas) == ([3, 1, 2], [3], [1, 2])
        assert (other.leader, other.isr, other.replicas, len(other.directories or ())) == (3, [3], [3], 1)


nodes = st.lists(st.integers(1, 5), max_size=4, unique=True).map(tuple)
assignments = st.builds(
    Assignment, nodes, nodes, st.integers(-1, 5), st.integers(0, 9), st.integers(0, 9), nodes, nodes
)


@given(assignments, assignments)
@settings(max_examples=3 * settings().max_examples, deadline=None)
def test_change_record_round_trip(before: Assignment, after: Assignment) -> None:
    record = changed_record(bytes(16), 0, before, after, None)
    made_of = merged(before, record) if isinstance(record, PartitionChangeRecord) else stored_assignment(record)
    assert made_of == after


@pytest.mark.parametrize("release", ["2.8", "3.7", "4.2", "4.3"])
@given(data=st.data())
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_random_reassignments_keep_the_invariants(release: str, data: st.DataObject) -> None:
    """Random requests while nodes stop and start, and replicas that catch up in any order."""
    five = Nodes(1, range(1, 6), profile(release).behaviour)
    some = st.lists(st.sampled_from(five.ids), min_size=1, max_size=4, unique=True).map(tuple)
    now = five.assigned(data.draw(some))
    for _ in range(data.draw(st.integers(1, 8))):
        step = data.draw(st.sampled_from(["reassign", "cancel", "nodes", "join"]))
        before = now
        if step == "reassign":
            wanted = data.draw(some)
            now = five.reassigned(now, wanted, is_held=False)
            if not before.is_reassigned:
                assert now.target == wanted or now.replicas == wanted
                assert set(now.adding) <= set(wanted) and not set(now.removing) & set(wanted)
        elif step == "cancel" and now.is_reassigned:
            now = five.reverted(now, is_held=False, unclean=False) or now
            assert now == before or (
                not now.is_reassigned and set(now.replicas) == set(before.replicas) - set(before.adding)
            )
        elif step == "join" and (lagging := five.lagging(now)):
            now = five.joined(now, data.draw(st.sets(st.sampled_from(lagging), min_size=1)))
            assert now != before
        elif step == "nodes":
            five.stopped = set(data.draw(st.sets(st.sampled_from(five.ids), max_size=4)))
            now = five.elected(now, is_held=False, unclean=False)
        assert set(now.isr) <= set(now.replicas) and now.isr
        assert now.leader == NO_LEADER or now.leader in now.isr
        assert set(now.adding) | set(now.removing) <= set(now.replicas)
        assert now.leader_epoch >= before.leader_epoch + (now.leader != before.leader)
    five.stopped = set()
    now = five.elected(now, is_held=False, unclean=False)
    now = five.joined(now, five.lagging(now)) if now.is_reassigned else now
    is_stuck = set(now.adding) & set(now.removing)  # see test_reassignment_during_another
    assert now.is_reassigned == bool(is_stuck)
    assert now.is_reassigned or set(now.isr) == set(now.replicas)


# Steps, and states as from PartitionChangeBuilder of Apache Kafka 4.3.1.
Steps = Sequence[tuple[str, list[int], Assignment]]
DURING_ANOTHER: list[tuple[list[int], Steps]] = [
    (
        [5, 3],
        [
            ("reassign", [2, 1, 3], Assignment((2, 1, 3, 5), (5, 3), 5, 0, 1, (1, 2), (5,))),
            ("join", [2, 1], Assignment((2, 1, 3), (2, 1, 3), 2, 1, 2)),
            ("reassign", [3, 4], Assignment((3, 4, 1, 2), (1, 2, 3), 2, 1, 3, (4,), (1, 2))),
            ("join", [4], Assignment((3, 4), (3, 4), 3, 2, 4)),
        ],
    ),
    (  # a replica being added counts as an old one, also for cancelling
        [5, 2, 4],
        [
            ("reassign", [5, 1, 4], Assignment((5, 1, 4, 2), (2, 4, 5), 5, 0, 1, (1,), (2,))),
            ("reassign", [3, 1], Assignment((3, 1, 2, 4, 5), (2, 4, 5), 5, 0, 2, (3,), (2, 4, 5))),
            ("cancel", [], Assignment((1, 2, 4, 5), (1, 2, 4, 5), 5, 1, 3)),
        ],
    ),
    (  # a target within the present replicas does not end the addition of others
        [4, 2, 1],
        [
            ("reassign", [3], Assignment((3, 1, 2, 4), (1, 2, 4), 4, 0, 1, (3,), (1, 2, 4))),
            ("reassign", [4], Assignment((4, 1, 2, 3), (1, 2, 4), 4, 0, 2, (3,), (1, 2, 3))),
            ("join", [3], Assignment((4, 1, 2, 3), (1, 2, 3, 4), 4, 0, 3, (3,), (1, 2, 3))),
            ("cancel", [], Assignment((4, 1, 2), (1, 2, 4), 4, 1, 4)),
        ],
    ),
]


@pytest.mark.parametrize(("first", "steps"), DURING_ANOTHER)
def test_reassignment_during_another(first: list[int], steps: Steps) -> None:
    nodes = Nodes(1, range(1, 6))
    now = nodes.assigned(first)
    for step, given_nodes, expected in steps:
        if step == "reassign":
            now = nodes.reassigned(now, given_nodes, is_held=False)
        elif step == "join":
            now = nodes.joined(now, given_nodes)
        else:
            reverted = nodes.reverted(now, is_held=False, unclean=False)
            assert reverted is not None
            now = reverted
        assert now._replace(isr=tuple(sorted(now.isr))) == expected._replace(isr=tuple(sorted(expected.isr)))


def test_reassignment_replaces_another_with_zookeeper() -> None:
    nodes = Nodes(1, range(1, 6), profile("2.8").behaviour)
    now = nodes.reassigned(nodes.assigned([2, 1]), [3], is_held=False)
    assert now == Assignment((3, 2, 1), (2, 1), 2, 0, 1, (3,), (2, 1))
    now = nodes.reassigned(now, [1, 4], is_held=False)
    assert now == Assignment((1, 4, 2), (1, 2), 2, 1, 2, (4,), (2,))
    assert nodes.joined(now, [4]) == Assignment((1, 4), (1, 4), 1, 2, 3)


@pytest.mark.parametrize(
    ("release", "completes"),
    [("2.8", (False, False)), ("3.7", (True, True)), ("4.2", (False, False)), ("4.3", (True, False))],
)
def test_replicas_that_a_reassignment_awaits(release: str, completes: tuple[bool, bool]) -> None:
    """KAFKA-15665, KAFKA-19975: node 2 is stopped and keeps its replica."""
    for first, is_complete in zip(([1, 2], [1, 2, 3]), completes, strict=True):
        nodes = Nodes(1, range(1, 4), profile(release).behaviour)
        now, target = nodes.assigned(first), [2, 3]
        nodes.stopped = {2}
        now = nodes.reassigned(nodes.elected(now, is_held=False, unclean=False), target, is_held=False)
        if lagging := nodes.lagging(now):
            now = nodes.joined(now, lagging)
        assert now.is_reassigned != is_complete
