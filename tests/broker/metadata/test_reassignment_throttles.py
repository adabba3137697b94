"""Reassignments that a replication throttle (KIP-73) slows down, on the broker's clock."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.config.resource_types import BROKER, TOPIC
from ottla.broker.metadata.topology import REASSIGNMENT_MS, TopologyNote
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.broker.replica_cases import outcomes, reassigning

LEADER, FOLLOWER = "leader.replication.throttled", "follower.replication.throttled"
DELETED = None


async def changed(broker: Broker, kind: int, name: str, *configs: tuple[str, str | None], node: int = 1) -> int:
    """Sets configs, or deletes those without a value, by a request to a node. Returns the error code."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        resource.AlterableConfig(name=key, config_operation=int(value is None), value=value) for key, value in configs
    ]
    client = await broker.client(node - 1)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=changes)], validate_only=False
    )
    (response,) = (await client.call(request, 1)).responses
    client.close()
    return response.error_code


async def throttle(
    broker: Broker, *, leaders: dict[int, int | None] | None = None, followers: dict[int, int | None] | None = None
) -> None:
    """Sets the rates of nodes, in bytes per second; None deletes one."""
    for kind, rates in ((LEADER, leaders), (FOLLOWER, followers)):
        for node, rate in (rates or {}).items():
            text = None if rate is None else str(rate)
            assert await changed(broker, BROKER, str(node), (f"{kind}.rate", text), node=node) == 0


async def throttled_replicas(broker: Broker, leaders: str | None, followers: str | None) -> None:
    assert await changed(broker, TOPIC, "t", (f"{LEADER}.replicas", leaders), (f"{FOLLOWER}.replicas", followers)) == 0


async def filled(broker: Broker, *replicas: Sequence[int]) -> list[int]:
    """Creates t with a record of some kilobytes in each partition. Returns the sizes of the logs in bytes."""
    broker.state.topics.create("t", len(replicas), {}, 0, replicas)
    for index, nodes in enumerate(replicas):
        client = await broker.client(nodes[0] - 1)
        await client.call(produce(records(bytes(5000)), "t", index), 9)
        client.close()
    return [partition.log.size_bytes for partition in broker.state.topics.named("t").partitions]


async def reassigned(broker: Broker, *requested: tuple[str, int, list[int] | None]) -> list[int]:
    client = await broker.client()
    found = outcomes(await client.call(reassigning(*requested), 1))
    client.close()
    broker.clock.advance(REASSIGNMENT_MS)
    return [code for code, _ in found]


def state(broker: Broker) -> list[tuple[tuple[int, ...], set[int], int]]:
    """Returns (replicas, ISR, leader) of each partition."""
    return [(p.replicas, set(p.isr), p.leader) for p in broker.state.topics.named("t").partitions]


def at_rate(size_bytes: int, rate: float) -> int:
    """Returns the time of copying, in milliseconds."""
    return math.ceil(size_bytes * 1000 / rate)


@pytest.mark.parametrize(
    ("leaders", "followers", "rate"),
    [
        ({1: 100}, {}, 100),
        ({}, {3: 50}, 50),
        ({1: 100}, {3: 50}, 50),
        ({1: 40}, {3: 50}, 40),
        ({2: 1}, {1: 1}, None),  # neither the leader nor the new replica
        ({1: 0}, {}, 0),
    ],
)
async def test_throttled_reassignment_takes_the_time_of_a_copy(
    leaders: dict[int, int | None], followers: dict[int, int | None], rate: int | None, tmp_path: Path
) -> None:
    async with running(tmp_path, brokers=3) as broker:
        (size_bytes,) = await filled(broker, [1, 2])
        await throttle(broker, leaders=leaders, followers=followers)
        await throttled_replicas(broker, "0:1,0:2,0:3", "*")
        assert await reassigned(broker, ("t", 0, [3, 2])) == [0]
        if rate is None:
            assert state(broker) == [((3, 2), {3, 2}, 3)]
            return
        during = [((3, 2, 1), {1, 2}, 1)]
        assert state(broker) == during
        if not rate:
            broker.clock.advance(100_000)
            assert state(broker) == during
            return
        broker.clock.advance(at_rate(size_bytes, rate) - 1)
        assert state(broker) == during
        broker.clock.advance(1)
        assert state(broker) == [((3, 2), {3, 2}, 3)]


@pytest.mark.parametrize(
    ("leaders", "followers", "is_throttled"),
    [
        ("0:1", None, True),
        ("0:2,1:1", None, False),
        (None, "0:3", True),
        (None, "00:03", True),
        (None, "3:0,0:1", False),
        (None, None, False),
        ("*", "*", True),
    ],
)
async def test_throttle_applies_to_listed_replicas(
    leaders: str | None, followers: str | None, is_throttled: bool, tmp_path: Path
) -> None:
    async with running(tmp_path, brokers=3) as broker:
        await filled(broker, [1])
        await throttle(broker, leaders={1: 1}, followers={3: 1})
        await throttled_replicas(broker, leaders, followers)
        assert await reassigned(broker, ("t", 0, [3])) == [0]
        assert state(broker) == [((3, 1), {1}, 1) if is_throttled else ((3,), {3}, 3)]


async def test_throttled_copies_share_the_rate_of_a_node(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4) as broker:
        sizes = await filled(broker, [1], [1], [2])
        await throttle(broker, leaders={1: 100, 2: 100})
        await throttled_replicas(broker, "*", None)
        assert await reassigned(broker, ("t", 0, [3, 4]), ("t", 1, [3]), ("t", 2, [3])) == [0, 0, 0]
        broker.clock.advance(at_rate(sizes[2], 100))
        assert state(broker) == [((3, 4, 1), {1}, 1), ((3, 1), {1}, 1), ((3,), {3}, 3)]
        broker.clock.advance(at_rate(sizes[0], 100 / 3) - at_rate(sizes[2], 100))
        assert state(broker) == [((3, 4), {3, 4}, 3), ((3,), {3}, 3), ((3,), {3}, 3)]


async def test_one_new_replica_joins_before_another(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4) as broker:
        await filled(broker, [1, 2])
        await throttle(broker, followers={4: 1})
        await throttled_replicas(broker, None, "0:4")
        assert await reassigned(broker, ("t", 0, [1, 3, 4])) == [0]
        assert state(broker) == [((1, 3, 4, 2), {1, 2, 3}, 1)]
        assert await reassigned(broker, ("t", 0, None)) == [0]
        assert state(broker) == [((1, 2), {1, 2}, 1)]


@pytest.mark.parametrize("lifted", ["rate", "higher rate", "replicas"])
async def test_reassignment_completes_when_the_throttle_is_lifted(lifted: str, tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        (size_bytes,) = await filled(broker, [1])
        await throttle(broker, leaders={1: 1}, followers={3: 1})
        await throttled_replicas(broker, "*", "*")
        assert await reassigned(broker, ("t", 0, [3])) == [0]
        broker.clock.advance(100_000)
        assert state(broker) == [((3, 1), {1}, 1)]
        if lifted == "rate":
            await throttle(broker, leaders={1: None}, followers={3: None})
        elif lifted == "replicas":
            await throttled_replicas(broker, None, None)
        else:
            await throttle(broker, leaders={1: 100}, followers={3: 1000})
            broker.clock.advance(at_rate(size_bytes - 100, 100) - 1)
            assert state(broker) == [((3, 1), {1}, 1)]
            broker.clock.advance(1)
        assert state(broker) == [((3,), {3}, 3)]


async def test_appends_lengthen_a_throttled_copy(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        (size_bytes,) = await filled(broker, [1])
        await throttle(broker, leaders={1: 100})
        await throttled_replicas(broker, "*", None)
        assert await reassigned(broker, ("t", 0, [3])) == [0]
        client = await broker.client()
        await client.call(produce(records(bytes(5000)), "t"), 9)
        broker.clock.advance(at_rate(size_bytes, 100))
        assert state(broker) == [((3, 1), {1}, 1)]
        broker.clock.advance(at_rate(broker.log("t").size_bytes, 100) - at_rate(size_bytes, 100) + 1)
        assert state(broker) == [((3,), {3}, 3)]


async def test_copy_stops_with_its_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        topology = broker.state.topology
        (size_bytes,) = await filled(broker, [1, 2])
        await throttle(broker, leaders={1: 100, 2: 1})
        await throttled_replicas(broker, "*", None)
        assert await reassigned(broker, ("t", 0, [3])) == [0]
        broker.clock.advance(1000)
        topology.stop_node(3)
        broker.clock.advance(100_000)
        topology.start_node(3)
        assert state(broker) == [((3, 1, 2), {1, 2}, 1)]
        topology.move_leader("t", 0, 2)
        broker.clock.advance(10_000)
        topology.move_leader("t", 0, 1)
        broker.clock.advance(at_rate(size_bytes - 110, 100) - 1)
        assert state(broker) == [((3, 1, 2), {1, 2}, 1)]
        broker.clock.advance(1)
        assert state(broker) == [((3,), {3}, 3)]


async def test_copy_begins_again_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, brokers=3, clock=clock) as broker:
        (size_bytes,) = await filled(broker, [1])
        await throttle(broker, leaders={1: 100})
        await throttled_replicas(broker, "*", None)
        assert await reassigned(broker, ("t", 0, [3])) == [0]
        clock.advance(at_rate(size_bytes, 100) - 1)
    async with running(tmp_path, brokers=3, clock=clock) as broker:  # the rate of node 1 is stored
        clock.advance(REASSIGNMENT_MS + at_rate(size_bytes, 100) - 1)
        assert state(broker) == [((3, 1), {1}, 1)]
        clock.advance(1)
        assert state(broker) == [((3,), {3}, 3)]
    async with running(tmp_path, brokers=3, clock=clock, note=TopologyNote(frozenset({1}))) as broker:
        assert state(broker) == [((3,), {3}, 3)]


async def test_reassignment_survives_a_kill(tmp_path: Path) -> None:
    async with running(tmp_path / "data", brokers=4) as broker:
        await filled(broker, [1, 2], [1, 2])
        await throttle(broker, followers={4: 1})
        await throttled_replicas(broker, None, "*")
        assert await reassigned(broker, ("t", 0, [1, 3, 4]), ("t", 1, [1, 3, 4])) == [0, 0]
        during = [((1, 3, 4, 2), {1, 2, 3}, 1)] * 2
        assert state(broker) == during
        shutil.copytree(tmp_path / "data", tmp_path / "killed")  # as a kill leaves it
    async with running(tmp_path / "killed", brokers=4) as broker:
        assert state(broker) == during
        assert await reassigned(broker, ("t", 0, None)) == [0]
        assert state(broker) == [((1, 2), {1, 2}, 1), during[1]]
        await throttle(broker, followers={4: None})
        assert state(broker)[1] == ((1, 3, 4), {1, 3, 4}, 1)


async def test_topic_is_deleted_during_its_reassignment(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        await filled(broker, [1], [1])
        await throttle(broker, leaders={1: 1})
        await throttled_replicas(broker, "*", None)
        assert await reassigned(broker, ("t", 0, [3]), ("t", 1, [2])) == [0, 0]
        client = await broker.client()
        (deleted,) = (await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)).responses
        assert deleted.error_code == 0
        broker.state.topics.create("t", 1, {}, 0, [[1]])  # of the same name
        broker.clock.advance(100_000)
        assert state(broker) == [((1,), {1}, 1)]
        assert await reassigned(broker, ("t", 0, None)) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


async def test_new_replica_is_elected_once_it_is_in_sync(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4) as broker:
        (size_bytes,) = await filled(broker, [1])
        await throttle(broker, followers={3: 10, 4: 1})
        await throttled_replicas(broker, None, "*")
        assert await reassigned(broker, ("t", 0, [3, 4])) == [0]
        client = await broker.client()
        preferred = ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
        )

        async def code() -> int:
            (topic,) = (await client.call(preferred, 2)).replica_election_results
            return topic.partition_result[0].error_code

        assert await code() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        broker.clock.advance(at_rate(size_bytes, 10))
        assert await code() == 0
        assert state(broker) == [((3, 4, 1), {1, 3}, 3)]


async def test_throttles_belong_to_one_node(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3) as broker:
        await throttle(broker, leaders={1: 5, 3: 7})
        assert await changed(broker, BROKER, "", (f"{LEADER}.rate", "9"), (f"{FOLLOWER}.rate", "8")) == 0
        await throttle(broker, leaders={1: None})

        async def rates(node: int) -> list[tuple[str, str, int]]:
            client = await broker.client(node - 1)
            resource = DescribeConfigsRequest.DescribeConfigsResource
            keys = [f"{FOLLOWER}.rate", f"{LEADER}.rate"]
            request = DescribeConfigsRequest(
                resources=[resource(resource_type=BROKER, resource_name=str(node), configuration_keys=keys)]
            )
            (response,) = (await client.call(request, 4)).results
            client.close()
            return sorted((one.name, one.value, one.config_source) for one in response.configs)

        of_all = [(f"{FOLLOWER}.rate", "8", 3), (f"{LEADER}.rate", "9", 3)]
        assert await rates(1) == of_all and await rates(2) == of_all
        assert await rates(3) == [(f"{FOLLOWER}.rate", "8", 3), (f"{LEADER}.rate", "7", 2)]
    async with running(tmp_path, brokers=3) as broker:
        assert await rates(1) == of_all and await rates(3) == [(f"{FOLLOWER}.rate", "8", 3), (f"{LEADER}.rate", "7", 2)]
