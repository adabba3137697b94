"""Data after a restart, a kill, and in several data directories."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.serve_options import StartupError
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_records.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch
from ottla_testing.broker.harness import (
    Client,
    create_topics,
    fetch,
    new_topic,
    only,
    process,
    produce,
    records,
    running,
    values,
)


async def set_config(client: Client, kind: int, name: str, key: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=key, config_operation=0, value=value)
    requested = resource(resource_type=kind, resource_name=name, configs=[config])
    response = await client.call(IncrementalAlterConfigsRequest(resources=[requested], validate_only=False), 1)
    assert response.responses[0].error_code == 0


async def producer_ids(client: Client, count: int) -> list[int]:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    return [(await client.call(request, 4)).producer_id for _ in range(count)]


@pytest.mark.process
async def test_acknowledged_records_survive_kills(tmp_path: Path) -> None:
    """Topics, configs, growth, deletions, log start offsets, records; and no producer id is allocated twice."""
    given: list[int] = []
    alive: dict[str, bytes] = {}
    for life in range(3):
        with process(tmp_path) as broker:
            client = await Client.connect(broker.ports[0])
            found = (await client.call(MetadataRequest(topics=None), 12)).topics
            assert {topic.name: topic.topic_id for topic in found} == alive, life
            for name in alive:
                topic = next(topic for topic in found if topic.name == name)
                assert len(topic.partitions) == 3
                response = only(await client.call(fetch((name, 2, 1)), 11))
                assert (response.log_start_offset, values(response.records)) == (1, [b"a", b"b", b"c"])
                refused = only(await client.call(produce(records(b"v" * 5000), name), 9))
                assert refused.error_code == 10  # max.message.bytes
                large = only(await client.call(produce(records(b"v" * 900), "__other"), 9))
                assert large.error_code == 3
            given += await producer_ids(client, 3 if life else 1001)
            for name in (f"kept{life}", f"gone{life}"):
                (made,) = (await client.call(create_topics(name), 7)).topics
                assert made.error_code == 0
                alive[name] = made.topic_id
            await set_config(client, 2, f"kept{life}", "max.message.bytes", "4000")
            grow = CreatePartitionsRequest.CreatePartitionsTopic(name=f"kept{life}", count=3, assignments=None)
            request = CreatePartitionsRequest(topics=[grow], timeout_ms=1, validate_only=False)
            assert (await client.call(request, 1)).results[0].error_code == 0
            data = records(b"a", b"b", b"c")
            assert only(await client.call(produce(data, f"kept{life}", 2), 9)).error_code == 0
            topic = DeleteRecordsRequest.DeleteRecordsTopic
            requested = topic(
                name=f"kept{life}", partitions=[topic.DeleteRecordsPartition(partition_index=2, offset=1)]
            )
            gone = only(await client.call(DeleteRecordsRequest(topics=[requested], timeout_ms=1), 1))
            assert gone.error_code == 0
            request = DeleteTopicsRequest(topic_names=[f"gone{life}"], timeout_ms=1)
            assert (await client.call(request, 4)).responses[0].error_code == 0
            del alive[f"gone{life}"]
            client.close()
            broker.process.kill()
            broker.process.wait()
            assert "Traceback" not in broker.error
    assert len(set(given)) == len(given) == 1007
    assert all(path.name.endswith("-delete") for path in (tmp_path / "data").glob("gone*"))


async def test_restart_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(folder) as broker:
        client = await broker.client()
        ids = {name: await broker.topic(name, 2, {"retention.ms": "77"}) for name in ("a", "b")}
        await set_config(client, 4, "", "message.max.bytes", "2000")
        await set_config(client, 4, "1", "log.segment.bytes", "3000000")
        await client.call(produce(records(b"v"), "b", 1), 9)
        cluster_id = broker.state.cluster_id
    assert (folder / ".kafka_cleanshutdown").exists()
    for _ in range(2):
        async with running(folder) as broker:
            assert not (folder / ".kafka_cleanshutdown").exists()
            topics = broker.state.topics
            assert {topic.name: topic.id for topic in topics} == ids
            assert broker.state.cluster_id == cluster_id
            assert topics.named("a").config.overrides == {"retention.ms": "77"}
            assert broker.log("a").config.rules.max_message_bytes == 2000
            assert broker.log("a").config.segment_bytes == 3_000_000
            response = only(await (await broker.client()).call(fetch(("b", 1, 0)), 11))
            assert values(response.records) == [b"v"]


async def test_partitions_are_placed_in_all_directories(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]

    def held() -> list[set[str]]:
        names = [{path.name for path in folder.glob("*-[0-9]*")} - {"__cluster_metadata-0"} for folder in folders]
        return names

    async with running(*folders) as broker:
        await broker.topic("t", 6)
        for partition in range(6):
            broker.log("t", partition).append(records(b"%d" % partition), now_ms=broker.clock.now_ms())
    before = held()
    assert [len(names) for names in before] == [2, 2, 2]
    # In another order, and one moved by hand: folders are found in their directory.
    moved = next(iter(before[0]))
    shutil.move(folders[0] / moved, folders[1] / moved)
    async with running(*reversed(folders)) as broker:
        client = await broker.client()
        for partition in range(6):
            response = only(await client.call(fetch(("t", partition, 0)), 11))
            assert values(response.records) == [b"%d" % partition]
    assert held() == [before[0] - {moved}, before[1] | {moved}, before[2]]


async def test_missing_directory_refuses_the_start(tmp_path: Path) -> None:
    """Its partitions must not be created in another one, empty."""
    folders = [tmp_path / "one", tmp_path / "two"]
    async with running(*folders) as broker:
        await broker.topic("t", 2)
    with pytest.raises(StartupError, match=r"t-[01] is in a data directory that is not configured"):
        async with running(folders[0]):
            pass
    async with running(*folders) as broker:
        assert len(broker.state.topics.named("t").partitions) == 2
    assert not list(tmp_path.glob("*/*-stray"))


@pytest.mark.process
async def test_groups_of_an_unreadable_log_are_refused_and_others_served(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
        partition_of = broker.state.groups.partition_of
        broken = partition_of("broken")
        sound = next(name for name in map(str, range(100)) if partition_of(name) != broken)
        garbage = batch.Record(0, broker.clock.now_ms(), b"\x00", b"")
        broker.log(GROUP_OFFSETS_TOPIC, broken).append_records([garbage], now_ms=broker.clock.now_ms())
    with process(tmp_path) as started:
        client = await Client.connect(started.ports[0])
        codes = {}
        for group in ("broken", sound):
            request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
            codes[group] = (await client.call(request, 3)).error_code
        client.close()
        assert codes == {"broken": ErrorCode.COORDINATOR_NOT_AVAILABLE, sound: ErrorCode.UNKNOWN_MEMBER_ID}
    logged = (tmp_path / "stderr.txt").read_text()
    assert "groups not readable" in logged and f"partition={broken}" in logged


async def test_folders_of_unknown_topics_are_put_aside(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(folder) as broker:
        await broker.topic("t", 2)
        for partition in range(2):
            broker.log("t", partition).append(records(b"%d" % partition), now_ms=broker.clock.now_ms())
    shutil.copytree(folder / "t-0", folder / "stranger-0")
    shutil.copytree(folder / "t-0", folder / "t-7")
    metadata = folder / "t-1" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAB9w")
    (folder / "not a partition").mkdir()
    async with running(folder) as broker:
        client = await broker.client()
        assert {topic.name for topic in broker.state.topics} == {"t"}
        assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"0"]
        response = only(await client.call(fetch(("t", 1, 0)), 11))
        assert (response.error_code, response.high_watermark) == (0, 0)  # its folder was another topic's
    strays = sorted(path.name.split(".")[0] for path in folder.glob("*-stray"))
    assert strays == ["stranger-0", "t-1", "t-7"]
    assert (folder / "not a partition").exists()
    for path in folder.glob("*-stray"):
        assert (path / f"{0:020d}.log").stat().st_size > 0


async def test_second_folder_of_a_partition_is_put_aside(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    async with running(*folders) as broker:
        await broker.topic("t", 1)
        broker.log("t").append(records(b"v"), now_ms=broker.clock.now_ms())
    (first,) = tmp_path.glob("*/t-0")
    copy = next(folder for folder in folders if folder != first.parent) / "t-0"
    shutil.copytree(first, copy)
    for _ in range(2):
        async with running(*folders) as broker:
            client = await broker.client()
            assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"v"]
    assert len(list(tmp_path.glob("*/t-0"))) == len(list(tmp_path.glob("*/t-0.*-stray"))) == 1


async def test_crash_between_metadata_record_and_folder(tmp_path: Path) -> None:
    """The topic exists; the next start creates its folder."""
    folder = tmp_path / "data"
    async with running(folder) as broker:
        topic_id = await broker.topic("t", 2)
    shutil.rmtree(folder / "t-1")
    async with running(folder) as broker:
        client = await broker.client()
        assert only(await client.call(produce(records(b"v"), partition=1), 9)).error_code == 0
        assert broker.state.topics.named("t").id == topic_id


@pytest.mark.process
async def test_torn_tail_is_truncated(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        await client.call(create_topics("t"), 4)
        for number in range(3):
            await client.call(produce(records(b"%d" % number)), 9)
        client.close()
        broker.process.kill()
        broker.process.wait()
    with (folder / "t-0" / f"{0:020d}.log").open("ab") as log:
        log.write(bytes(records(b"torn"))[:-3])
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"0", b"1", b"2"]
        assert only(await client.call(produce(records(b"3")), 9)).base_offset == 3
        client.close()
        assert broker.end() == 0
        assert "a torn tail was cut" in broker.error


async def test_metadata_of_another_version_is_refused(tmp_path: Path) -> None:
    """Unknown configs are kept without effect; records that contradict each other refuse the start."""
    folder = tmp_path / "data"
    async with running(folder) as broker:
        topic_id = await broker.topic("t")
        log = broker.state.metadata_log
        log.append([ConfigRecord(resource_type=2, resource_name="t", name="new.config", value="1")], 0)
        log.append([ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="9")], 0)
        log.append([ConfigRecord(resource_type=4, resource_name="", name="new.config", value="1")], 0)
        log.append([ConfigRecord(resource_type=32, resource_name="g", name="x", value="1")], 0)
    async with running(folder) as broker:
        assert broker.state.topics.named("t").config.overrides == {"retention.ms": "9"}
        assert broker.state.topics.named("t").id == topic_id
        broker.state.metadata_log.append(
            [PartitionRecord(topic_id=b"n" * 16, replicas=[1], isr=[1], removing_replicas=[], adding_replicas=[])], 0
        )
    with pytest.raises(StartupError, match="__cluster_metadata-0: partition of unknown topic"):
        async with running(folder):
            pass


@pytest.mark.parametrize("damage", ["value", "frame"])
async def test_unreadable_metadata_record_refuses_the_start(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with running(folder) as broker:
        log = broker.state.metadata_log._log
        value = {"value": b"\x01\x02\x00\x7f", "frame": b"\x07\x02\x00"}[damage]
        from ottla.protocol.records import batch

        log.append_records([batch.Record(0, 0, None, value, ())], now_ms=0)
    with pytest.raises(StartupError, match="__cluster_metadata-0"):
        async with running(folder):
            pass


async def test_failed_create_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third partition cannot be opened: neither topic nor folders remain, also after a restart."""
    folder = tmp_path / "data"
    async with running(folder) as broker:
        client = await broker.client()
        data = broker.state.logs.directories[0]
        original = data.open_partition

        def failing(topic: str, partition: int, **more: Any) -> Any:
            from ottla.storage.errors import StorageError

            if partition == 2:
                (folder / "t-2").mkdir()
                raise StorageError("no space left")
            return original(topic, partition, **more)

        monkeypatch.setattr(data, "open_partition", failing)
        (response,) = (await client.call(type(create_topics())(topics=[new_topic("t", 4)]), 7)).topics
        assert response.error_code == 56
        monkeypatch.undo()
        assert len(broker.state.topics) == 0 and not list(folder.glob("t-*"))
        (response,) = (await client.call(create_topics("t", partitions=4), 7)).topics
        assert response.error_code == 0
    async with running(folder) as broker:
        assert len(broker.state.topics.named("t").partitions) == 4
    assert not list(folder.glob("*-stray"))


async def test_checkpoint_is_written_again_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    async with running(folder) as broker:
        await broker.topic("t")
        broker.log("t").append(records(b"v"), now_ms=broker.clock.now_ms())
        broker.log("t").flush()
        from ottla.storage.errors import StorageError
        from ottla.storage.format import checkpoint

        def failing(*args: Any) -> None:
            raise StorageError("no space left")

        monkeypatch.setattr(checkpoint, "write_offsets", failing)
        broker.clock.advance(60_000)
        await broker.state.durability.idle()
        monkeypatch.undo()
        point = folder / "recovery-point-offset-checkpoint"
        assert not point.exists() or "t 0 1" not in point.read_text()
        broker.clock.advance(60_000)
        await broker.state.durability.idle()
        assert "t 0 1" in point.read_text()


def test_metadata_records_of_a_topic_are_replayed() -> None:
    """A topic that is created again has nothing of its predecessor."""
    from types import SimpleNamespace

    from ottla.broker.config.values import Config
    from ottla.broker.metadata.nodes import Nodes
    from ottla.broker.metadata.topics import Topics
    from ottla.protocol.internal_records.metadata_records import RemoveTopicRecord

    first, second = b"1" * 16, b"2" * 16
    partition = {"replicas": [1], "isr": [1], "removing_replicas": [], "adding_replicas": []}
    found = Topics(None, SimpleNamespace(end_offset=0), Config(), Nodes(1), lambda: b"", None).replay(  # type: ignore[arg-type]
        [
            TopicRecord(name="t", topic_id=first),
            ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="9"),
            PartitionRecord(topic_id=first, partition_id=0, **partition),
            PartitionRecord(topic_id=first, partition_id=1, **partition),
            RemoveTopicRecord(topic_id=first),
            RemoveTopicRecord(topic_id=b"9" * 16),
            TopicRecord(name="t", topic_id=second),
            PartitionRecord(topic_id=second, partition_id=0, directories=[b"d" * 16], **partition),
        ]
    )
    assert [(topic.id, index, at, topic.config.overrides) for topic, index, at in found] == [(second, 0, b"d" * 16, {})]
