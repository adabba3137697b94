"""Arbitrary node ids, including 0, in every API, command and file that contains them."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.admin_api.views import OperationError
from ottla.broker.config.serve_options import ServeOptions, StartupError, parse_node_ids, serve_options
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.client import Admin
from ottla.client.admin.types import ConfigResource, ElectionType, NewPartitions, NewTopic
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.ctl_runs import run
from ottla_testing.broker.harness import Client, fetch, only, ping, process, produce, records, running

IDS = [(0, 1, 2), (5, 7, 1001), (2, 0, 1)]
MAX = (1 << 31) - 1


def made(
    configs: dict[str, str] | None = None, brokers: int | None = None, ids: tuple[int, ...] | None = None
) -> ServeOptions:
    config = Config.load(overrides={"log.dirs": "/d", "listeners": "PLAINTEXT://h:9092", **(configs or {})})
    return serve_options(config, brokers=brokers, node_ids=ids)


@pytest.mark.parametrize(
    ("configs", "brokers", "named", "ids"),
    [
        ({}, 3, None, (1, 2, 3)),
        ({"node.id": "0"}, 3, None, (0, 1, 2)),
        ({"broker.id": "0"}, 3, None, (0, 1, 2)),
        ({"broker.id": "-1"}, 2, None, (1, 2)),
        ({"node.id": "2"}, 3, None, (2, 3, 4)),
        ({}, None, (5, 7, 1001), (5, 7, 1001)),
        ({}, 3, (2, 0, 1), (2, 0, 1)),
        ({"node.id": "0"}, None, (2, 0, 1), (2, 0, 1)),
        ({}, None, (0,), (0,)),
    ],
)
def test_node_ids_from_options(
    configs: dict[str, str], brokers: int | None, named: tuple[int, ...] | None, ids: tuple[int, ...]
) -> None:
    options = made(configs, brokers, named)
    assert options.node_ids == ids and options.brokers == len(ids)
    assert [(node, listener.port) for node, listener in options.nodes()] == [(id, 9092 + n) for n, id in enumerate(ids)]


@pytest.mark.parametrize(
    ("configs", "brokers", "named", "problem"),
    [
        ({}, 2, (0, 1, 2), "--brokers 2 and --node-ids 0,1,2 differ in the number of nodes"),
        ({}, None, (0, 1, 0), "a node id is given twice"),
        ({}, None, (0, MAX + 1), "expected node ids from 0 to 2147483647"),
        ({}, None, (-1, 0), "expected node ids from 0 to 2147483647"),
        ({"node.id": "3"}, None, (0, 1, 2), "node.id 3 is missing"),
        ({"node.id": str(MAX)}, 2, None, "too many for node.id 2147483647"),
        ({}, None, tuple(range(101)), "expected 1 to 100"),
    ],
)
def test_invalid_node_ids_are_refused_in_one_line(
    configs: dict[str, str], brokers: int | None, named: tuple[int, ...] | None, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        made(configs, brokers, named)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "0,", "a,b", "0;1", "-1,0", "1.0"])
def test_malformed_node_ids_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 0,1,2"):
        parse_node_ids(text)


@pytest.mark.parametrize("ids", IDS)
async def test_admin_calls_use_node_ids(ids: tuple[int, ...]) -> None:
    first, second, third = ids
    with Embedded(node_ids=ids, configs={"broker.rack": "r"}, control="127.0.0.1:0") as broker:
        admin = Admin(broker.bootstrap)
        await admin.start()
        try:
            cluster = await admin.describe_cluster()
            ports = [int(address.rpartition(":")[2]) for address in broker.bootstrap.split(",")]
            assert {node.node_id: node.port for node in cluster.nodes} == dict(zip(ids, ports, strict=True))
            assert {node.rack for node in cluster.nodes} == {"r"}
            assert cluster.controller is not None and cluster.controller.node_id == min(ids)
            topics = [NewTopic("t", assignments={0: [first, second], 1: [third, first]}), NewTopic("u", 3, 1)]
            assert not [one for one in (await admin.create_topics(topics)).values() if isinstance(one, Exception)]
            assert await admin.create_partitions({"t": NewPartitions(3, [[second, third]])}) == {"t": None}
            described = await admin.describe_topics(["t", "u"])
            placed = [(one.leader, one.replicas, one.isr) for one in described["t"].partitions]  # type: ignore[union-attr]
            assert placed == [(pair[0], pair, pair) for pair in ((first, second), (third, first), (second, third))]
            assert {one.leader for one in described["u"].partitions} == set(ids)  # type: ignore[union-attr]
            assert set(await admin.describe_log_dirs()) == set(ids)
            quorum = await admin.describe_metadata_quorum()
            assert {one.node_id for one in (*quorum.voters, *quorum.observers)} == set(ids)
            names = {one.name for one in await admin.list_config_resources()}
            assert names >= set(map(str, ids))
            await broker_configs(admin, ids)

            moved = {("t", 0): [second, first]}
            assert await admin.alter_partition_reassignments(moved) == {("t", 0): None}
            broker.topology.stop_node(first)
            assert broker.topology.leader("t", 0) == second and broker.topology.leader("t", 1) == third
            broker.topology.start_node(first)
            assert await admin.elect_leaders(ElectionType.PREFERRED, [("t", 1)]) != {}
            for node in ids:
                assert run(broker.control_url, "topology", "stop", str(node))[0] == 0
                code, out, _ = run(broker.control_url, "topology", "start", str(node))
                assert code == 0 and [line.split()[0] for line in out.splitlines()[1:4]] == list(map(str, sorted(ids)))
            code, out, _ = run(broker.control_url, "topology", "move", "t", "0", str(first))
            assert code == 0 and broker.topology.leader("t", 0) == first
            with urllib.request.urlopen(f"{broker.control_url}/metrics") as response:
                reported = response.read().decode()
            assert all(f'kafka_server_kafkaserver_brokerstate{{node="{node}"}} 3' in reported for node in ids)
            broker.topology.stop_node(third)
            await admin.unregister_broker(third)
            assert third not in {node.node_id for node in (await admin.describe_cluster()).nodes}
        finally:
            await admin.stop()


async def broker_configs(admin: Admin, ids: tuple[int, ...]) -> None:
    for node in ids:
        resource = ConfigResource.broker(node)
        described: Any = (await admin.describe_configs([resource]))[resource]
        assert described["node.id"].value == str(node)


@pytest.mark.parametrize("ids", IDS)
async def test_coordinators_and_leaders_have_node_ids(tmp_path: Path, ids: tuple[int, ...]) -> None:
    async with running(tmp_path, brokers=ids, overrides={"default.replication.factor": "1"}) as broker:
        ports = dict(zip(ids, broker.ports, strict=True))
        clients = {node: await broker.client(place) for place, node in enumerate(ids)}
        for key_type in (0, 1):
            for key in map(str, range(8)):
                requested = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
                (one,) = (await clients[ids[0]].call(requested, 4)).coordinators
                if one.error_code:
                    (one,) = (await clients[ids[0]].call(requested, 4)).coordinators
                assert (one.error_code, one.port) == (0, ports[one.node_id])
                if key_type == 0:
                    for node, client in clients.items():
                        (group,) = (await client.call(DescribeGroupsRequest(groups=[key]), 5)).groups
                        assert (group.error_code == 16) == (node != one.node_id)
        await broker.topic("t")
        leader = broker.state.topics.leader("t", 0)
        for node, client in clients.items():
            reported = await client.call(produce(records(b"a")), 10)
            described = only(reported)
            if node == leader:
                assert described.error_code == 0
            else:
                assert (described.error_code, described.current_leader.leader_id) == (6, leader)
                assert [(one.node_id, one.port) for one in reported.node_endpoints] == [(leader, ports[leader])]
                requested = fetch((broker.state.topics.named("t").id, 0, 0))
                reported = await client.call(requested, 16)
                described = only(reported)
                assert (described.error_code, described.current_leader.leader_id) == (6, leader)
                assert [(one.node_id, one.port) for one in reported.node_endpoints] == [(leader, ports[leader])]


@pytest.mark.parametrize("ids", IDS)
async def test_directory_keeps_its_nodes_after_restarts(tmp_path: Path, ids: tuple[int, ...]) -> None:
    async with running(tmp_path, brokers=ids) as broker:
        await broker.topic("t")
        broker.state.topology.move_leader("t", 0, ids[-1])
        before = broker.state.topics.partition("t", 0).assignment
        assert broker.state.node_id == ids[0]
    assert f"node.id={ids[0]}\n" in (tmp_path / "meta.properties").read_text()
    async with running(tmp_path, brokers=ids) as broker:
        assert broker.state.topics.partition("t", 0).assignment == before
        reported = await (await broker.client()).call(MetadataRequest(topics=None), 12)
        assert [node.node_id for node in reported.brokers] == sorted(ids)
    others = (9, ids[0])  # fewer, and in another order: the remaining replicas stay
    async with running(tmp_path, brokers=others) as broker:
        assert broker.state.topics.partition("t", 0).assignment.replicas == (ids[0],)
    with pytest.raises(StartupError, match=f"belongs to node {ids[0]}, and the nodes are 8,9: name it in --node-ids"):
        async with running(tmp_path, brokers=(8, 9)):
            pass


async def test_a_directory_of_node_0_needs_its_id_among_the_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"node.id": "0"}) as broker:
        assert broker.running.ports == {(0, "PLAINTEXT"): broker.ports[0]}
    with pytest.raises(StartupError, match="belongs to node 0, and the nodes are 1,2,3"):
        async with running(tmp_path, brokers=3):
            pass
    async with running(tmp_path, brokers=3, overrides={"node.id": "0"}) as broker:
        assert broker.state.nodes.ids == (0, 1, 2)


def test_snapshot_requires_the_same_nodes() -> None:
    with Embedded(node_ids=[0, 1, 2]) as broker, Embedded(brokers=3) as other:
        broker.create_topic("t", partitions=3)
        broker.topology.stop_node(0)
        snapshot = broker.snapshot()
        broker.topology.start_node(0)
        broker.restore(snapshot)
        assert [(node.id, node.running) for node in broker.topology.describe().nodes] == [(0, 0), (1, 1), (2, 1)]
        with pytest.raises(
            OperationError, match=r"the snapshot is of nodes 0, 1, 2 of release .*, the broker has nodes 1, 2, 3"
        ):
            other.restore(snapshot)


async def test_fault_of_node_0_does_not_affect_other_nodes() -> None:
    with Embedded(node_ids=[0, 1]) as broker:
        clients = [await Client.connect(int(one.rpartition(":")[2])) for one in broker.bootstrap.split(",")]
        broker.faults.error("ApiVersions", "UNKNOWN_SERVER_ERROR", node=0)
        assert [(await client.call(ping(), 0)).error_code for client in clients] == [-1, 0]
        with pytest.raises(ValueError, match="there is no node 2"):
            broker.faults.refuse(node=2)
        broker.faults.refuse(node=0)
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(int(broker.bootstrap.split(",")[0].rpartition(":")[2]))
        for client in clients:
            client.close()


@pytest.mark.process
def test_serve_takes_node_ids(tmp_path: Path) -> None:
    with process(tmp_path, "--node-ids", "0,7,2", listeners=3) as serving:
        assert len(set(serving.ports)) == 3
    assert "node.id=0\n" in (tmp_path / "data" / "meta.properties").read_text()


async def test_single_node_has_its_configured_id(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=(0,)) as broker:
        assert broker.state.nodes.ids == (0,)
        metadata = await (await broker.client()).call(MetadataRequest(topics=None), 12)
        assert [node.node_id for node in metadata.brokers] == [0]
    with pytest.raises(StartupError, match="belongs to node 0, and the nodes are 7: name it in --node-ids"):
        async with running(tmp_path, brokers=(7,)):
            pass
    async with running(tmp_path) as broker:  # without --node-ids: the id of the data directory
        assert broker.state.nodes.ids == (0,)
    with Embedded(node_ids=[7]) as embedded:
        assert [node.id for node in embedded.topology.describe().nodes] == [7]
