"""Random changes of a topology, with restarts.

Invariants: leaders run and are in sync, epochs increase with each change, all nodes return the same leaders and
coordinators, and no acknowledged record is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metadata.nodes import Nodes
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.metadata.topology import TopologyError
from ottla.broker.replica.assignment import NO_LEADER, Assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running, values

NODES = 3


@st.composite
def situations(draw: st.DrawFn) -> tuple[Nodes, Assignment]:
    """Nodes, some of them stopped, and a partition with a previous leader."""
    nodes = Nodes(1, range(1, draw(st.integers(3, 6))))
    replicas = tuple(draw(st.permutations(nodes.ids))[: draw(st.integers(1, len(nodes.ids)))])
    isr = tuple(node for node in replicas if draw(st.booleans())) or replicas[-1:]
    leader = draw(st.sampled_from((NO_LEADER, *isr)))
    nodes.stopped = draw(st.sets(st.sampled_from(nodes.ids)))
    return nodes, Assignment(replicas, isr, leader, draw(st.integers(0, 9)), draw(st.integers(0, 9)))


@given(situations(), st.booleans(), st.booleans())
def test_random_elections_keep_the_invariants(situation: tuple[Nodes, Assignment], is_held: bool, unclean: bool):
    nodes, before = situation
    after = nodes.elected(before, is_held=is_held, unclean=unclean)
    assert after.replicas == before.replicas
    assert set(after.isr) <= set(after.replicas) and after.isr
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    assert after.partition_epoch - before.partition_epoch == (after != before)
    running = {node for node in before.replicas if node not in nodes.stopped}
    if after.leader != NO_LEADER:
        assert after.leader in running and set(after.isr) == running and not is_held
        assert after.leader in before.isr or (unclean and not running & set(before.isr))
    else:
        assert is_held or not running & set(before.isr)
        assert set(after.isr) <= set(before.isr)  # no replica becomes in sync without running
    if before.leader in running and before.leader in before.isr and not is_held:
        assert after.leader == before.leader
    assert nodes.elected(after, is_held=is_held, unclean=unclean) == after


class World:
    """Tracks the expected state: the values and the newest epoch of each partition."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.values: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        self.epochs: dict[tuple[str, int], tuple[int, int]] = {}
        self.held: set[int] = set()

    async def step(self, broker: Broker) -> None:
        """Runs one change, which may be refused, and appends one record."""
        topology, choice = broker.state.topology, self.choice
        index, node = choice.randrange(3), choice.randint(1, NODES)
        kind = choice.randrange(8)
        try:
            if kind < 3:
                name = choice.choice(("t", GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC))
                topology.move_leader(name, index if name == "t" else 0, node)
            elif kind == 3:
                topology.take_offline("t", index)
                self.held.add(index)
            elif kind == 4:
                topology.bring_online("t", index)
                self.held.discard(index)
            elif kind == 5:
                topology.stop_node(node)
            elif kind == 6:
                topology.start_node(node)
            else:
                topology.spread_leaders()
        except TopologyError:
            assert kind < 3  # such a node and partition exist
        await self.check(broker)
        await self.append(broker, choice.randrange(3))

    async def append(self, broker: Broker, index: int) -> None:
        """Sends the record to every running node: only the leader accepts it."""
        taken = 0
        for node in broker.state.nodes.running:
            value = b"%d" % self.choice.randrange(10**9)
            client = await broker.client(node - 1)
            code = only(await client.call(produce(records(value), partition=index), 9)).error_code
            client.close()
            if code == 0:
                self.values[index].append(value)
                taken += 1
                assert node == broker.state.topics.leader("t", index)
            else:
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert taken == (broker.state.topics.leader("t", index) != NO_LEADER)

    async def check(self, broker: Broker) -> None:
        """Checks all invariants between changes."""
        nodes = broker.state.nodes
        view = broker.state.topology.describe()
        assert [node.running for node in view.nodes] == [node.id not in nodes.stopped for node in view.nodes]
        for one in view.partitions:
            key = one.topic, one.partition
            epoch, leader = self.epochs.get(key, (0, one.leader))
            assert one.leader_epoch >= epoch
            if leader != one.leader:
                assert one.leader_epoch > epoch
            self.epochs[key] = one.leader_epoch, one.leader
            running = {node for node in one.replicas if node not in nodes.stopped}
            if one.leader != NO_LEADER:
                assert one.leader in running and set(one.isr) == running
            else:
                assert (one.topic == "t" and one.partition in self.held) or not running & set(one.isr)
            for name, coordinator in (
                (GROUP_OFFSETS_TOPIC, broker.state.groups),
                (TRANSACTION_STATE_TOPIC, broker.state.transactions),
            ):
                if one.topic == name:
                    in_it = next(key for key in map(str, range(99)) if coordinator.partition_of(key) == one.partition)
                    assert coordinator.has_resigned(in_it) == (one.leader == NO_LEADER)
        reported = []
        for node in nodes.running:
            client = await broker.client(node - 1)
            reported.append(await client.call(MetadataRequest(topics=None), 12))
            client.close()
        assert all(one == reported[0] for one in reported)
        for node in nodes.stopped:
            with pytest.raises(ConnectionRefusedError):
                await broker.client(node - 1)

    async def read(self, broker: Broker) -> None:
        """Checks that every acknowledged record is there, once and in order."""
        for node in (1, 2, 3):
            broker.state.topology.start_node(node)
        for index, wanted in self.values.items():
            broker.state.topology.bring_online("t", index)
            client = await broker.client(broker.state.topics.leader("t", index) - 1)
            found = only(await client.call(fetch(("t", index, 0)), 12))
            assert values(found.records) == wanted
        self.held.clear()


async def test_random_changes_keep_the_invariants(tmp_path: Path, scaled: Callable[[int], int]):
    for seed in range(scaled(4)):
        await live(seed, tmp_path / str(seed))


async def live(seed: int, folder: Path) -> None:
    world = World(random.Random(seed))
    for life in range(3):
        async with running(folder, brokers=NODES) as broker:
            if life == 0:
                await broker.topic("t", 3)
                for name in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                    broker.state.internal_topic(name, 0)
            world.held.clear()  # a start brings all partitions online, with a new epoch if there was no leader
            await world.check(broker)
            for _ in range(12):
                await world.step(broker)
            await world.read(broker)
            await world.check(broker)
