"""Responses of a node that is not the leader, and of one of several nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.protocol.records import batch, legacy
from ottla_testing.broker.harness import Client, fetch, new_topic, only, process, produce, records, running
from ottla_testing.broker.transacting import Owner, described

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
BROKER = 4  # a ConfigResource type


def list_offsets(epoch: int = -1) -> ListOffsetsRequest:
    topic = ListOffsetsRequest.ListOffsetsTopic
    requested = topic.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    return ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[requested])])


def epoch_end(epoch: int, current: int = -1) -> OffsetForLeaderEpochRequest:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    requested = topic.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    return OffsetForLeaderEpochRequest(topics=[topic(topic="t", partitions=[requested])])


def delete_records(offset: int) -> DeleteRecordsRequest:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    requested = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[topic(name="t", partitions=[requested])], timeout_ms=9)


def describe_producers() -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])])


async def test_only_the_leader_serves_a_partition(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        old, new = await broker.client(0), await broker.client(1)
        assert only(await old.call(produce(records(b"a", b"b")), 9)).error_code == 0
        broker.state.topology.move_leader("t", 0, 2)
        requests: list[tuple[Any, int]] = [
            (list_offsets(), 7),
            (list_offsets(), 0),
            (epoch_end(0), 3),
            (delete_records(1), 2),
        ]
        for request, version in requests:
            assert only(await old.call(request, version)).error_code == NOT_LEADER, request
            assert only(await new.call(request, version)).error_code == 0, request
        assert only(await new.call(list_offsets(), 7)).leader_epoch == 1
        response = only(await new.call(epoch_end(0), 3))
        assert (response.leader_epoch, response.end_offset) == (0, 2)
        assert only(await new.call(produce(records(b"c")), 9)).error_code == 0
        responses = [only(await new.call(epoch_end(epoch), 3)) for epoch in (0, 1, 2)]
        assert [(one.leader_epoch, one.end_offset) for one in responses] == [(0, 2), (1, 3), (-1, -1)]
        for request, version in ((list_offsets(0), 7), (epoch_end(0, current=0), 3)):
            for client in (old, new):
                assert only(await client.call(request, version)).error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_every_replica_describes_producers(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        await broker.topic("t")
        responses = [only(await (await broker.client(node)).call(describe_producers(), 0)) for node in range(3)]
        assert [one.error_code for one in responses] == [0, 0, NOT_LEADER]
        broker.state.topology.take_offline("t", 0)
        responses = [only(await (await broker.client(node)).call(describe_producers(), 0)) for node in range(3)]
        assert [one.error_code for one in responses] == [0, 0, NOT_LEADER]


async def test_the_earliest_offset_has_the_epoch_of_its_record(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        topology = broker.state.topology

        async def earliest(special: int = -2) -> tuple[int, int]:
            client = await broker.client(broker.state.topics.leader("t", 0) - 1)
            request = list_offsets()
            request.topics[0].partitions[0].timestamp = special
            response = only(await client.call(request, 8))
            return response.offset, response.leader_epoch

        async def append(value: bytes) -> None:
            client = await broker.client(broker.state.topics.leader("t", 0) - 1)
            assert only(await client.call(produce(records(value)), 9)).error_code == 0

        topology.move_leader("t", 0, 2)
        assert await earliest() == (0, 1)  # the first record will have it
        await append(b"a")
        topology.move_leader("t", 0, 1)
        assert await earliest() == (0, 1)
        await append(b"b")
        topology.move_leader("t", 0, 2)
        assert await earliest() == await earliest(-4) == (0, 1)
        broker.log("t").delete_records_before(1)
        assert await earliest() == await earliest(-4) == (1, 2)
        broker.log("t").delete_records_before(2)
        assert await earliest() == await earliest(-4) == (2, 3)


async def test_unsupported_field_is_refused_before_the_leader_check(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        for node in range(2):
            client = await broker.client(node)
            for special, version in ((-4, 7), (-5, 8), (-7, 11)):
                request = list_offsets()
                for request.topics[0].name in ("t", "nope"):
                    request.topics[0].partitions[0].timestamp = special
                    assert only(await client.call(request, version)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_new_partitions_have_a_running_replica(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t")
        client = await broker.client(0)
        broker.state.topology.stop_node(2)
        create, grow = CreateTopicsRequest(topics=[new_topic("u", 6, 1), new_topic("v", 6, 3)]), CreatePartitionsRequest
        assert [one.error_code for one in (await client.call(create, 5)).topics] == [0, 0]
        for name, factor in (("u", 1), ("v", 3)):
            made = broker.state.topics.named(name).partitions
            assert {one.leader for one in made} == {1, 3}
            assert {len(one.replicas) for one in made} == {factor} and {one.replicas[0] for one in made} == {1, 3}
        requested = CreateTopicsRequest.CreatableTopic
        for replicas, code in (([2], ErrorCode.INVALID_REPLICA_ASSIGNMENT), ([2, 3], 0)):
            by_hand = requested(
                name="w",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[requested.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
                configs=[],
            )
            (result,) = (await client.call(CreateTopicsRequest(topics=[by_hand]), 5)).topics
            assert result.error_code == code
        assert broker.state.topics.leader("w", 0) == 3
        more = grow.CreatePartitionsTopic
        by_hand = more(name="u", count=7, assignments=[more.CreatePartitionsAssignment(broker_ids=[2])])
        (result,) = (await client.call(grow(topics=[by_hand], timeout_ms=9, validate_only=False), 1)).results
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_request_to_several_partitions_has_individual_results(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "1"}) as broker:
        await broker.topic("t", 3)
        client = await broker.client(0)
        response = await client.call(fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), ("t", 9, 0)), 11)
        found = [(one.partition_index, one.error_code) for topic in response.responses for one in topic.partitions]
        assert found == [(0, 0), (1, NOT_LEADER), (2, NOT_LEADER), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
        response = await client.call(fetch(*(("t", index, 0) for index in range(3))), 12)
        assert response.node_endpoints == []  # not a field of this version


async def test_leader_hints_have_each_node_once(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "1"}) as broker:
        replicas = [[1], [2], [3]] * 2
        id = broker.state.topics.create("t", 6, {}, broker.clock.now_ms(), replicas).id
        client = await broker.client(0)
        response = await client.call(fetch(*((id, index, 0) for index in range(6))), 16)
        responses = [one for topic in response.responses for one in topic.partitions]
        assert [one.current_leader.leader_id for one in responses] == [-1, 2, 3, -1, 2, 3]
        assert [one.node_id for one in response.node_endpoints] == [2, 3]


async def test_incremental_fetch_reports_a_leader_move(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        client = await broker.client(0)
        session = await client.call(fetch(("t", 0, 0), session_id=0, session_epoch=0), 10)
        assert session.session_id
        broker.state.topology.move_leader("t", 0, 2)
        following = fetch(session_id=session.session_id, session_epoch=1)
        assert only(await client.call(following, 10)).error_code == NOT_LEADER


async def test_fetch_session_belongs_to_one_node(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        clients = [await broker.client(node) for node in range(2)]
        sessions = [await client.call(fetch(("t", 0, 0), session_id=0, session_epoch=0), 12) for client in clients]
        unknown = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        following = fetch(session_id=sessions[0].session_id, session_epoch=1)
        assert (await clients[1].call(following, 12)).error_code == unknown
        assert (await clients[0].call(following, 12)).error_code == 0
        broker.state.topology.stop_node(1)
        broker.state.topology.start_node(1)
        following = fetch(session_id=sessions[0].session_id, session_epoch=2)
        assert (await (await broker.client(0)).call(following, 12)).error_code == unknown
        following = fetch(session_id=sessions[1].session_id, session_epoch=1)
        assert (await clients[1].call(following, 12)).error_code == 0


async def test_partition_without_leader_cannot_join_a_transaction(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        found = await (await broker.client()).call(FindCoordinatorRequest(key_type=1, key="x"), 3)
        producer = Owner(await broker.client(found.node_id - 1))
        assert await producer.init() == 0
        for client, version, code in ((1, 12, NOT_LEADER), (1, 9, NOT_LEADER), (0, 12, 0)):
            producer.client = await broker.client(client)
            assert await producer.send(b"a", version=version) == code
            held = (await described(await broker.client(found.node_id - 1)))[2]
            assert held == ({"t": [0]} if code == 0 else {})
        assert broker.log("t").log_end_offset == 1


async def test_refused_produce_without_acks_closes_the_connection(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        await broker.topic("t")
        client = await broker.client(1)
        await client.send(produce(records(b"a"), acks=0), 9)
        assert await client.is_closed()
        assert broker.log("t").log_end_offset == 0


async def test_metadata_v0_reports_unavailable_replicas(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        await broker.topic("t", 2)
        broker.state.topology.stop_node(2)
        client = await broker.client(0)
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        for version, code, replicas in ((0, ErrorCode.REPLICA_NOT_AVAILABLE, [3, 1]), (1, 0, [2, 3, 1])):
            (topic,) = (await client.call(request, version)).topics
            partition = topic.partitions[1]
            assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (code, 3, replicas)
            assert partition.isr_nodes == [3, 1]
        broker.state.topology.take_offline("t", 1)
        (topic,) = (await client.call(request, 0)).topics
        assert topic.partitions[1].error_code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2", "2.8", "4.3"])
async def test_leader_moves_in_every_release(tmp_path: Path, release: str):
    async with running(tmp_path, brokers=3, release=release) as broker:
        await broker.topic("t", 3)
        topology = broker.state.topology
        topology.stop_node(1)
        topology.start_node(1)
        versions = broker.state.apis.served[0]
        magic = 0 if versions.first < 2 else 2
        data = records(b"a") if magic == 2 else legacy.build([batch.Record(0, 1, None, b"a", ())], magic=magic)
        for node, code in ((0, NOT_LEADER), (1, 0)):
            client = await broker.client(node)
            assert only(await client.call(produce(data), versions.first)).error_code == code
        topology.spread_leaders()
        assert [one.leader for one in topology.describe().partitions] == [1, 2, 3]


@pytest.mark.parametrize(("release", "eligible"), [("4.3", True), ("3.9", False)])
async def test_eligible_leader_replicas(tmp_path: Path, release: str, eligible: bool):
    async with running(tmp_path, brokers=2, release=release) as broker:
        client = await broker.client(0)
        request = CreateTopicsRequest(topics=[new_topic("t", 1, replication=2)])
        (created,) = (await client.call(request, 7)).topics
        assert created.error_code == 0
        broker.state.topology.stop_node(2)
        broker.state.topology.take_offline("t", 0)
        requested = DescribeTopicPartitionsRequest.TopicRequest(name="t")
        request = DescribeTopicPartitionsRequest(topics=[requested], response_partition_limit=9)
        (one,) = (await client.call(request, 0)).topics[0].partitions
        assert (one.leader_id, one.replica_nodes, one.offline_replicas) == (-1, [1, 2], [2])
        assert one.isr_nodes == ([] if eligible else [1])
        assert one.eligible_leader_replicas == ([1] if eligible else [])


async def configs(client: Client, node: str) -> tuple[int, str | None]:
    """Returns (error, num.partitions) of a broker's configs as described by a node."""
    requested = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER, resource_name=node, configuration_keys=["message.max.bytes"]
    )
    (result,) = (await client.call(DescribeConfigsRequest(resources=[requested]), 4)).results
    assert result.error_code or result.error_message == ""  # an empty string as in Kafka, not null
    return result.error_code, result.configs[0].value if result.configs else None


async def test_each_node_describes_its_own_configs(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        clients = [await broker.client(node) for node in range(2)]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        for node, client in enumerate(clients, 1):
            assert (await configs(client, str(node)))[0] == 0
            assert (await configs(client, str(3 - node)))[0] == ErrorCode.INVALID_REQUEST
        for name, code in (("1", ErrorCode.INVALID_REQUEST), ("2", 0)):
            change = resource.AlterableConfig(name="message.max.bytes", config_operation=0, value="777")
            requested = resource(resource_type=BROKER, resource_name=name, configs=[change])
            request = IncrementalAlterConfigsRequest(resources=[requested], validate_only=False)
            (result,) = (await clients[1].call(request, 1)).responses
            assert result.error_code == code
        assert await configs(clients[0], "1") == (0, "777")  # they are one broker


async def test_each_node_has_the_files_of_its_replicas(tmp_path: Path):
    async with running(tmp_path, brokers=3, overrides={"default.replication.factor": "2"}) as broker:
        await broker.topic("t", 3)
        for node in range(3):
            client = await broker.client(node)
            (directory,) = (await client.call(DescribeLogDirsRequest(topics=None), 4)).results
            (topic,) = directory.topics
            found = [one.partition_index for one in topic.partitions]
            assert found == [
                one.partition for one in broker.state.topology.describe().partitions if node + 1 in one.replicas
            ]
            assert len(found) == 2


async def test_coordinators_need_min_insync_replicas(tmp_path: Path):
    overrides = {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}
    async with running(tmp_path, brokers=2, overrides=overrides) as broker:
        await broker.topic("t")
        client = await broker.client()
        for key_type in (0, 1):
            found = await client.call(FindCoordinatorRequest(key_type=key_type, key="x"), 3)
            assert found.error_code == 0
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        request = OffsetCommitRequest(group_id="x", topics=[topic(name="t", partitions=[partition])])
        topology = broker.state.topology
        for name, coordinator in (
            (GROUP_OFFSETS_TOPIC, broker.state.groups),
            (TRANSACTION_STATE_TOPIC, broker.state.transactions),
        ):
            topology.move_leader(name, coordinator.partition_of("x"), 1)
        producer = Owner(client)
        topology.stop_node(2)
        assert only(await client.call(request, 7)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await producer.init() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        topology.start_node(2)
        assert only(await client.call(request, 7)).error_code == 0
        assert await producer.init() == 0


@pytest.mark.process
async def test_several_nodes_in_a_process(tmp_path: Path):
    def started() -> Any:
        return process(tmp_path, "--brokers", "3", listeners=3)

    with started() as served:
        client = await Client.connect(served.ports[2])
        found = await client.call(MetadataRequest(topics=[]), 12)
        assert [(one.node_id, one.port) for one in found.brokers] == list(enumerate(served.ports, 1))
        client.close()
        assert await asyncio.to_thread(served.end) == 0
