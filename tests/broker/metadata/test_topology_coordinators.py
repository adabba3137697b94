"""Coordinators with several nodes: the leader of a group's or transaction's partition, and moves of leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ottla_testing.broker.coordinator_requests import REQUESTS, code
from ottla_testing.broker.harness import Broker, Client, ping, running
from ottla_testing.broker.streaming import joining
from ottla_testing.broker.transacting import Owner
from ottla_testing.patience import PATIENCE_S

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR
GROUP, TRANSACTION = 0, 1
FETCHED_OF_GROUP = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
JOINING: list[tuple[Any, int, Callable[[Any], int]]] = [  # members of the other kinds of groups
    (
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
        1,
        code,
    ),
    (ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, subscribed_topic_names=["t"]), 1, code),
    (joining("a", group_id="g"), 0, code),
]


async def found(broker: Broker, key: str = "g", key_type: int = GROUP, node: int = 0) -> tuple[int, int]:
    """Returns (error, node id) of FindCoordinator, after checking the address of that node."""
    client = await broker.client(node)
    (one,) = (await client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)).coordinators
    if not one.error_code:
        assert (one.host, one.port) == ("127.0.0.1", broker.ports[one.node_id - 1])
    old = await client.call(FindCoordinatorRequest(key_type=key_type, key=key), 3)
    assert (old.error_code, old.node_id) == (one.error_code, one.node_id)
    return one.error_code, one.node_id


def join(member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
    )


def commit(offset: int, group: str = "g", **member: Any) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[topic(name="t", partitions=[partition])], **member)


async def committed(client: Client) -> tuple[int, int]:
    """Returns (error of the group, offset)."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    response = await client.call(OffsetFetchRequest(group_id="g", topics=[topic]), 5)
    offsets = [one.committed_offset for topic in response.topics for one in topic.partitions]
    return response.error_code, offsets[0] if offsets else -1


async def member(broker: Broker, client: Client) -> tuple[str, int]:
    """Joins a single member with its assignment: returns its id and generation."""
    await client.send(join(), 3)
    await broker.settle()
    broker.clock.advance(10_000)
    _, joined = await client.receive()
    assert joined.error_code == 0
    assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
    synced = await client.call(
        SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
        ),
        2,
    )
    assert (synced.error_code, synced.assignment) == (0, b"x")
    return joined.member_id, joined.generation_id


def move(broker: Broker, topic: str, key: str, node: int) -> None:
    coordinator = broker.state.groups if topic == GROUP_OFFSETS_TOPIC else broker.state.transactions
    broker.state.topology.move_leader(topic, coordinator.partition_of(key), node)


async def test_every_node_returns_the_same_coordinator(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        for key_type, topic, coordinator in (
            (GROUP, GROUP_OFFSETS_TOPIC, broker.state.groups),
            (TRANSACTION, TRANSACTION_STATE_TOPIC, broker.state.transactions),
        ):
            seen = set()
            for key in "abcdefgh":
                (one,) = {await found(broker, key, key_type, node) for node in range(3)}
                assert one == (0, broker.state.topics.leader(topic, coordinator.partition_of(key)))
                seen.add(one)
            assert len(seen) > 1
            (replicas,) = {len(one.replicas) for one in broker.state.topics.named(topic).partitions}
            assert replicas == 3


async def test_other_node_responds_not_coordinator(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        client = await broker.client(0)
        assert (await client.call(join(), 3)).error_code == NOT_COORDINATOR  # the log does not exist yet
        _, node = await found(broker)
        here, elsewhere = await broker.client(node - 1), await broker.client(2 - node)
        id, generation = await member(broker, here)
        delete = OffsetDeleteRequest.OffsetDeleteRequestTopic
        for request, version in (
            (join(id), 3),
            (SyncGroupRequest(group_id="g", generation_id=generation, member_id=id, assignments=[]), 2),
            (HeartbeatRequest(group_id="g", generation_id=generation, member_id=id), 3),
            (LeaveGroupRequest(group_id="g", member_id=id), 2),
            (
                OffsetDeleteRequest(
                    group_id="g",
                    topics=[
                        delete(name="t", partitions=[delete.OffsetDeleteRequestPartition(partition_index=0)]),
                    ],
                ),
                0,
            ),
        ):
            assert (await elsewhere.call(request, version)).error_code == NOT_COORDINATOR, request
        member_of = {"generation_id_or_member_epoch": generation, "member_id": id}
        response = await elsewhere.call(commit(5, **member_of), 7)
        assert response.topics[0].partitions[0].error_code == NOT_COORDINATOR
        assert await committed(elsewhere) == (NOT_COORDINATOR, -1)
        (described,) = (await elsewhere.call(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert described.error_code == NOT_COORDINATOR
        (deleted,) = (await elsewhere.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
        assert deleted.error_code == NOT_COORDINATOR
        assert (await elsewhere.call(ListGroupsRequest(), 4)).groups == []
        assert [one.group_id for one in (await here.call(ListGroupsRequest(), 4)).groups] == ["g"]
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=id)
        assert (await here.call(heartbeat, 3)).error_code == 0


async def test_group_coordinator_follows_the_partition_leader(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t")
        _, node = await found(broker)
        old, new = await broker.client(node - 1), await broker.client(node % 3)
        id, generation = await member(broker, old)
        member_of = {"generation_id_or_member_epoch": generation, "member_id": id}
        assert (await old.call(commit(5, **member_of), 7)).topics[0].partitions[0].error_code == 0
        move(broker, GROUP_OFFSETS_TOPIC, "g", node % 3 + 1)
        assert await found(broker) == (0, node % 3 + 1)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=id)
        assert (await old.call(heartbeat, 3)).error_code == NOT_COORDINATOR
        assert (await new.call(heartbeat, 3)).error_code == 0
        assert await committed(new) == (0, 5)
        assert (await new.call(commit(6, **member_of), 7)).topics[0].partitions[0].error_code == 0
        move(broker, GROUP_OFFSETS_TOPIC, "g", node)
        assert await committed(old) == (0, 6)
        broker.clock.advance(31_000)  # its session began when the log was loaded
        assert (await old.call(heartbeat, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_delayed_join_gets_not_coordinator_after_a_move(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        _, node = await found(broker)
        client = await broker.client(node - 1)
        await client.send(join(), 3)
        await broker.settle()
        move(broker, GROUP_OFFSETS_TOPIC, "g", 3 - node)
        _, joined = await client.receive()
        assert joined.error_code == NOT_COORDINATOR
        assert (await client.call(ping(), 0)).error_code == 0


async def test_partition_without_leader_has_no_coordinator(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        for key_type, topic, coordinator in (
            (GROUP, GROUP_OFFSETS_TOPIC, broker.state.groups),
            (TRANSACTION, TRANSACTION_STATE_TOPIC, broker.state.transactions),
        ):
            assert (await found(broker, "g", key_type))[0] == 0
            broker.state.topology.take_offline(topic, coordinator.partition_of("g"))
            assert await found(broker, "g", key_type) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            broker.state.topology.bring_online(topic, coordinator.partition_of("g"))
            assert (await found(broker, "g", key_type))[0] == 0
    async with running(tmp_path, brokers=2) as broker:
        assert (await found(broker))[0] == 0


@pytest.mark.parametrize("brokers", [1, 2])
async def test_requests_without_a_leader_get_not_coordinator(tmp_path: Path, brokers: int):
    """OffsetFetch, too, has the error of the group and no topics, and afterwards the offset that was committed."""
    async with running(tmp_path, brokers=brokers, release="4.3") as broker:
        await broker.topic("t")
        client = await broker.client()
        if brokers > 1:  # a single node makes the topics with the first records
            for topic, key, key_type in (
                (GROUP_OFFSETS_TOPIC, "g", GROUP),
                (TRANSACTION_STATE_TOPIC, "x", TRANSACTION),
            ):
                await found(broker, key, key_type)
                move(broker, topic, key, 1)
        assert (await client.call(commit(5), 7)).topics[0].partitions[0].error_code == 0
        assert await Owner(client).init() == 0
        places = [
            (GROUP_OFFSETS_TOPIC, broker.state.groups.partition_of("g")),
            (TRANSACTION_STATE_TOPIC, broker.state.transactions.partition_of("x")),
        ]
        for place in places:
            broker.state.topology.take_offline(*place)
        for request, version, error in (*REQUESTS, *JOINING):
            assert error(await client.call(request, version)) == NOT_COORDINATOR, request
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        wanted = OffsetFetchRequest(groups=[group(group_id="g", topics=[FETCHED_OF_GROUP])], require_stable=True)
        for version in (8, 9):
            (reported,) = (await client.call(wanted, version)).groups
            assert (reported.error_code, reported.topics) == (NOT_COORDINATOR, [])
        for place in places:
            broker.state.topology.bring_online(*place)
        assert await committed(client) == (0, 5)
        (reported,) = (await client.call(wanted, 9)).groups
        assert (reported.error_code, reported.topics[0].partitions[0].committed_offset) == (0, 5)


async def test_groups_of_a_stopped_node_move(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t")
        _, node = await found(broker)
        client = await broker.client(node - 1)
        id, generation = await member(broker, client)
        broker.state.topology.stop_node(node)
        assert await client.is_closed()
        error, another = await found(broker, node=node % 3)
        assert (error, another != node) == (0, True)
        client = await broker.client(another - 1)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=id)
        assert (await client.call(heartbeat, 3)).error_code == 0


async def test_transaction_coordinator_follows_the_partition_leader(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        _, node = await found(broker, "x", TRANSACTION)
        old, new = await broker.client(node - 1), await broker.client(2 - node)
        producer = Owner(old)
        assert await Owner(new).init() == NOT_COORDINATOR
        assert await producer.init() == 0
        assert await producer.add(("t", 0)) == {("t", 0): 0}
        producer.client = await broker.client(0)
        assert await producer.send(b"a", b"b") == 0
        move(broker, TRANSACTION_STATE_TOPIC, "x", 3 - node)
        producer.client = old
        assert await producer.add(("t", 0)) == {("t", 0): NOT_COORDINATOR}
        assert await producer.end(True) == NOT_COORDINATOR
        assert await producer.add_offsets() == NOT_COORDINATOR
        for client, code, listed in ((old, NOT_COORDINATOR, []), (new, 0, ["x"])):
            request = DescribeTransactionsRequest(transactional_ids=["x"])
            (described,) = (await client.call(request, 0)).transaction_states
            assert described.error_code == code
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            assert [one.transactional_id for one in (await client.call(request, 0)).transaction_states] == listed
        producer.client = new
        assert broker.log("t").last_stable_offset == 0
        assert await producer.end(True) == 0
        async with asyncio.timeout(PATIENCE_S):
            while broker.log("t").last_stable_offset != 3:
                await asyncio.sleep(0)
        assert _markers(broker) == [1]  # the leader epoch of the coordinator's partition
        response = await new.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        assert (response.error_code, response.producer_id >= 0) == (0, True)


def _markers(broker: Broker) -> list[int]:
    """Returns the coordinator epochs in the partition's producer state."""
    return [known.coordinator_epoch for known in broker.log("t").producers().values()]


async def test_marker_waits_for_a_leader(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        _, node = await found(broker, "x", TRANSACTION)
        producer = Owner(await broker.client(node - 1))
        assert await producer.init() == 0
        assert await producer.add(("t", 0)) == {("t", 0): 0}
        coordinator, producer.client = producer.client, await broker.client(0)
        assert await producer.send(b"a") == 0
        broker.state.topology.take_offline("t", 0)
        producer.client = coordinator
        assert await producer.end(True) == 0
        await broker.settle()
        broker.clock.advance(60_000)
        await broker.settle()
        assert broker.log("t").last_stable_offset == 0
        broker.state.topology.bring_online("t", 0)
        broker.clock.advance(60_000)
        await broker.settle()
        assert broker.log("t").last_stable_offset == 2


@pytest.mark.parametrize("brokers", [1, 3])
async def test_single_node_coordinates_all_groups(tmp_path: Path, brokers: int):
    """A single node coordinates without the topic; several nodes create it first."""
    async with running(tmp_path, brokers=brokers) as broker:
        error, _ = await found(broker)
        assert error == 0
        assert (broker.state.topics.get(GROUP_OFFSETS_TOPIC) is None) == (brokers == 1)
