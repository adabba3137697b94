"""Responses about topics and groups by release, as observed with Apache Kafka 2.8.2, 3.9.1 and 4.3.1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.cluster.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla_testing.broker.harness import Broker, Client, create_topics, new_topic, only, produce, records, running
from ottla_testing.each import each

RELEASES = ("2.8", "3.9", "4.3")
TOO_FEW = "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered"
CONFIG = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig
REPLICA = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment


def assigned(*replicas: Sequence[int]) -> list[Any]:
    return [REPLICA(partition_index=n, broker_ids=list(ids)) for n, ids in enumerate(replicas)]


async def with_topics(broker: Broker) -> Client:
    client = await broker.client()
    for name in ("t", "a.b"):
        await broker.topic(name, 2)
    return client


# Request -> code and message in each of RELEASES.
CREATED: dict[str, tuple[Any, list[tuple[int, str]]]] = {
    "collides": (
        new_topic("a_b"),
        [
            (17, "Topic 'a_b' collides with existing topics: a.b"),
            *[(17, "Topic 'a_b' collides with existing topic: a.b")] * 2,
        ],
    ),
    # Names are validated first, then replicas with ZooKeeper and configs with KRaft.
    "collides, assigned wrongly": (
        new_topic("a_b", -1, -1, assignments=[REPLICA(partition_index=1, broker_ids=[1])]),
        [
            (17, "Topic 'a_b' collides with existing topics: a.b"),
            *[(17, "Topic 'a_b' collides with existing topic: a.b")] * 2,
        ],
    ),
    "assigned and configured wrongly": (
        new_topic(
            "n",
            -1,
            -1,
            assignments=[REPLICA(partition_index=1, broker_ids=[1])],
            configs=[CONFIG(name="retention.ms", value="x")],
        ),
        [
            (39, "partitions should be a consecutive 0-based integer sequence"),
            *[(40, "Invalid value x for configuration retention.ms: Not a number of type LONG")] * 2,
        ],
    ),
    "too many replicas": (
        new_topic("n", 1, 3),
        [
            (38, "Replication factor: 3 larger than available brokers: 1."),
            (38, f"Unable to replicate the partition 3 time(s): {TOO_FEW}."),
            (
                38,
                f"Unable to replicate the partition 3 time(s): {TOO_FEW} or some brokers have all their log "
                "directories cordoned.",
            ),
        ],
    ),
    "no partitions": (
        new_topic("n", 0),
        [
            (37, "Number of partitions must be larger than 0."),
            *[(37, "Number of partitions was set to an invalid non-positive value.")] * 2,
        ],
    ),
    "no partitions and too many replicas": (
        new_topic("n", 0, 3),
        [
            (37, "Number of partitions must be larger than 0."),
            *[(37, "Number of partitions was set to an invalid non-positive value.")] * 2,
        ],
    ),
    "configs without values": (
        new_topic("n", 0, configs=[CONFIG(name="segment.ms", value=None), CONFIG(name="nope", value=None)]),
        [
            (42, "Null value not supported for topic configs : segment.ms,nope"),
            *[(40, "Null value not supported for topic configs: segment.ms,nope")] * 2,
        ],
    ),
    "a bad name": (
        new_topic(".."),
        [(17, 'Topic name cannot be "." or ".."'), *[(17, "Topic name is invalid: '..' is not allowed")] * 2],
    ),
    "a bad name and no partitions": (
        new_topic("", 0),
        [
            (37, "Number of partitions must be larger than 0."),
            *[(17, "Topic name is invalid: the empty string is not allowed")] * 2,
        ],
    ),
    "assigned and counted": (
        new_topic("n", -1, 1, assignments=assigned([1])),
        [
            (
                42,
                "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the "
                "same time.",
            ),
            *[(42, "A manual partition assignment was specified, but replication factor was not set to -1.")] * 2,
        ],
    ),
    "assigned twice to one": (
        new_topic("n", -1, -1, assignments=assigned([1, 1])),
        [
            (39, "Duplicate replica assignment found: Map(0 -> ArrayBuffer(1, 1))"),
            *[(39, "The manual partition assignment includes the broker 1 more than once.")] * 2,
        ],
    ),
}


@each("release", RELEASES)
async def test_create_topics_errors(tmp_path: Path, release: str) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        before = set(broker.state.topics)
        for what, (requested, expected) in CREATED.items():
            (found,) = (await client.call(CreateTopicsRequest(topics=[requested]), 5)).topics
            assert (found.error_code, found.error_message) == expected[RELEASES.index(release)], what
            for made in set(broker.state.topics) - before:
                broker.state.topics.delete(made, broker.clock.now_ms())


@pytest.mark.parametrize("release", RELEASES)
async def test_duplicate_entries(tmp_path: Path, release: str) -> None:
    """A broker with ZooKeeper has a result for each, a KRaft controller only one."""
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        created = (await client.call(create_topics("n", "n"), 5)).topics
        deleted = (await client.call(DeleteTopicsRequest(topic_names=["t", "t"], timeout_ms=1), 5)).responses
        names = {topic.name for topic in broker.state.topics}
    if release == "2.8":
        assert [one.error_message for one in created] == ["Found multiple entries for this topic."] * 2
        assert [(one.name, one.error_code) for one in deleted] == [("t", 0)] * 2 and "t" not in names
    else:
        assert [one.error_message for one in created] == ["Duplicate topic name."]
        assert [(one.name, one.error_message) for one in deleted] == [("t", "Duplicate topic name.")] and "t" in names


async def test_topic_deletion_by_name_or_id(tmp_path: Path) -> None:
    """KRaft refuses both for one topic, and deletes nothing."""
    async with running(tmp_path, release="4.3") as broker:
        client = await with_topics(broker)
        state = DeleteTopicsRequest.DeleteTopicState
        known = broker.state.topics.named("t").id
        requested = [
            state(name=None, topic_id=known),
            state(name="t", topic_id=ZERO_UUID),
            state(name="x", topic_id=ZERO_UUID),
        ]
        found = (await client.call(DeleteTopicsRequest(topics=requested, timeout_ms=1), 6)).responses
        assert [(one.name, one.topic_id == known, one.error_code, one.error_message) for one in found] == [
            ("t", True, 42, "The provided topic name maps to an ID that was already supplied."),
            ("x", False, 3, "This server does not host this topic-partition."),
        ]
        assert broker.state.topics.get("t") is not None


async def test_topic_deletion_by_name_and_id_in_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        client = await with_topics(broker)
        state = DeleteTopicsRequest.DeleteTopicState
        known = broker.state.topics.named("t").id
        requested = [state(name="t", topic_id=ZERO_UUID), state(name=None, topic_id=known)]
        found = (await client.call(DeleteTopicsRequest(topics=requested, timeout_ms=1), 6)).responses
        assert [(one.name, one.topic_id, one.error_code) for one in found] == [("t", ZERO_UUID, 0), ("t", known, 0)]
        assert broker.state.topics.get("t") is None


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [
        ("t", 2, ["Topic already has 2 partitions.", "Topic already has 2 partition(s)."]),
        (
            "t",
            1,
            [
                "Topic currently has 2 partitions, which is higher than the requested 1.",
                "The topic t currently has 2 partition(s); 1 would not be an increase.",
            ],
        ),
        ("x", 1, ["The topic 'x' does not exist.", None]),
    ],
)
@pytest.mark.parametrize("release", RELEASES)
async def test_create_partitions_errors(
    tmp_path: Path, release: str, name: str, count: int, expected: list[str | None]
) -> None:
    requested = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        request = CreatePartitionsRequest(topics=[requested], timeout_ms=1, validate_only=False)
        (found,) = (await client.call(request, 1)).results
    assert found.error_message == expected[release != "2.8"]


async def test_metadata_lists_ids_before_names(tmp_path: Path) -> None:
    """If a topic is requested by id, topics by name are ignored; v10 and v11 return nothing at all."""
    async with running(tmp_path, release="4.3") as broker:
        client = await with_topics(broker)
        known = broker.state.topics.named("t").id
        topic = MetadataRequest.MetadataRequestTopic
        requested = MetadataRequest(topics=[topic(name="a.b"), topic(name=None, topic_id=known)])
        found = await client.call(requested, 12)
        assert [one.name for one in found.topics] == ["t"]
        found = await client.call(MetadataRequest(topics=[topic(name="a.b"), topic(name="t", topic_id=known)]), 11)
        assert [(one.name, one.error_code) for one in found.topics] == [("a.b", 42), ("t", 42)]
        assert (found.brokers, found.cluster_id, found.controller_id) == ([], None, -1)


async def test_unknown_topics_have_authorized_operations(tmp_path: Path) -> None:
    overrides = {"auto.create.topics.enable": "false"}
    async with running(tmp_path, release="4.3", overrides=overrides) as broker:
        client = await broker.client()
        topic = MetadataRequest.MetadataRequestTopic
        requested = MetadataRequest(topics=[topic(name="x")], include_topic_authorized_operations=True)
        (found,) = (await client.call(requested, 12)).topics
        assert (found.error_code, found.topic_authorized_operations) == (3, 3576)
        described = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="x")])
        (found,) = (await client.call(described, 0)).topics
        assert (found.error_code, found.topic_authorized_operations) == (3, 3576)


async def test_cursor_outside_the_topics(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await with_topics(broker)
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="b", partition_index=0)
        topic = DescribeTopicPartitionsRequest.TopicRequest(name="t")
        response = await client.call(DescribeTopicPartitionsRequest(topics=[topic], cursor=cursor), 0)
        assert [(one.name, one.error_code) for one in response.topics] == [("t", 42)]


async def test_describe_cluster_of_controllers_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        client = await broker.client()
        found = [
            await client.call(
                DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=kind), 1
            )
            for kind in (2, 3)
        ]
    assert [(one.error_code, one.error_message) for one in found] == [
        (114, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (115, "Unsupported endpoint type 3"),
    ]


@pytest.mark.parametrize(("release", "response"), [("2.8", (0, 0)), ("3.9", (35, -1)), ("4.3", (35, -1))])
async def test_special_timestamps(tmp_path: Path, release: str, response: tuple[int, int]) -> None:
    """Before KIP-734 they are times before every record."""
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        await client.call(produce(records(b"a", b"b")), 8)
        topic = ListOffsetsRequest.ListOffsetsTopic
        requested = [topic.ListOffsetsPartition(partition_index=0, timestamp=-3)]
        found = await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=requested)]), 4)
    assert (only(found).error_code, only(found).offset) == response


def commit(group: str, topic: str) -> OffsetCommitRequest:
    requested = OffsetCommitRequest.OffsetCommitRequestTopic
    one = requested.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[requested(name=topic, partitions=[one])])


@pytest.mark.parametrize(("release", "left"), [("2.8", 69), ("3.9", 69), ("4.3", 0)])
async def test_group_without_offsets_after_offset_delete(tmp_path: Path, release: str, left: int) -> None:
    """Up to 3.9 the group is removed at once; by KIP-848's coordinator at the next check, unless requested before."""
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        requested = [topic(name="t", partitions=[topic.OffsetDeleteRequestPartition(partition_index=0)])]
        for group, delete in (
            ("g", OffsetDeleteRequest(group_id="g", topics=requested)),
            ("h", DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)),
        ):
            await client.call(commit(group, "t"), 2)
            await client.call(delete, 0 if group == "g" else 5)
            await client.call(commit(group, "nope"), 2)
            (found,) = (await client.call(DeleteGroupsRequest(groups_names=[group]), 2)).results
            assert found.error_code == left
        absent = await client.call(OffsetDeleteRequest(group_id="x", topics=requested), 0)
        assert (absent.error_code, absent.topics) == (69, [])


@pytest.mark.parametrize(("release", "code"), [("2.8", 0), ("3.9", 35), ("ottla", 0)])
async def test_version_0_of_offset_apis(tmp_path: Path, release: str, code: int) -> None:
    """Brokers with ZooKeeper store them there; brokers with KRaft cannot."""
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        (committed,) = (await client.call(commit("g", "t"), 0)).topics
        long = commit("h", "t")
        long.topics[0].partitions[0].committed_metadata = "x" * 5000
        (refused,) = (await client.call(long, 0)).topics
        assert refused.partitions[0].error_code == (code or 12)
        assert (broker.state.groups.describe("h")[1] is None) == bool(code)
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        (fetched,) = (await client.call(OffsetFetchRequest(group_id="g", topics=[topic]), 0)).topics
    assert [one.partitions[0].error_code for one in (committed, fetched)] == [code, code]


@pytest.mark.parametrize("release, epoch", [("2.8", 1), ("3.9", 0), ("4.3", 0)])
async def test_reassignment_to_the_same_replicas_bumps_the_epoch_in_zookeeper_releases(
    tmp_path: Path, release: str, epoch: int
) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic
        requested = topic.ReassignablePartition(partition_index=0, replicas=[1])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=30000, topics=[topic(name="t", partitions=[requested])], allow_replication_factor_change=True
        )
        assert only(await client.call(request, 0)).error_code == 0
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        (found,) = (await client.call(request, 9)).topics
        assert [one.leader_epoch for one in found.partitions] == [epoch, 0]


@pytest.mark.parametrize("release, version, code", [("2.8", 8, 22), ("3.9", 9, 22), ("4.3", 8, 22), ("4.3", 9, 69)])
async def test_commit_to_an_unknown_group(tmp_path: Path, release: str, version: int, code: int) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        request = OffsetCommitRequest(
            group_id="none",
            generation_id_or_member_epoch=0,
            member_id="m",
            topics=[topic(name="t", partitions=[requested])],
        )
        assert only(await client.call(request, version)).error_code == code


@pytest.mark.parametrize("release, listed", [("3.9", []), ("4.3", [("t", []), ("absent", [])])])
async def test_topic_without_requested_partitions(tmp_path: Path, release: str, listed: list[Any]) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await with_topics(broker)
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topics = [group.OffsetFetchRequestTopics(name=name, partition_indexes=[]) for name in ("t", "absent")]
        (response,) = (await client.call(OffsetFetchRequest(groups=[group(group_id="none", topics=topics)]), 8)).groups
        assert [(topic.name, topic.partitions) for topic in response.topics] == listed


@pytest.mark.parametrize("release, reported", [("2.8", "false"), ("3.9", "FALSE"), ("4.3", "FALSE")])
async def test_create_topics_returns_configs_as_given(tmp_path: Path, release: str, reported: str) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        name = "unclean.leader.election.enable"
        given = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value="FALSE")
        request = CreateTopicsRequest(topics=[new_topic("n", configs=[given])], timeout_ms=1000, validate_only=False)
        (made,) = (await client.call(request, 7)).topics
        assert {entry.name: entry.value for entry in made.configs}[name] == reported


@pytest.mark.parametrize("release, response", [("3.9", (-1, 44)), ("4.3", (1, 0))])
async def test_delete_records_without_cleanup_policy(tmp_path: Path, release: str, response: tuple[int, int]) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", configs={"cleanup.policy": ""})
        await broker.topic("compacted", configs={"cleanup.policy": "compact"})
        client = await broker.client()
        await client.call(produce(records(b"v")), 9)
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        requested = [
            topic(name=name, partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=offset)])
            for name, offset in (("t", 1), ("compacted", 0))
        ]
        found = (await client.call(DeleteRecordsRequest(topics=requested, timeout_ms=1000), 2)).topics
        assert [(one.partitions[0].low_watermark, one.partitions[0].error_code) for one in found] == [
            response,
            (-1, 44),
        ]


@pytest.mark.parametrize("release, value", [("2.8", "delete,compact,delete"), ("3.9", "delete,compact")])
async def test_append_of_an_existing_list_element(tmp_path: Path, release: str, value: str) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", configs={"cleanup.policy": "delete"})
        client = await broker.client()
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="cleanup.policy", config_operation=2, value="compact,delete")
        requested = resource(resource_type=2, resource_name="t", configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[requested], validate_only=False)
        (response,) = (await client.call(request, 0)).responses
        assert response.error_code == 0
        assert broker.state.topics.named("t").config.overrides["cleanup.policy"] == value


@pytest.mark.parametrize("release, code", [("2.8", 19), ("3.6", 19), ("3.7", 0), ("4.3", 0)])
async def test_min_insync_replicas_above_the_replication_factor(tmp_path: Path, release: str, code: int) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", configs={"min.insync.replicas": "2"})
        client = await broker.client()
        assert only(await client.call(produce(records(b"v")), 3)).error_code == code
        assert only(await client.call(produce(records(b"v"), acks=1), 3)).error_code == 0
