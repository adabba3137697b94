"""Leaders, partitions without a leader, stopped nodes, and their effect on responses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.nodes import Nodes
from ottla.broker.metadata.topology import TopologyError
from ottla.broker.replica.assignment import NO_LEADER, Assignment
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, fetch, new_topic, only, produce, records, running, values
from ottla_testing.patience import PATIENCE_S

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def latest(replica_id: int) -> ListOffsetsRequest:
    requested = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[requested])
    return ListOffsetsRequest(replica_id=replica_id, topics=[topic])


def leaders(broker: Broker, topic: str = "t") -> list[int]:
    return [partition.leader for partition in broker.state.topics.named(topic).partitions]


def epochs(broker: Broker, topic: str = "t") -> list[int]:
    return [partition.leader_epoch for partition in broker.state.topics.named(topic).partitions]


async def metadata(broker: Broker, node: int = 0, version: int = 12) -> Any:
    client = await broker.client(node)
    requested = [MetadataRequest.MetadataRequestTopic(name="t")]
    return await client.call(MetadataRequest(topics=requested, allow_auto_topic_creation=False), version)


# --- rules


def test_replica_placement_rotates():
    nodes = Nodes(1, range(1, 4))
    assert nodes.place(3, 2, 0) == [(1, 2), (2, 3), (3, 1)]
    assert nodes.place(1, 3, 4) == [(2, 3, 1)]
    assert Nodes(7).place(2, 1, 5) == [(7,), (7,)]


def test_leader_election():
    nodes = Nodes(1, range(1, 4))
    now = nodes.assigned((2, 3, 1))
    assert now == Assignment((2, 3, 1), (2, 3, 1), 2, 0, 0)
    assert nodes.elected(now, is_held=False, unclean=False) == now
    nodes.stopped = {3}
    shrunk = nodes.elected(now, is_held=False, unclean=False)
    assert shrunk == Assignment((2, 3, 1), (2, 1), 2, 0, 1)
    nodes.stopped = {2, 3}
    moved = nodes.elected(shrunk, is_held=False, unclean=False)
    assert moved == Assignment((2, 3, 1), (1,), 1, 1, 2)
    nodes.stopped = {1, 2, 3}
    gone = nodes.elected(moved, is_held=False, unclean=False)
    assert gone == Assignment((2, 3, 1), (1,), NO_LEADER, 2, 3)
    nodes.stopped = {1, 3}  # node 2 lacks some records
    assert nodes.elected(gone, is_held=False, unclean=False) == gone
    assert nodes.elected(gone, is_held=False, unclean=True) == Assignment((2, 3, 1), (2,), 2, 3, 4)
    nodes.stopped = {3}
    assert nodes.elected(gone, is_held=True, unclean=False) == gone
    assert nodes.elected(gone, is_held=False, unclean=False) == Assignment((2, 3, 1), (2, 1), 1, 3, 4)


def test_new_partition_has_a_running_leader():
    nodes = Nodes(1, range(1, 4))
    nodes.stopped = {2}
    assert nodes.assigned((2, 3)) == Assignment((2, 3), (3,), 3)
    nodes.stopped = {2, 3}
    assert nodes.assigned((2, 3)) == Assignment((2, 3), (2, 3), NO_LEADER)


def test_removed_nodes_have_no_replicas():
    stored = Assignment((4, 2, 5), (4, 2), 4, 7, 9)
    assert Nodes(1, range(1, 6)).found(stored) == stored
    assert Nodes(1, range(1, 4)).found(stored) == Assignment((2,), (2,), NO_LEADER, 7, 9)
    assert Nodes(3, range(1, 4)).found(Assignment((4,), (4,), 4)) == Assignment((3,), (3,), NO_LEADER)
    assert Nodes(6).found(stored) == Assignment((6,), (6,), 6, 7, 9)


# --- creation


async def test_leaders_are_spread_over_the_nodes(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 3)
        await broker.topic("u", 2)
        assert leaders(broker) == [1, 2, 3]
        assert leaders(broker, "u") == [1, 2]
        assert {partition.replicas for partition in broker.state.topics.named("t").partitions} == {
            (1, 2, 3), (2, 3, 1), (3, 1, 2),
        }  # fmt: skip


@pytest.mark.parametrize(("set_to", "factor"), [(None, 3), ("1", 1), ("2", 2)])
async def test_default_replication_factor_is_configured(tmp_path: Path, set_to: str | None, factor: int):
    overrides = {} if set_to is None else {"default.replication.factor": set_to}
    async with running(tmp_path, brokers=4, overrides=overrides) as broker:
        client = await broker.client(1)
        request = CreateTopicsRequest(topics=[new_topic("t", 2, replication=-1)])
        (result,) = (await client.call(request, 7)).topics
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, factor)
        assert [len(one.replicas) for one in broker.state.topics.named("t").partitions] == [factor] * 2


async def test_more_replicas_than_nodes_are_refused(tmp_path: Path):
    async with running(tmp_path, brokers=2, overrides={"default.replication.factor": "3"}) as broker:
        client = await broker.client()
        for factor in (3, -1, 0):
            request = CreateTopicsRequest(topics=[new_topic("t", 1, replication=factor)])
            (result,) = (await client.call(request, 7)).topics
            assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        request = CreateTopicsRequest(topics=[new_topic("t", 1, replication=2)])
        (result,) = (await client.call(request, 7)).topics
        assert (result.error_code, result.replication_factor) == (0, 2)


async def test_manual_assignments_are_kept(tmp_path: Path):
    assigned = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment
    async with running(tmp_path, brokers=3) as broker:
        client = await broker.client()

        async def create(name: str, *replicas: list[int]) -> int:
            by_hand = [assigned(partition_index=n, broker_ids=nodes) for n, nodes in enumerate(replicas)]
            requested = new_topic(name, -1, replication=-1, assignments=by_hand)
            (result,) = (await client.call(CreateTopicsRequest(topics=[requested]), 7)).topics
            return result.error_code

        for wrong in ([[1, 4]], [[1, 1]], [[]], [[1, 2], [3]]):
            assert await create("t", *wrong) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await create("t", [3, 1], [2, 3]) == 0
        assert leaders(broker) == [3, 2]

        async def grow(count: int, assignments: list[list[int]] | None) -> int:
            topic = CreatePartitionsRequest.CreatePartitionsTopic
            by_hand = None
            if assignments is not None:
                by_hand = [topic.CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments]
            requested = topic(name="t", count=count, assignments=by_hand)
            (result,) = (
                await client.call(CreatePartitionsRequest(topics=[requested], timeout_ms=9, validate_only=False), 3)
            ).results
            return result.error_code

        assert await grow(3, [[1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await grow(3, [[1, 2]]) == 0
        assert await grow(4, None) == 0
        assert [len(one.replicas) for one in broker.state.topics.named("t").partitions] == [2] * 4
        assert leaders(broker)[2] == 1


# --- responses to clients


async def test_metadata_is_the_same_on_every_node(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 3)
        found = [await metadata(broker, node) for node in range(3)]
        assert found[0] == found[1] == found[2]
        assert [(one.node_id, one.host, one.port) for one in found[0].brokers] == [
            (node + 1, "127.0.0.1", port) for node, port in enumerate(broker.ports)
        ]
        (topic,) = found[0].topics
        assert [one.leader_id for one in topic.partitions] == [1, 2, 3]
        assert topic.partitions[1].replica_nodes == topic.partitions[1].isr_nodes == [2, 3, 1]


async def test_metadata_of_a_stopped_node(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 3)
        broker.state.topology.stop_node(1)
        found = await metadata(broker, 1)
        assert [one.node_id for one in found.brokers] == [2, 3]
        assert found.controller_id == 2
        (topic,) = found.topics
        assert [(one.leader_id, one.leader_epoch) for one in topic.partitions] == [(2, 1), (2, 0), (3, 0)]
        assert [one.isr_nodes for one in topic.partitions] == [[2, 3], [2, 3], [3, 2]]
        assert [one.offline_replicas for one in topic.partitions] == [[1]] * 3
        client = await broker.client(1)
        for with_fenced in (False, True):
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=with_fenced
            )
            described = await client.call(request, 2)
            nodes = [(one.broker_id, one.is_fenced) for one in described.brokers]
            assert nodes == [(1, True)] * with_fenced + [(2, False), (3, False)]
        broker.state.topology.start_node(1)
        found = await metadata(broker, 0)
        assert [one.node_id for one in found.brokers] == [1, 2, 3]
        (topic,) = found.topics
        assert [(one.leader_id, one.isr_nodes) for one in topic.partitions] == [
            (2, [1, 2, 3]), (2, [2, 3, 1]), (3, [3, 1, 2]),
        ]  # fmt: skip
        broker.state.topology.spread_leaders()
        assert leaders(broker) == [1, 2, 3]
        assert epochs(broker) == [2, 0, 0]


async def test_a_partition_without_a_leader(tmp_path: Path):
    for brokers in (1, 2):
        async with running(tmp_path / str(brokers), brokers=brokers) as broker:
            await broker.topic("t")
            broker.state.topology.take_offline("t", 0)
            found = await metadata(broker)
            (topic,) = found.topics
            (one,) = topic.partitions
            assert (one.error_code, one.leader_id, one.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 1)
            client = await broker.client()
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")], response_partition_limit=9
            )
            (described,) = (await client.call(request, 0)).topics[0].partitions
            assert described.leader_id == -1
            for node in range(brokers):
                client = await broker.client(node)
                assert only(await client.call(produce(records(b"a")), 9)).error_code == NOT_LEADER
                assert only(await client.call(fetch(("t", 0, 0)), 11)).error_code == NOT_LEADER
            with pytest.raises(TopologyError, match="t-0 is offline"):
                broker.state.topology.move_leader("t", 0, 1)
            broker.state.topology.take_offline("t", 0)
            broker.state.topology.bring_online("t", 0)
            assert (leaders(broker), epochs(broker)) == ([1], [2])
            client = await broker.client()
            assert only(await client.call(produce(records(b"a")), 9)).error_code == 0


async def test_single_replica_leads_again_after_its_restart(tmp_path: Path):
    async with running(tmp_path, brokers=2, overrides={"default.replication.factor": "1"}) as broker:
        await broker.topic("t", 2)
        topology = broker.state.topology
        topology.stop_node(1)
        topology.spread_leaders()
        topology.bring_online("t", 0)
        assert leaders(broker) == [-1, 2]
        assert topology.describe().partitions[0].isr == (1,)
        topology.start_node(1)
        assert (leaders(broker), epochs(broker)) == ([1, 2], [2, 0])


async def test_invalid_changes_are_refused_in_one_line(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        await broker.topic("t")
        topology = broker.state.topology
        for change in (
            lambda: topology.move_leader("t", 0, 3),
            lambda: topology.move_leader("t", 0, 4),
            lambda: topology.move_leader("t", 1, 1),
            lambda: topology.take_offline("u", 0),
            lambda: topology.bring_online("u", 0),
            lambda: topology.stop_node(0),
            lambda: topology.start_node(4),
        ):
            with pytest.raises(TopologyError) as refused:
                change()
            assert "\n" not in str(refused.value)
        topology.stop_node(2)
        with pytest.raises(TopologyError, match="it is stopped"):
            topology.move_leader("t", 0, 2)
        assert leaders(broker) == [1]
        topology.move_leader("t", 0, 1)
        assert epochs(broker) == [0]
        for node in (1, 3):  # the last in-sync replica stays in sync
            topology.stop_node(node)
        with pytest.raises(TopologyError, match="it is stopped"):
            topology.move_leader("t", 0, 1)
        assert leaders(broker) == [-1]


# --- requests to a node that is not the leader


async def test_leader_move_is_reported_with_the_new_address(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        id = await broker.topic("t")
        first, second, third = [await broker.client(node) for node in range(3)]
        assert only(await first.call(produce(records(b"a")), 9)).error_code == 0
        broker.state.topology.move_leader("t", 0, 2)
        response = await first.call(produce(records(b"b")), 10)
        result = only(response)
        assert (result.error_code, result.base_offset, result.log_start_offset) == (NOT_LEADER, -1, -1)
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 1)
        node = (2, "127.0.0.1", broker.ports[1])
        assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [node]
        response = await third.call(fetch((id, 0, 0)), 16)  # which is no replica
        result = only(response)
        assert (result.error_code, result.high_watermark) == (NOT_LEADER, -1)
        assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (2, 1)
        assert [(one.node_id, one.host, one.port) for one in response.node_endpoints] == [node]
        for version in (9, 15):
            request = produce(records(b"b")) if version == 9 else fetch((id, 0, 0))
            assert only(await third.call(request, version)).error_code == NOT_LEADER
        response = await second.call(produce(records(b"c")), 10)
        assert (only(response).error_code, only(response).base_offset, response.node_endpoints) == (0, 1, [])
        response = await second.call(fetch((id, 0, 0)), 16)
        assert (values(only(response).records), response.node_endpoints) == ([b"a", b"c"], [])


async def test_response_without_a_leader_has_no_leader_hint(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        broker.state.topology.take_offline("t", 0)
        response = await (await broker.client()).call(produce(records(b"b")), 10)
        leader = only(response).current_leader
        assert (leader.leader_id, leader.leader_epoch, response.node_endpoints) == (-1, 1, [])


async def test_delayed_fetch_completes_when_the_leader_moves(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        client = await broker.client(0)
        await client.send(fetch(("t", 0, 0), max_wait_ms=600_000), 12)
        await broker.settle()
        (partition,) = broker.state.topics.named("t").partitions
        assert partition.waiters
        broker.state.topology.move_leader("t", 0, 2)
        _, response = await client.receive()
        assert (only(response).error_code, len(only(response).records)) == (0, 0)  # the node is still a replica
        await client.send(fetch(("t", 0, 0), max_wait_ms=600_000), 10)
        assert only((await client.receive())[1]).error_code == NOT_LEADER


async def test_follower_checks_the_leader_epoch_first(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        id = await broker.topic("t")
        broker.state.topology.move_leader("t", 0, 2)
        for node, epoch, code in (
            (0, 0, ErrorCode.FENCED_LEADER_EPOCH),
            (0, 1, 0),
            (0, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (0, -1, 0),
            (1, 0, ErrorCode.FENCED_LEADER_EPOCH),
            (1, 1, 0),
            (2, 0, NOT_LEADER),
        ):
            client = await broker.client(node)
            request = fetch(("t", 0, 0), partition_fields={"current_leader_epoch": epoch})
            assert only(await client.call(request, 12)).error_code == code, (node, epoch)
            request = fetch((id, 0, 0), partition_fields={"current_leader_epoch": epoch})
            response = await client.call(request, 16)
            assert only(response).error_code == code
            hints = [2] if code in (NOT_LEADER, ErrorCode.FENCED_LEADER_EPOCH) else []
            assert [one.node_id for one in response.node_endpoints] == hints


@pytest.mark.parametrize("version", [10, 11, 13])
async def test_replicas_serve_consumers(version: int, tmp_path: Path):
    """KIP-392: Fetch from v11 on, ListOffsets of tools (replica -2). Brokers, and old versions, need the leader."""
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        id = await broker.topic("t")
        leader, follower, other = [await broker.client(node) for node in range(3)]
        assert only(await leader.call(produce(records(b"a", b"b")), 9)).error_code == 0
        wanted: Any = (id if version >= 13 else "t", 0, 0)
        found = only(await follower.call(fetch(wanted), version))
        assert (found.error_code, values(found.records)) == ((NOT_LEADER, []) if version == 10 else (0, [b"a", b"b"]))
        assert only(await other.call(fetch(wanted), version)).error_code == NOT_LEADER
        assert only(await follower.call(fetch(wanted, replica_id=1), min(version, 14))).error_code == NOT_LEADER
        for node, replica, code, offset in (
            (follower, -2, 0, 2),
            (follower, -1, NOT_LEADER, -1),
            (other, -2, NOT_LEADER, -1),
            (leader, -2, 0, 2),
        ):
            result = only(await node.call(latest(replica), 6))
            assert (result.error_code, result.offset) == (code, offset)
        broker.state.topology.take_offline("t", 0)
        assert only(await follower.call(fetch(wanted), version)).error_code == NOT_LEADER


# --- persistence


async def test_leaders_epochs_and_replicas_survive_a_restart(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 3)
        topology = broker.state.topology
        topology.move_leader("t", 0, 3)
        topology.move_leader("t", 0, 2)
        topology.take_offline("t", 1)
        topology.stop_node(3)
        before = topology.describe().partitions
        assert leaders(broker) == [2, -1, 1]
    async with running(tmp_path, brokers=3) as broker:  # all nodes run, and no partition is offline
        after = broker.state.topology.describe().partitions
        assert [one.replicas for one in after] == [one.replicas for one in before]
        assert leaders(broker) == [2, 2, 1]
        assert epochs(broker) == [2, 2, 1]
        assert [one.isr for one in after] == [one.replicas for one in after]
    async with running(tmp_path, brokers=2) as broker:
        assert leaders(broker) == [2, 2, 1]
        assert epochs(broker) == [2, 2, 1]
        assert {one.replicas for one in broker.state.topology.describe().partitions} == {(1, 2), (2, 1)}
    async with running(tmp_path) as broker:
        assert leaders(broker) == [1, 1, 1]
        assert epochs(broker) == [2, 2, 1]
        assert not broker.state.nodes.is_cluster
    async with running(tmp_path, brokers=2) as broker:
        assert leaders(broker) == [2, 2, 1]


async def test_note_restores_unsaved_topology(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 3)
        broker.state.topology.take_offline("t", 1)
        broker.state.topology.stop_node(3)
        note, before = broker.state.topology.note(), broker.state.topology.describe()
    async with running(tmp_path, brokers=3, note=note) as broker:
        after = broker.state.topology.describe()
        assert after.partitions == before.partitions
        assert [node.running for node in after.nodes] == [True, True, False]
        with pytest.raises(ConnectionRefusedError):
            await broker.client(2)
        broker.state.topology.start_node(3)
        await broker.client(2)


async def test_leader_epochs_match_the_log(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        for node in (0, 1, 0):
            broker.state.topology.move_leader("t", 0, node + 1)
            result = only(await (await broker.client(node)).call(produce(records(b"a", b"b")), 9))
            assert result.error_code == 0
        assert epochs(broker) == [2]
        assert [broker.log("t").end_offset_for_epoch(epoch) for epoch in range(3)] == [(0, 2), (1, 4), (2, 6)]


async def test_failed_write_leaves_the_topology_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from ottla.storage.errors import StorageError

    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")

        def fail(*_: Any) -> None:
            raise StorageError("no")

        before = broker.state.topology.describe()
        with monkeypatch.context() as patched:
            patched.setattr(broker.state.metadata_log, "append", fail)
            topology = broker.state.topology
            for change in (
                lambda: topology.move_leader("t", 0, 2),
                lambda: topology.stop_node(1),
                lambda: topology.take_offline("t", 0),
            ):
                with pytest.raises(StorageError):
                    change()
        assert broker.state.topology.describe() == before
        assert not broker.state.topology.note().offline
        await (await broker.client(0)).call(produce(records(b"a")), 9)


async def test_produce_with_too_few_in_sync_replicas(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", configs={"min.insync.replicas": "2"})
        client = await broker.client(0)
        topology = broker.state.topology
        for stopped, code in ((3, 0), (2, ErrorCode.NOT_ENOUGH_REPLICAS)):
            topology.stop_node(stopped)
            assert only(await client.call(produce(records(b"a")), 9)).error_code == code
            assert only(await client.call(produce(records(b"a"), acks=1), 9)).error_code == 0
        topology.start_node(2)
        assert only(await client.call(produce(records(b"a")), 9)).error_code == 0


async def test_pending_appends_end_when_the_leader_moves(tmp_path: Path):
    """There is a single log: records accepted before the move are there after it."""
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        client = await broker.client(0)
        many = records(*[b"x" * 100] * 5000)
        await client.send(produce(many), 9)
        partition = broker.state.topics.partition("t", 0)
        async with asyncio.timeout(PATIENCE_S):
            while partition.unfinished is None and broker.log("t").log_end_offset == 0:
                await asyncio.sleep(0)
        broker.state.topology.move_leader("t", 0, 2)
        _, response = await client.receive()
        assert only(response).error_code == 0
        found = only(await (await broker.client(1)).call(fetch(("t", 0, 0), partition_max_bytes=1 << 24), 12))
        assert len(values(found.records)) == 5000
