"""One case for each API of records, groups, topics and configs: a plausible request, and checks of its response.
Importing this module registers the cases of all other APIs too.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import own_profile
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
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
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch, legacy
from ottla_testing.broker import (  # noqa: F401
    acl_cases,
    cluster_cases,
    config_cases,
    quota_cases,
    replica_cases,
    share_cases,
    streams_cases,
    transaction_cases,
)
from ottla_testing.broker.api_cases import World, case, committing
from ottla_testing.broker.harness import (
    create_topics,
    fetch,
    new_topic,
    only,
    produce,
    records,
    values,
)

ADVERTISED = apis_of(own_profile(), telemetry=True, unstable=True).advertised


@case(ProduceRequest)
async def produces(world: World, version: int) -> None:
    data = records(b"d", b"e")
    if version < 3:
        made = [batch.Record(n, 1_700_000_000_000, None, value) for n, value in enumerate((b"d", b"e"))]
        data = legacy.build(made, magic=1 if version == 2 else 0)
    response = await world.client.call(
        produce(data, **({"topic_id": world.topic_id, "topic": ""} if version >= 13 else {})), version
    )
    got = only(response)
    assert (got.error_code, got.base_offset, got.log_append_time_ms) == (0, 3, -1)
    assert got.log_start_offset == (0 if version >= 5 else -1)
    assert world.broker.log("t").log_end_offset == 5


@case(type(fetch()))
async def fetches(world: World, version: int) -> None:
    response = await world.client.call(fetch((world.topic_id if version >= 13 else "t", 0, 0)), version)
    got = only(response)
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (0, 3, 3 if version >= 4 else -1)
    assert values(got.records) == [b"a", b"b", b"c"]
    assert response.session_id == 0


@case(ListOffsetsRequest)
async def lists_offsets(world: World, version: int) -> None:
    topic = ListOffsetsRequest.ListOffsetsTopic
    for timestamp, offset in ((-1, 3), (-2, 0)):
        requested = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[requested])])
        got = only(await world.client.call(request, version))
        assert got.error_code == 0
        assert got.old_style_offsets == ([offset] if version == 0 else [])
        assert got.offset == (-1 if version == 0 else offset)
        assert got.leader_epoch == (0 if version >= 4 else -1)


@case(MetadataRequest)
async def describes(world: World, version: int) -> None:
    requested = MetadataRequest.MetadataRequestTopic(name="t")
    response = await world.client.call(MetadataRequest(topics=[requested]), version)
    (node,) = response.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", world.broker.ports[0])
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (world.broker.state.cluster_id if version >= 2 else None)
    (topic,) = response.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert topic.topic_id == (world.topic_id if version >= 10 else bytes(16))
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1], [1]),
        (1, 1, [1], [1]),
    ]


@case(OffsetCommitRequest)
async def commits(world: World, version: int) -> None:
    assert only(await world.client.call(committing(world.name(version, 10)), version)).error_code == 0


@case(OffsetFetchRequest)
async def fetches_commits(world: World, version: int) -> None:
    await world.commit()
    if version < 8:
        old = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
        response = await world.client.call(OffsetFetchRequest(group_id="g", topics=[old]), version)
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        requested = group.OffsetFetchRequestTopics(partition_indexes=[0, 1], **world.name(version, 10))
        request = OffsetFetchRequest(groups=[group(group_id="g", topics=[requested])])
        (response,) = (await world.client.call(request, version)).groups
    (topic,) = response.topics
    found = [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions]
    # A partition without a committed offset is unknown in v0 only, which read ZooKeeper.
    assert found == [(0, 2, "m", 0), (1, -1, "", 3 if version == 0 else 0)]


@case(FindCoordinatorRequest)
async def finds_the_coordinator(world: World, version: int) -> None:
    for key_type in (0, 1) if version else (0,):
        if version < 4:
            response = await world.client.call(FindCoordinatorRequest(key="g", key_type=key_type), version)
        else:
            request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)
            (response,) = (await world.client.call(request, version)).coordinators
            assert response.key == "g"
        where = response.node_id, response.host, response.port
        assert (response.error_code, *where) == (0, 1, "127.0.0.1", world.broker.ports[0])
    assert (world.broker.state.topics.get("__transaction_state") is not None) == (version > 0)


async def joined(world: World, version: int) -> Any:
    """A member alone in its group, in the generation of its second join."""
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")]
    request = JoinGroupRequest(
        group_id="live",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    if version >= 4:
        response = await world.client.call(request, version)
        assert (response.error_code, response.generation_id) == (79, -1)
        request.member_id = response.member_id
    await world.client.send(request, version)
    await world.broker.settle()
    world.broker.clock.advance(3_000)  # group.initial.rebalance.delay.ms
    return (await world.client.receive())[1]


@case(JoinGroupRequest)
async def joins(world: World, version: int) -> None:
    response = await joined(world, version)
    assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
    assert response.leader == response.member_id and response.member_id.startswith("test-")
    assert [(m.member_id, m.metadata) for m in response.members] == [(response.member_id, b"meta")]
    assert response.protocol_type == ("consumer" if version >= 7 else None)


async def synced(world: World, version: int) -> tuple[str, Any]:
    member_id = (await joined(world, 4)).member_id
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"plan")
    request = SyncGroupRequest(group_id="live", generation_id=1, member_id=member_id, assignments=[assignment])
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return member_id, await world.client.call(request, version)


async def member_beats(world: World, version: int, **changes: Any) -> Any:
    """A heartbeat of a member of the consumer protocol; without changes the one that joins."""
    fields = {"group_id": "new", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    fields |= {"subscribed_topic_names": ["t"], "topic_partitions": []} | changes
    return await world.client.call(ConsumerGroupHeartbeatRequest(**fields), version)


@case(ConsumerGroupHeartbeatRequest)
async def members_beat(world: World, version: int) -> None:
    response = await member_beats(world, version)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert [one.topic_id for one in response.assignment.topic_partitions] == [world.topic_id]
    response = await member_beats(world, version, member_epoch=1)
    assert (response.error_code, response.assignment) == (110, None)
    assert (await member_beats(world, version, member_id="", member_epoch=1)).error_code == 42


@case(ConsumerGroupDescribeRequest)
async def describes_members(world: World, version: int) -> None:
    await member_beats(world, 1)
    request = ConsumerGroupDescribeRequest(group_ids=["new", "none"], include_authorized_operations=False)
    found, missing = (await world.client.call(request, version)).groups
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Stable",
        2,
        2,
        "uniform",
    )
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.subscribed_topic_names) == ("m", 2, ["t"])
    assert member.member_type == (1 if version >= 1 else -1)
    assert [(one.topic_name, one.topic_id) for one in member.assignment.topic_partitions] == [("t", world.topic_id)]
    assert missing.error_code == 69


@case(SyncGroupRequest)
async def syncs(world: World, version: int) -> None:
    _, response = await synced(world, version)
    assert (response.error_code, response.assignment) == (0, b"plan")
    assert (response.protocol_type, response.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@case(HeartbeatRequest)
async def beats(world: World, version: int) -> None:
    member_id, _ = await synced(world, 0)
    for generation, code in ((1, 0), (2, 22)):
        request = HeartbeatRequest(group_id="live", generation_id=generation, member_id=member_id)
        assert (await world.client.call(request, version)).error_code == code


@case(LeaveGroupRequest)
async def leaves(world: World, version: int) -> None:
    member_id, _ = await synced(world, 0)
    if version < 3:
        response = await world.client.call(LeaveGroupRequest(group_id="live", member_id=member_id), version)
    else:
        one = LeaveGroupRequest.MemberIdentity(member_id=member_id)
        response = await world.client.call(LeaveGroupRequest(group_id="live", members=[one]), version)
        assert [(m.member_id, m.error_code) for m in response.members] == [(member_id, 0)]
    assert response.error_code == 0


@case(DescribeGroupsRequest)
async def describes_groups(world: World, version: int) -> None:
    member_id, _ = await synced(world, 0)
    (group,) = (await world.client.call(DescribeGroupsRequest(groups=["live"]), version)).groups
    assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
    assert [(m.member_id, m.client_id, m.member_assignment) for m in group.members] == [(member_id, "test", b"plan")]


@case(ListGroupsRequest)
async def lists_groups(world: World, version: int) -> None:
    await world.commit()
    await synced(world, 0)
    response = await world.client.call(ListGroupsRequest(), version)
    assert response.error_code == 0
    assert sorted((g.group_id, g.protocol_type, g.group_state) for g in response.groups) == [
        ("g", "", "Empty" if version >= 4 else ""),
        ("live", "consumer", "Stable" if version >= 4 else ""),
    ]


@case(ApiVersionsRequest)
async def lists_versions(world: World, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    response = await world.client.call(request, version)
    assert response.error_code == 0
    found = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert found == {key: (versions.first, versions.last) for key, versions in ADVERTISED.items()}


@case(type(create_topics()))
async def creates(world: World, version: int) -> None:
    counted = -1 if version >= 4 else 1
    response = await world.client.call(
        type(create_topics())(
            topics=[
                new_topic("n", 3),
                new_topic("m", counted, counted),
                new_topic("t"),
            ]
        ),
        version,
    )
    created = {topic.name: topic for topic in response.topics}
    assert {name: topic.error_code for name, topic in created.items()} == {"n": 0, "m": 0, "t": 36}
    if version >= 5:
        assert (created["n"].num_partitions, created["n"].replication_factor) == (3, 1)
        assert "retention.ms" in {config.name for config in created["n"].configs}
    if version >= 7:
        assert created["n"].topic_id == world.broker.state.topics.named("n").id
    assert len(world.broker.state.topics.named("n").partitions) == 3


@case(DeleteTopicsRequest)
async def deletes(world: World, version: int) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(timeout_ms=1000)
    if version >= 6:
        request.topics = [state(topic_id=world.topic_id), state(name="u", topic_id=bytes(16))]
    else:
        request.topic_names = ["t", "u"]
    response = await world.client.call(request, version)
    assert [(topic.name, topic.error_code) for topic in response.responses] == [("t", 0), ("u", 3)]
    assert world.broker.state.topics.get("t") is None


@case(DeleteRecordsRequest)
async def deletes_records(world: World, version: int) -> None:
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    requested = topic.DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(topics=[topic(name="t", partitions=[requested])], timeout_ms=1000)
    got = only(await world.client.call(request, version))
    assert (got.error_code, got.low_watermark) == (0, 2)
    assert world.broker.log("t").log_start_offset == 2


@case(InitProducerIdRequest)
async def gives_producer_ids(world: World, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    responses_of_both = [await world.client.call(request, version) for _ in range(2)]
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in responses_of_both] == [(0, 0, 0), (0, 1, 0)]
    request.transactional_id = "x"
    responses_of_both = [await world.client.call(request, version) for _ in range(2)]
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in responses_of_both] == [(0, 2, 0), (0, 2, 1)]


@case(OffsetForLeaderEpochRequest)
async def ends_epochs(world: World, version: int) -> None:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    requested = [
        topic.OffsetForLeaderPartition(partition=0, leader_epoch=0),
        topic.OffsetForLeaderPartition(partition=0, leader_epoch=5),
        topic.OffsetForLeaderPartition(partition=9, leader_epoch=0),
    ]
    request = OffsetForLeaderEpochRequest(topics=[topic(topic="t", partitions=requested)])
    (responded,) = (await world.client.call(request, version)).topics
    shown = [(p.partition, p.error_code, p.leader_epoch, p.end_offset) for p in responded.partitions]
    assert shown == [(0, 0, 0 if version >= 1 else -1, 3), (0, 0, -1, -1), (9, 3, -1, -1)]


@case(DescribeConfigsRequest)
async def describes_configs(world: World, version: int) -> None:
    requested = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
    )
    response = await world.client.call(
        DescribeConfigsRequest(resources=[requested], include_synonyms=version >= 1), version
    )
    (result,) = response.results
    (entry,) = result.configs
    assert (result.error_code, entry.name, entry.value, entry.read_only) == (0, "retention.ms", "604800000", False)
    if version == 0:
        assert entry.is_default
    else:
        # As in Kafka: the broker config log.retention.ms is not set.
        assert entry.config_source == 5 and not entry.synonyms
    assert entry.config_type == (5 if version >= 3 else 0)  # LONG


@case(AlterConfigsRequest)
async def alters_configs(world: World, version: int) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="segment.bytes", value="2000000")
    requested = resource(resource_type=2, resource_name="t", configs=[config])
    response = await world.client.call(AlterConfigsRequest(resources=[requested], validate_only=False), version)
    assert [(r.error_code, r.resource_type, r.resource_name) for r in response.responses] == [(0, 2, "t")]
    assert world.broker.log("t").config.segment_bytes == 2_000_000


@case(IncrementalAlterConfigsRequest)
async def changes_configs(world: World, version: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="segment.bytes", config_operation=0, value="2000000")
    requested = resource(resource_type=2, resource_name="t", configs=[config])
    response = await world.client.call(
        IncrementalAlterConfigsRequest(resources=[requested], validate_only=False), version
    )
    assert [(r.error_code, r.resource_type, r.resource_name) for r in response.responses] == [(0, 2, "t")]
    assert world.broker.log("t").config.segment_bytes == 2_000_000


@case(DescribeLogDirsRequest)
async def describes_log_dirs(world: World, version: int) -> None:
    response = await world.client.call(DescribeLogDirsRequest(topics=None), version)
    (directory,) = response.results
    assert directory.error_code == 0 and directory.log_dir.endswith("data")
    (topic,) = directory.topics
    sizes = {p.partition_index: p.partition_size for p in topic.partitions}
    assert topic.name == "t" and sizes[0] == len(records(b"a", b"b", b"c")) and sizes[1] == 0
    assert (directory.usable_bytes > 0) == (version >= 4)


@case(CreatePartitionsRequest)
async def adds_partitions(world: World, version: int) -> None:
    topic = CreatePartitionsRequest.CreatePartitionsTopic
    request = CreatePartitionsRequest(
        topics=[topic(name="t", count=4, assignments=None), topic(name="u", count=4, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    response = await world.client.call(request, version)
    assert [(r.name, r.error_code) for r in response.results] == [("t", 0), ("u", 3)]
    assert len(world.broker.state.topics.named("t").partitions) == 4


@case(DeleteGroupsRequest)
async def deletes_groups(world: World, version: int) -> None:
    await world.commit()
    response = await world.client.call(DeleteGroupsRequest(groups_names=["g", "nobody"]), version)
    assert [(r.group_id, r.error_code) for r in response.results] == [("g", 0), ("nobody", 69)]


@case(OffsetDeleteRequest)
async def deletes_offsets(world: World, version: int) -> None:
    await world.commit()
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    requested = topic(name="t", partitions=[topic.OffsetDeleteRequestPartition(partition_index=0)])
    response = await world.client.call(OffsetDeleteRequest(group_id="g", topics=[requested]), version)
    assert response.error_code == 0 and only(response).error_code == 0


@case(DescribeClusterRequest)
async def describes_the_cluster(world: World, version: int) -> None:
    response = await world.client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, world.broker.state.cluster_id, 1)
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(1, "127.0.0.1", world.broker.ports[0])]


@case(DescribeProducersRequest)
async def describes_producers(world: World, version: int) -> None:
    numbered = records(b"d", b"e", producer_id=7, producer_epoch=2, base_sequence=0)
    world.broker.log("t").append(numbered, now_ms=world.broker.clock.now_ms())
    request = DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])])
    got = only(await world.client.call(request, version))
    assert (got.partition_index, got.error_code, got.error_message) == (0, 0, None)
    (state,) = got.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (7, 2, 1)
    assert state.last_timestamp == 1_700_000_000_000
    assert (state.coordinator_epoch, state.current_txn_start_offset) == (-1, -1)


@case(DescribeTopicPartitionsRequest)
async def describes_pages(world: World, version: int) -> None:
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")])
    (topic,) = (await world.client.call(request, version)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", world.topic_id)
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1), (1, 1)]
