"""The admin client against many releases: topics, configs, logs and the cluster; what each release has, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client import Admin
from ottla.client.admin.admin import (
    EARLIEST,
    HIGH_WATERMARK,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewPartitions,
    NewTopic,
    ResourceType,
    checked,
)
from ottla.client.net.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    ConnectionLost,
    KafkaError,
    UnsupportedVersion,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import ZERO_UUID
from ottla_testing.broker.harness import produce, records, running
from ottla_testing.client.administering import RELEASES, administering, code, codes, since, unsupported
from ottla_testing.client.reading import NOW_MS, write
from ottla_testing.each import each

T = ConfigResource.topic("t")


# Topics


@each("release", RELEASES, strided=True)
async def test_topics_are_created_listed_described_and_deleted(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        made = await admin.create_topics(
            [
                NewTopic("t", 2, 1, configs={"retention.ms": "1000"}),
                NewTopic("bad", 1, 1, configs={"retention.ms": "x"}),
            ]
        )
        if release == "0.9":
            assert unsupported(made) and unsupported(await admin.delete_topics(["t"]))
            await broker.topic("t", 2)
        else:
            assert codes(made) == [0, ErrorCode.INVALID_CONFIG] and not code(made["t"])
            assert codes(await admin.create_topics([NewTopic("t", 1, 1)])) == [ErrorCode.TOPIC_ALREADY_EXISTS]
            created = checked({"t": made["t"]})["t"]
            returns_more = since(release, "2.4")
            assert (created.partition_count, created.replication_factor) == ((2, 1) if returns_more else (-1, -1))
            assert (created.configs or {}).get("retention.ms") == ("1000" if returns_more else None)
            assert (created.id != ZERO_UUID) == since(release, "2.8")
        listed = await admin.list_topics()
        described = await admin.describe_topics(["t", "absent", "t"])
        assert list(listed) == ["t"] and not listed["t"].is_internal
        assert list(described) == ["t", "absent"]
        assert code(described["absent"]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = checked({"t": described["t"]})["t"]
        assert topic.id == listed["t"].id and (topic.id != ZERO_UUID) == since(release, "2.8")
        epoch = 0 if since(release, "2.4") else -1
        assert topic.partitions == tuple((n, 1, epoch, (1,), (1,), ()) for n in (0, 1))
        if release != "0.9":
            gone = await admin.delete_topics(["t", "absent"])
            assert list(gone) == ["t", "absent"] and codes(gone) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        # describe_topics has not created "absent". "t" is left in 0.9, which cannot delete topics.
        assert list(await admin.list_topics()) == (["t"] if release == "0.9" else [])


@each("release", RELEASES, strided=True)
async def test_topics_are_created_with_the_brokers_defaults_and_with_assignments(release: str, tmp_path: Path) -> None:
    async with (
        running(tmp_path, release=release, overrides={"num.partitions": "3"}) as broker,
        administering(broker) as admin,
    ):
        made = await admin.create_topics(["d", NewTopic("a", assignments={0: [1], 1: [1]})])
        only = await admin.create_topics([NewTopic("v", 1, 1)], validate_only=True)
        if release == "0.9":
            assert unsupported(made) and unsupported(only)
            return
        assert isinstance(made["d"], UnsupportedVersion) == (not since(release, "2.4"))
        described = checked(await admin.describe_topics(await admin.list_topics()))
        assert {name: len(topic.partitions) for name, topic in described.items()} == (
            {"a": 2, "d": 3} if since(release, "2.4") else {"a": 2}
        )
        assert codes(only) == [0] and "v" not in described


@each("release", RELEASES, strided=True)
async def test_create_partitions_raises_the_partition_count(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        for name in "tuv":
            await broker.topic(name, 2)
        tried = await admin.create_partitions({"v": 9}, validate_only=True)
        more = await admin.create_partitions({"t": 3, "u": NewPartitions(3, [[1]]), "v": 1, "absent": 4})
        if not since(release, "1.0"):
            assert unsupported(tried) and unsupported(more)
            return
        assert codes(tried) == [0]
        assert codes(more) == [0, 0, ErrorCode.INVALID_PARTITIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        described = checked(await admin.describe_topics("tuv"))
        assert [len(topic.partitions) for topic in described.values()] == [3, 3, 2]


async def test_list_topics_has_internal_topics_only_if_requested(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, administering(broker) as admin:
        await broker.topic("t")
        await admin.alter_group_offsets("g", {("t", 0): 1})
        assert list(await admin.list_topics()) == ["t"]
        everything = await admin.list_topics(include_internal=True)
        assert [(topic.name, topic.is_internal) for topic in everything.values()] == [
            ("__consumer_offsets", True),
            ("t", False),
        ]


@each("release", RELEASES, strided=True)
async def test_describe_cluster_returns_nodes_and_controller(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        result = await admin.describe_cluster()
        (node,) = result.nodes
        assert node[:3] == (1, "127.0.0.1", broker.ports[0])
        assert result.controller == (None if release == "0.9" else node)
        assert result.cluster_id == (None if release == "0.9" else broker.state.cluster_id)


# Configs


@each("release", RELEASES, strided=True)
async def test_alter_configs_changes_only_the_given_configs(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic(
            "t", configs={"segment.bytes": "2097152", "retention.ms": "1000"} if release != "0.9" else {}
        )
        absent = ConfigResource.topic("absent")
        described = await admin.describe_configs([T, absent, ConfigResource.broker(1)])
        changed = await admin.alter_configs(
            {T: {"cleanup.policy": "compact", "retention.ms": None}, absent: {"retention.ms": "1"}}
        )
        if not since(release, "0.11"):
            assert unsupported(described) and unsupported(changed)
            return
        assert codes(described) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert codes(changed) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        entries = checked(await admin.describe_configs([T]))[T]
        mine = {name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC}
        assert mine == {"segment.bytes": "2097152", "cleanup.policy": "compact"}
        assert entries["retention.ms"].source == ConfigSource.DEFAULT
        assert entries["retention.ms"].type == (ConfigType.LONG if since(release, "2.6") else ConfigType.UNKNOWN)
        grown = ConfigChange(ConfigOperation.APPEND, "delete")
        assert codes(await admin.alter_configs({T: {"cleanup.policy": grown}})) == [0]
        assert await one_config(admin, T, "cleanup.policy") == "compact,delete"
        less = ConfigChange(ConfigOperation.SUBTRACT, "compact")
        assert codes(await admin.alter_configs({T: {"cleanup.policy": less}}, validate_only=True)) == [0]
        assert await one_config(admin, T, "cleanup.policy") == "compact,delete"
        assert codes(await admin.alter_configs({T: {"cleanup.policy": less}})) == [0]
        assert await one_config(admin, T, "cleanup.policy") == "delete"
        wrong = await admin.alter_configs({T: {"cleanup.policy": "perhaps"}})
        assert codes(wrong)[0] in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
        assert broker.state.topics.named("t").config.overrides == {
            "segment.bytes": "2097152",
            "cleanup.policy": "delete",
        }


async def one_config(admin: Admin, resource: ConfigResource, name: str) -> str | None:
    found = checked(await admin.describe_configs([resource], names=[name]))[resource]
    assert list(found) == [name]
    return found[name].value


@each("release", ["1.1", "2.4", "4.3", "ottla"], strided=True)
async def test_configs_of_one_broker_and_of_all_brokers(release: str, tmp_path: Path) -> None:
    one, every = ConfigResource.broker(1), ConfigResource.broker()
    name = "log.cleaner.threads"
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        assert codes(await admin.alter_configs({one: {name: "2"}, every: {"log.cleaner.backoff.ms": "7"}})) == [0, 0]
        assert codes(await admin.alter_configs({one: {"message.max.bytes": "100000"}})) == [0]
        found = checked(await admin.describe_configs([one], include_synonyms=True))[one]
        assert (found[name].value, found[name].source) == ("2", ConfigSource.DYNAMIC_BROKER)
        assert [(s.value, s.source) for s in found[name].synonyms] == [
            ("2", ConfigSource.DYNAMIC_BROKER),
            ("1", ConfigSource.DEFAULT),
        ]
        assert found["message.max.bytes"].value == "100000"
        assert found["log.dirs"].is_read_only and found["log.dirs"].source == ConfigSource.STATIC_BROKER
        of_all = set(checked(await admin.describe_configs([every]))[every])
        # With eligible leader replicas (KIP-966) min.insync.replicas is always set cluster-wide.
        assert of_all - {"min.insync.replicas"} == {"log.cleaner.backoff.ms"}
        lost = await admin.describe_configs([ConfigResource.broker(9)], timeout_s=0.05)
        assert isinstance(lost[ConfigResource.broker(9)], ConnectionLost)


async def test_codes_unknown_to_the_client_become_unknown_members() -> None:
    assert (ResourceType(99), ConfigSource(99), ConfigType(99)) == (0, 0, 0)


# Logs


@each("release", RELEASES, strided=True)
async def test_list_offsets_returns_offsets_by_timestamp(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        write(broker, b"a", b"b", b"c")
        ends = {("t", 0): LATEST, ("t", 1): EARLIEST}
        assert {where: result.offset for where, result in checked(await admin.list_offsets(ends)).items()} == {
            ("t", 0): 3,
            ("t", 1): 0,
        }
        by_time = await admin.list_offsets({("t", 0): NOW_MS + 1, ("t", 1): NOW_MS}, isolation="read_committed")
        newest = await admin.list_offsets({("t", 0): MAX_TIMESTAMP})
        if not since(release, "0.10.2"):
            assert unsupported(by_time)
        else:
            assert [result[:2] for result in checked(by_time).values()] == [(1, NOW_MS + 1), (-1, -1)]
        if not since(release, "3.0"):
            assert unsupported(newest)
        else:
            assert [result[:2] for result in checked(newest).values()] == [(2, NOW_MS + 2)]
        assert unsupported(await admin.list_offsets({("t", 0): LATEST_TIERED})) == (not since(release, "3.9"))
        with pytest.raises(ConfigError, match="isolation"):
            await admin.list_offsets({}, isolation="none")  # type: ignore[arg-type]


async def test_missing_partitions_are_retried_until_the_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, administering(broker) as admin:
        await broker.topic("t")
        wanted = {("t", 0): LATEST, ("t", 5): LATEST, ("late", 0): EARLIEST}
        found = await admin.list_offsets(wanted, timeout_s=0.05)
        assert codes(found) == [0, 3, 3] and list(found) == list(wanted)
        with pytest.raises(KafkaError, match="t-5"):
            checked(found)
        assert "late" not in await admin.list_topics()


@each("release", RELEASES, strided=True)
async def test_delete_records_moves_the_log_start(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 3)
        for partition in range(3):
            write(broker, b"a", b"b", b"c", partition=partition)
        deleted = await admin.delete_records({("t", 0): 2, ("t", 1): HIGH_WATERMARK, ("t", 2): 4})
        if not since(release, "0.11"):
            assert unsupported(deleted)
            return
        assert (deleted["t", 0], deleted["t", 1], code(deleted["t", 2])) == (2, 3, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert [broker.log("t", n).log_start_offset for n in range(3)] == [2, 3, 0]


@each("release", RELEASES, strided=True)
async def test_describe_producers_returns_producer_states(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        if since(release, "2.8"):
            client = await broker.client()
            for producer_id in (9, 4):
                data = records(b"a", b"b", producer_id=producer_id, producer_epoch=3, base_sequence=0, timestamp=NOW_MS)
                await client.call(produce(data), 8)
            found = await admin.describe_producers([("t", 1), ("t", 0)])
            assert found == {
                ("t", 1): (),
                ("t", 0): ((4, 3, 1, -1, -1, NOW_MS), (9, 3, 1, -1, -1, NOW_MS)),
            }
        else:
            assert unsupported(await admin.describe_producers([("t", 0), ("t", 1)]))


@each("release", RELEASES, strided=True)
async def test_describe_log_dirs_lists_directories_and_partitions(release: str, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    async with running(*folders, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        write(broker, b"a", b"b")
        result = await admin.describe_log_dirs()
        if not since(release, "1.0"):
            assert unsupported(result)
            return
        dirs = checked(result)[1]
        assert {each.path for each in dirs} == {str(folder) for folder in folders}
        partitions = {where: facts for each in dirs for where, facts in each.partitions.items()}
        assert {where: facts.size_bytes for where, facts in partitions.items()} == {
            ("t", 0): broker.log("t").size_bytes,
            ("t", 1): 0,
        }
        assert all(each.error is None and (each.usable_bytes > 0) == since(release, "3.8") for each in dirs)
        assert list(await admin.describe_log_dirs([1])) == [1]


# Life


async def test_admin_takes_kafkas_option_names_and_starts_only_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        address = f"127.0.0.1:{broker.ports[0]}"
        admin = Admin.from_config({"bootstrap.servers": address, "default.api.timeout.ms": "4000"})
        assert (admin.options.bootstrap, admin.options.default_api_timeout_ms) == (address, 4000)
        with pytest.raises(ClientClosed):
            await admin.list_topics()
        await admin.start()
        with pytest.raises(ClientError, match="started only once"):
            await admin.start()
        assert await admin.list_topics() == {}
        await admin.stop()
        await admin.stop()
        for call in (admin.list_topics(), admin.describe_topics(["t"]), admin.delete_groups(["g"])):
            with pytest.raises(ClientClosed):
                await call
        with pytest.raises(ConfigError, match=r"did you mean client\.id"):
            Admin(client_ids="x")


async def test_empty_requests_return_empty_results(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, administering(broker) as admin:
        assert await admin.create_topics([]) == {} and await admin.delete_topics([]) == {}
        assert await admin.describe_topics([]) == {} and await admin.list_offsets({}) == {}
        assert await admin.alter_configs({}) == {} and await admin.delete_groups([]) == {}


async def test_stopped_broker_raises_connection_lost(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, administering(broker) as admin:
        await broker.topic("t")
        await broker.running.stop()
        found = await admin.list_offsets({("t", 0): LATEST}, timeout_s=0.05)
        assert isinstance(found["t", 0], ConnectionLost)
        with pytest.raises(ConnectionLost):
            await admin.list_topics(timeout_s=0.05)
