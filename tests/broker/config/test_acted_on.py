"""Configs with a single effect, as seen by a client or in a directory."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.network.listener import SocketSettings
from ottla.broker.releases.profiles import profile
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.configuring import SET, TOPIC, change, shown
from ottla_testing.broker.harness import Broker, Client, create_topics, options, ping, produce, running

DAY_MS = 24 * 3600 * 1000


async def test_rack_of_every_node_is_reported(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"broker.rack": "r7"}, brokers=2) as broker:
        client = await broker.client()
        reported = await client.call(MetadataRequest(topics=[]), 9)
        assert [node.rack for node in reported.brokers] == ["r7", "r7"]
        described = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 1)
        assert [node.rack for node in described.brokers] == ["r7", "r7"]
    async with running(tmp_path, brokers=2) as broker:
        client = await broker.client()
        assert {node.rack for node in (await client.call(MetadataRequest(topics=[]), 9)).brokers} == {None}


async def test_transaction_log_has_its_min_insync_replicas(tmp_path: Path) -> None:
    overrides = {"transaction.state.log.min.isr": "3"}
    async with running(tmp_path, overrides=overrides, brokers=3) as broker:
        broker.state.internal_topic("__transaction_state", broker.clock.now_ms())
        configs = broker.state.topics.named("__transaction_state").config.overrides
        assert configs["min.insync.replicas"] == "3"
        assert configs["unclean.leader.election.enable"] == "false"


def commit(offset: int) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    return OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[partition])])


@pytest.mark.parametrize("codec", Codec)
async def test_committed_offsets_are_compressed(tmp_path: Path, codec: Codec) -> None:
    overrides = {"offsets.topic.compression.codec": str(int(codec))}
    async with running(tmp_path, overrides=overrides) as broker:
        client = await broker.client()
        await client.call(create_topics("t"), 5)
        (response,) = (await client.call(commit(5), 7)).topics
        assert response.partitions[0].error_code == 0
        log = broker.log("__consumer_offsets", broker.state.groups.partition_of("g"))
        kept = batch.read_header(log.read(0, 1 << 20).records)
        assert kept.attributes & 7 == codec
    async with running(tmp_path, overrides=overrides) as broker:
        client = await broker.client()
        (found,) = (await client.call(OffsetFetchRequest(group_id="g", topics=None), 5)).topics
        assert found.partitions[0].committed_offset == 5


async def test_metadata_log_rolls_segments_by_its_configs(tmp_path: Path) -> None:
    overrides = {"metadata.log.segment.ms": str(DAY_MS)}
    async with running(tmp_path, overrides=overrides) as broker:
        for number in range(4):
            await broker.topic(f"t{number}")
            broker.clock.leap(DAY_MS + 1)
        await broker.topic("last")
    assert len(list((tmp_path / "__cluster_metadata-0").glob("*.log"))) > 3
    async with running(tmp_path, overrides=overrides) as broker:
        assert {topic.name for topic in broker.state.topics} == {"t0", "t1", "t2", "t3", "last"}


async def test_internal_segment_bytes_override_the_smallest_segments_of_a_topic_and_the_metadata_log(
    tmp_path: Path,
) -> None:
    """As in Kafka since 4.1: segment.bytes is at least 1 MiB, and the internal config has no minimum."""
    overrides = {"internal.metadata.log.segment.bytes": "300"}
    async with running(tmp_path, overrides=overrides, release="4.3") as broker:
        configs = {"segment.bytes": "1048576", "internal.segment.bytes": "100"}
        await broker.topic("t", 1, configs)
        client = await broker.client()
        for _ in range(3):
            await client.call(produce(batch.build([batch.Record(0, 0, b"k", b"v")])), 9)
        assert len(list((tmp_path / "t-0").glob("*.log"))) == 3
        assert len(list((tmp_path / "__cluster_metadata-0").glob("*.log"))) > 1
        assert (await shown(client, TOPIC, "t", "internal.segment.bytes"))["internal.segment.bytes"] == ("100", 1)
    async with running(tmp_path, release="4.3") as broker:
        assert broker.log("t").config.segment_bytes == 100


@pytest.mark.parametrize("release", ["3.9", "4.0"])
async def test_internal_segment_bytes_are_unknown_before_4_1(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        (made,) = (await client.call(create_topics("t"), 5)).topics
        assert made.error_code == 0
        refused = (40, "Unknown topic config name: internal.segment.bytes")
        assert await change(client, TOPIC, "t", ("internal.segment.bytes", SET, "100")) == refused


async def test_sockets_have_the_configured_buffers(tmp_path: Path) -> None:
    overrides = {"socket.send.buffer.bytes": "30000", "socket.receive.buffer.bytes": "20000"}

    def sizes(broker: Broker) -> list[tuple[int, int]]:
        (accepted,) = broker.running.connections.open
        sockets = [*broker.running.sockets, accepted._transport.get_extra_info("socket")]
        options = socket.SO_SNDBUF, socket.SO_RCVBUF
        return [tuple(sock.getsockopt(socket.SOL_SOCKET, option) for option in options) for sock in sockets]

    doubled = 2 if sys.platform == "linux" else 1  # where the system includes its own overhead
    async with running(tmp_path, overrides=overrides) as broker:
        await (await broker.client()).call(ping(), 0)
        assert sizes(broker) == [(30000 * doubled, 20000 * doubled)] * 2
    async with running(tmp_path) as broker:
        await (await broker.client()).call(ping(), 0)
        assert (30000 * doubled, 20000 * doubled) not in sizes(broker)


def test_listen_backlog_size() -> None:
    assert SocketSettings.from_config(Config()).backlog == SocketSettings().backlog
    assert SocketSettings.from_config(Config({"socket.listen.backlog.size": "7"})).backlog == 7
    assert SocketSettings.from_config(Config({"socket.send.buffer.bytes": "-1"})).send_bytes is None
    assert SocketSettings.from_config(Config(profile=profile("2.8"))).backlog == SocketSettings().backlog


async def cordon(client: Client, value: str) -> tuple[int, str | None]:
    """Returns the result of setting `cordoned.log.dirs` of the broker."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
    changed = resource(resource_type=4, resource_name="1", configs=[change])
    requested = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
    (response,) = (await client.call(requested, 1)).responses
    return response.error_code, response.error_message


async def test_cordoned_directories_receive_no_new_partitions(tmp_path: Path) -> None:
    """As in Kafka 4.3.1 with two directories, including error messages."""
    folders = [tmp_path / name for name in ("one", "two")]
    one, two = map(str, folders)
    async with running(*folders, release="4.3") as broker:
        client = await broker.client()
        await broker.topic("before", 4)
        at_home = {path.name for path in folders[1].glob("before-*")}
        assert at_home
        lacking = "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs or log.dir. "
        assert await cordon(client, f"{one},/x") == (42, lacking + "Missing entries : /x")
        alone = "requirement failed: When cordoned.log.dirs is set to *, it must not contain other values"
        assert await cordon(client, f"{one},*") == (42, alone)
        assert await cordon(client, two) == (0, None)
        await broker.topic("after", 4)
        assert len(list(folders[0].glob("after-*"))) == 4
        move = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        topics = [move.AlterReplicaLogDirTopic(name="after", partitions=[0])]
        reported = await client.call(AlterReplicaLogDirsRequest(dirs=[move(path=two, topics=topics)]), 2)
        assert reported.results[0].partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        described = (await client.call(DescribeLogDirsRequest(topics=None), 5)).results
        assert {found.log_dir: found.is_cordoned for found in described} == {one: False, two: True}
    async with running(*folders, release="4.3") as broker:  # it is stored
        client = await broker.client()
        await broker.topic("later", 4)
        assert len(list(folders[0].glob("later-*"))) == 4
        assert await cordon(client, "*") == (0, None)
        (refused,) = (await client.call(create_topics("none"), 7)).topics
        nowhere = "All brokers are currently fenced, or have all their log directories cordoned."
        assert (refused.error_code, refused.error_message) == (
            38,
            f"Unable to replicate the partition 1 time(s): {nowhere}",
        )
        requested = CreatePartitionsRequest.CreatePartitionsTopic(name="later", count=5, assignments=None)
        more = CreatePartitionsRequest(topics=[requested], timeout_ms=1000, validate_only=False)
        (refused,) = (await client.call(more, 3)).results
        assert (refused.error_code, refused.error_message) == (38, nowhere)
        assert await cordon(client, "") == (0, None)
        assert (await client.call(create_topics("none"), 7)).topics[0].error_code == 0


async def test_cordoned_directories_need_a_level_of_metadata_version(tmp_path: Path) -> None:
    """As in CordonedLogDirsIntegrationTest of Kafka 4.3.1: a static config has an effect from the level on."""
    configs = {"ottla.features": "metadata.version=29", "cordoned.log.dirs": "*"}
    async with running(tmp_path / "one", tmp_path / "two", release="4.3", overrides=configs) as broker:
        client = await broker.client()
        text = "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
        assert await cordon(client, "") == (40, text)
        assert (await client.call(create_topics("before"), 7)).topics[0].error_code == 0
        described = (await client.call(DescribeLogDirsRequest(topics=None), 5)).results
        assert not any(found.is_cordoned for found in described)
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="metadata.version", max_version_level=30, upgrade_type=1
        )
        raised = await client.call(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=1000), 1)
        assert raised.error_code == 0
        assert (await client.call(create_topics("after"), 7)).topics[0].error_code == 38
        assert await cordon(client, "") == (0, None)
        assert (await client.call(create_topics("after"), 7)).topics[0].error_code == 0


def test_unknown_cordoned_directory_is_refused_at_startup(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Missing entries : /x"):
        options([tmp_path], {"cordoned.log.dirs": "/x"})
