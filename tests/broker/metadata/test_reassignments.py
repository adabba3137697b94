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
    async with running(tmp_path) as broker:  # a stop in the middle: the start completes it
        after[0] = ((1, 2), (2, 1), 1, 2)
        assert [(set(one[0]), set(one[1])) for one in state(broker)] == [({1, 2}, {1, 2}), ({1, 2, 3}, {1, 2, 3})]
        assert await listed(broker) == {}


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
        assert state(broker) == [((3, 1), (1,), 1, 0), ((3, 2, 1), (2, 1), 1, 0), ((3, 1, 2), (1, 2), 1, 0)]
        assert await reassigned(broker, ("t", 0, None)) == [0]
        assert state(broker)[0] == ((1,), (1,), 1, 1)
        assert await reassigned(broker, ("t", 0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    async with running(tmp_path, note=TopologyNote(frozenset({3}))) as broker:
        del pending["t", 0]
        assert await listed(broker) == pending
        assert await reassigned(broker, ("t", 2, [2])) == [0]  # another change, which is possible
        broker.state.topology.start_node(3)
        assert await listed(broker) == {}
        assert state(broker) == [((1,), (1,), 1, 1), ((3, 2), (3, 2), 3, 1), ((2,), (2,), 2, 1)]


async def test_cancelling_may_need_an_unclean_election(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        topology = broker.state.topology
        made(broker, [1])
        topology.stop_node(3)
        assert await reassigned(broker, ("t", 0, [2, 3])) == [0]
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
@settings(max_examples=200, deadline=None)
def test_change_record_round_trip(before: Assignment, after: Assignment) -> None:
    record = changed_record(bytes(16), 0, before, after, None)
    made_of = merged(before, record) if isinstance(record, PartitionChangeRecord) else stored_assignment(record)
    assert made_of == after


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_reassignments_complete_when_all_nodes_run(data: st.DataObject) -> None:
    """Random requests while nodes stop and start: once all nodes run, a partition has the last requested replicas."""
    three = Nodes(1, range(1, 6))
    some = st.lists(st.sampled_from(three.ids), min_size=1, max_size=4, unique=True).map(tuple)
    now = three.assigned(data.draw(some))
    wanted = now.replicas
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(["reassign", "cancel", "nodes"]))
        before = now
        if step == "reassign":
            wanted = data.draw(some)
            now = three.reassigned(now, wanted, is_held=False, unclean=False)
        elif step == "cancel" and now.is_reassigned:
            reverted = three.reverted(now, is_held=False, unclean=False)
            if reverted is not None:
                now, wanted = reverted, reverted.target
        else:
            three.stopped = set(data.draw(st.sets(st.sampled_from(three.ids), max_size=4)))
            now = three.elected(now, is_held=False, unclean=False)
        assert set(now.isr) <= set(now.replicas) and now.isr
        assert now.leader == NO_LEADER or now.leader in now.isr
        assert set(now.adding) | set(now.removing) <= set(now.replicas) and not set(now.adding) & set(now.removing)
        assert now.leader_epoch >= before.leader_epoch + (now.leader != before.leader)
    three.stopped = set()
    now = three.elected(now, is_held=False, unclean=False)
    assert not now.is_reassigned and now.replicas == wanted and set(now.isr) == set(wanted)
