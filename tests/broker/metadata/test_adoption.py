"""Adoption of a directory of Apache Kafka: once, crash-safe, or refused in one line."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.metadata.adopted_data import PRODUCER_IDS_SKIPPED
from ottla.broker.replica.log_dirs import DEFAULT_NODE_ID
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch, formats
from ottla.storage.errors import StorageError
from ottla.storage.format.partition_metadata import encode_id
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla.storage.producers.snapshot import dump
from ottla_testing.broker.adopting import (
    CHANGES,
    GOLDEN,
    ID,
    OTHER_ID,
    CountingFiles,
    begin,
    copy_golden,
    copy_in,
    finish,
    forget,
    kraft,
    names,
    next_id,
    refusal,
    topic_facts,
    write_file,
    write_topic_id,
)
from ottla_testing.broker.harness import Broker, fetch, only, produce, records, running, values
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles


async def all_values(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    client = await broker.client()
    response = only(await client.call(fetch((topic, partition, 0)), 11))
    assert response.error_code == 0
    return values(response.records)


# --- directories of a Kafka with ZooKeeper


async def test_a_directory_of_kafka_2_8(tmp_path: Path) -> None:
    copy_golden(tmp_path, "mixed", "v0-gzip", "v1-lz4", "v2-zstd", "transactions")
    seen = []
    for _ in range(2):
        async with running(tmp_path) as broker:
            assert (broker.state.node_id, broker.state.cluster_id) == (7, "sNpOuPz4TNa29sw2dnLt_w")
            seen.append(topic_facts(broker.state))
            found = await all_values(broker, "v2-zstd")
    assert seen[0] == seen[1] and sorted(seen[0]) == ["mixed", "transactions", "v0-gzip", "v1-lz4", "v2-zstd"]
    rows = json.loads((GOLDEN.parent / "topics.json").read_text())["v2-zstd"] if found else None
    assert rows is not None and len(found) == seen[0]["v2-zstd"][2][0][1] > 0
    ids = [id for id, _, _ in seen[0].values()]
    assert len(set(ids)) == 5 and bytes(16) not in ids
    assert not [name for name in names(tmp_path) if "stray" in name or "delete" in name]
    assert "node.id=7\n" in (tmp_path / "meta.properties").read_text()


async def test_a_directory_without_meta_properties(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v1-none")
    (tmp_path / "meta.properties").unlink()
    async with running(tmp_path) as broker:
        assert broker.state.node_id == DEFAULT_NODE_ID and len(broker.state.cluster_id) == 22
        assert await all_values(broker, "v1-none")


async def test_groups_keep_their_offsets(tmp_path: Path) -> None:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    place = topic.OffsetCommitRequestPartition(
        partition_index=1, committed_offset=2, committed_leader_epoch=0, committed_metadata="here"
    )
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        await client.call(produce(records(b"a", b"b", b"c"), partition=1), 8)
        requested = OffsetCommitRequest(group_id="g", topics=[topic(name="t", partitions=[place])])
        assert only(await client.call(requested, 5)).error_code == 0
    forget(tmp_path)
    async with running(tmp_path, overrides={"offsets.topic.num.partitions": "5"}) as broker:
        requested = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[1])]
        )
        response = only(await (await broker.client()).call(requested, 5))
        assert (response.committed_offset, response.metadata, response.error_code) == (2, "here", 0)
        offsets = broker.state.topics.named("__consumer_offsets")
        assert len(offsets.partitions) == 2  # the previous number: the partition of a group depends on it
        assert offsets.config.overrides["cleanup.policy"] == "compact"


async def test_topics_with_unknown_configs_have_no_retention(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v1-none", "v2-none")
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nv1-none 0 5\n")
    shutil.copytree(tmp_path, tmp_path / "again" / "data")
    async with running(tmp_path) as broker:
        found = {name: configs for name, (_, configs, _) in topic_facts(broker.state).items()}
        assert found == {"v1-none": {"cleanup.policy": "compact"}, "v2-none": {"retention.ms": "-1"}}
    async with running(tmp_path / "again" / "data", overrides={"log.retention.hours": "9"}) as broker:
        assert topic_facts(broker.state)["v2-none"][1] == {}
        assert broker.state.topics.named("v2-none").config["retention.ms"] == 9 * 3_600_000


async def test_several_directories_of_one_broker(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    copy_golden(first, "v1-none", "v2-none")
    copy_golden(second, "v1-gzip")
    (first / "v1-none-0").rename(second / "v2-none-1")
    for _ in range(2):
        async with running(first, second) as broker:
            assert [len(t.partitions) for t in broker.state.topics] == [1, 2]
            where = [log_dir.path for log_dir in broker.state.logs.directories for _ in log_dir.logs]
            assert where == [str(first)] * 2 + [str(second)] * 2
    assert (first / "__cluster_metadata-0").exists()


async def test_missing_directory_with_metadata_is_refused(tmp_path: Path) -> None:
    """Data in one of several Ottla directories is not of another Kafka: an adoption would start a second history."""
    first, second = tmp_path / "a", tmp_path / "b"
    async with running(first, second) as broker:
        await broker.topic("t", 2)
        where = broker.state.logs.directories[0].id
    line = await refusal(second)
    assert f"the metadata log of {second} is in another data directory" in line and encode_id(where) in line
    async with running(second, first) as broker:
        assert list(topic_facts(broker.state)) == ["t"]


async def test_missing_partitions_start_empty(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy_golden(tmp_path, "v2-none")
    (tmp_path / "v2-none-0").rename(tmp_path / "v2-none-3")
    async with running(tmp_path) as broker:
        ends = [end for _, end, _ in topic_facts(broker.state)["v2-none"][2]]
        assert ends[:3] == [0, 0, 0] and ends[3] > 0
        client = await broker.client()
        assert only(await client.call(produce(records(b"x"), "v2-none", 1), 8)).error_code == 0


async def test_topic_ids_and_leader_epochs_are_kept(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v2-none", "v2-gzip")
    write_topic_id(tmp_path / "v2-none-0", ID)
    (tmp_path / "v2-none-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n6 1\n")
    (tmp_path / ".kafka_cleanshutdown").touch()
    async with running(tmp_path) as broker:
        assert topic_facts(broker.state)["v2-none"][0] == ID
        client = await broker.client()
        response = await client.call(MetadataRequest(topics=None), 9)
        epochs = {t.name: [p.leader_epoch for p in t.partitions] for t in response.topics}
        assert epochs == {"v2-none": [6], "v2-gzip": [0]}
        await client.call(produce(records(b"x"), "v2-none"), 8)
        wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
        for epoch, code in ((5, 74), (6, 0), (7, 75), (-1, 0)):
            place = wanted(partition_index=0, current_leader_epoch=epoch, timestamp=-1)
            topic = ListOffsetsRequest.ListOffsetsTopic(name="v2-none", partitions=[place])
            found = only(await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5))
            assert (found.error_code, found.leader_epoch) == (code, -1 if code else 6)
    async with running(tmp_path) as broker:
        assert topic_facts(broker.state)["v2-none"][2][0][2] == 6


# --- producer ids


def snapshot_of(producer_id: int) -> bytes:
    return dump({producer_id: Producer(0, (CachedBatch(0, 0, 0, 0, 1),), 0, 1, -1, -1)})


async def test_producer_ids_are_not_reused(tmp_path: Path) -> None:
    """Ids in snapshots, in batches after them following a crash, and of idle transactional ids."""
    copy_golden(tmp_path / "none", "v1-none")
    assert await next_id(tmp_path / "none") == 0
    copy_golden(tmp_path / "snapshot", "v2-none")
    (tmp_path / "snapshot" / "v2-none-0" / f"{1:020}.snapshot").write_bytes(snapshot_of(5_000))
    assert await next_id(tmp_path / "snapshot") == 5_001 + PRODUCER_IDS_SKIPPED
    for is_clean in (True, False):
        folder = tmp_path / f"clean-{is_clean}"
        async with running(folder) as broker:
            await broker.topic("t")
            sent = records(b"x", producer_id=9_000, producer_epoch=0, base_sequence=0)
            await (await broker.client()).call(produce(sent), 8)
        forget(folder)
        for path in folder.glob("t-0/*.snapshot"):
            path.unlink()  # as after a crash; Kafka writes one when it closes
        if not is_clean:
            (folder / ".kafka_cleanshutdown").unlink()
        assert await next_id(folder) == (0 if is_clean else 9_001 + PRODUCER_IDS_SKIPPED)
    resting = tmp_path / "resting"
    async with running(resting) as broker:
        value = struct.pack(">hqhibiqq", 0, 70_000, 0, 1000, 0, -1, 0, 0)
        broker.state.internal_topic("__transaction_state", broker.clock.now_ms())
        entry = batch.Record(0, broker.clock.now_ms(), b"\0\0\0\4tx-1", value, ())
        broker.log("__transaction_state", 3).append_records([entry], now_ms=broker.clock.now_ms())
    forget(resting)
    assert await next_id(resting) == 70_001 + PRODUCER_IDS_SKIPPED


# --- refused and ignored folders


async def test_the_node_id_of_the_directory(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v1-none", broker_id=1001)
    assert await refusal(tmp_path, **{"node.id": "3"}) == f"{tmp_path} belongs to node 1001, not 3"
    async with running(tmp_path, overrides={"broker.id": "1001"}) as broker:
        assert broker.state.node_id == 1001
    async with running(tmp_path) as broker:
        assert broker.state.node_id == 1001
    (tmp_path / "meta.properties").write_text("broker.id=x\nversion=0\n")
    assert "malformed" in await refusal(tmp_path)


async def test_folders_with_different_topic_ids_are_refused(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v1-none", "v2-none")
    (tmp_path / "v1-none-0").rename(tmp_path / "v2-none-1")
    write_topic_id(tmp_path / "v2-none-0", ID)
    write_topic_id(tmp_path / "v2-none-1", OTHER_ID)
    line = await refusal(tmp_path)
    assert "v2-none-0" in line and "v2-none-1" in line and "partition.metadata" in line
    assert not (tmp_path / "__cluster_metadata-0").exists()
    (tmp_path / "v2-none-1" / "partition.metadata").unlink()
    async with running(tmp_path) as broker:
        assert topic_facts(broker.state)["v2-none"][0] == ID


async def test_same_topic_id_of_two_topics_is_refused(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v1-none", "v2-none")
    write_topic_id(tmp_path / "v2-none-0", ID)
    write_topic_id(tmp_path / "v1-none-0", ID)
    assert "the topics v1-none and v2-none have the same topic id" in await refusal(tmp_path)


async def test_duplicate_partition_is_refused(tmp_path: Path) -> None:
    copy_golden(tmp_path / "a", "v2-none")
    copy_golden(tmp_path / "b", "v2-none")
    assert "are one partition" in await refusal(tmp_path / "a", tmp_path / "b")


async def test_invalid_partition_folders_are_refused(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v2-none")
    backup = tmp_path / "backup-2024"
    backup.mkdir()
    (backup / "notes.txt").touch()
    assert f"{backup} has the name of a partition" in await refusal(tmp_path)
    shutil.rmtree(backup)
    backup.write_text("a file")
    assert f"{backup} has the name of a partition" in await refusal(tmp_path)
    backup.unlink()
    (tmp_path / "v2-none-0").rename(tmp_path / "v2-none-2000000000")
    assert "partitions below it are missing" in await refusal(tmp_path)


async def test_folders_being_deleted_or_moved_by_kafka(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v2-none")
    word = "0123456789abcdef" * 2
    for suffix in ("delete", "future", "stray"):
        shutil.copytree(tmp_path / "v2-none-0", tmp_path / f"x-0.{word}-{suffix}")
    async with running(tmp_path) as broker:
        assert list(topic_facts(broker.state)) == ["v2-none"]
    left = [name for name in names(tmp_path) if name.startswith("x-0")]
    assert f"x-0.{word}-stray" in left and len(left) == 2 and all(name.endswith("-stray") for name in left)


async def test_folder_added_later_is_set_aside(tmp_path: Path) -> None:
    """Folders copied beside an existing history are not taken over: `ottla import-dir` does that."""
    copy_golden(tmp_path, "v2-none")
    async with running(tmp_path):
        pass
    shutil.copytree(GOLDEN / "v1-none-0", tmp_path / "v1-none-0")
    async with running(tmp_path) as broker:
        assert list(topic_facts(broker.state)) == ["v2-none"]
    assert [name for name in names(tmp_path) if name.startswith("v1-none-0.") and name.endswith("-stray")]


# --- whole directories of Apache Kafka


DIRECTORIES = GOLDEN.parent / "directories"


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1", "4.3.1"])
async def test_cleanly_closed_kafka_directories(tmp_path: Path, release: str) -> None:
    """2.8.2 and 3.9.1 with ZooKeeper, 4.3.1 with KRaft: `tests/oracle` has the records that their clients
    read there.
    """
    root = shutil.copytree(DIRECTORIES / release, tmp_path / "data")
    wanted = json.loads((DIRECTORIES / f"{release}.json").read_text())
    wanted = {topic: expected for topic, expected in wanted.items() if (root / f"{topic}-0").exists()}
    is_kraft = (root / "__cluster_metadata-0").exists()
    files = CountingFiles()
    state = begin(files, str(root))
    looked_at = {Path(path).parent.name for path in files.of_segments(files.read)}
    # The transactional ids continue. Old formats have no leader epoch file: the newest segment has the epoch.
    unknown = {f"{topic}-0" for topic in wanted if topic.startswith("old-")}
    assert looked_at == {"__transaction_state-0"} | (set() if is_kraft else unknown)
    for topic, expected in wanted.items():
        log = state.topics.partition(topic, 0).log
        found = {"log_start_offset": log.log_start_offset, "high_watermark": log.high_watermark}
        assert found == {name: expected[name] for name in found}, topic
        if is_kraft:
            assert state.topics.named(topic).config.overrides == expected["configs"], topic
            assert encode_id(state.topics.named(topic).id) in (root / f"{topic}-0" / "partition.metadata").read_text()
        elif topic.startswith("compacted"):
            assert state.topics.named(topic).config.overrides == {"cleanup.policy": "compact"}
    finish(state)
    async with running(root) as broker:
        for topic, expected in wanted.items():
            client, offset, seen = await broker.client(), expected["log_start_offset"], []
            while offset < expected["high_watermark"]:
                data = only(await client.call(fetch((topic, 0, offset)), 11)).records
                for position, header in formats.headers(data):
                    if not header.is_control:
                        seen += [r.offset for r in formats.records(data, position) if r.offset >= offset]
                    after = header.next_offset
                offset = after
            assert seen == [record[0] for record in expected["records"]], topic


# --- crash at any step


@pytest.mark.parametrize("kind", ["zookeeper", "kraft"])
async def test_interrupted_adoption_is_repeated(
    tmp_path: Path, kind: str, scaled: Callable[[int], int], stride: int
) -> None:
    """After a crash at every write, sync, rename and removal of the first start, and a power loss, the next start finds
    the same topics and sets nothing aside.
    """
    first = tmp_path / "first"
    if kind == "kraft":
        kraft(first, *CHANGES)
    else:
        copy_golden(first, "v0-none", "v2-none", "transactions")
        (first / "v0-none-0").rename(first / "v2-none-2")
        (first / "cleaner-offset-checkpoint").write_text("0\n1\ntransactions 0 0\n")
    copy_golden(tmp_path / "second", "v1-gzip")
    if kind == "kraft":
        shutil.rmtree(tmp_path / "second" / "v1-gzip-0")
        (tmp_path / "second" / "meta.properties").write_text(
            f"#\nversion=1\nnode.id=7\ncluster.id=c\ndirectory.id={encode_id(ID)}\n"
        )
    disk = SimulatedFiles()
    copy_in(disk, first, "/a")
    copy_in(disk, tmp_path / "second", "/b")
    disk.restart()

    whole = disk.fork()
    state = begin(whole, "/a", "/b")
    wanted, steps = topic_facts(state), whole.steps
    finish(state)
    assert steps > 40 and len(wanted) == (1 if kind == "kraft" else 3)

    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for round in range(scaled(1)):
        for number in range(random.randrange(stride), steps, stride):
            torn = disk.fork()
            torn.fail_at, torn.killing = number, True
            with pytest.raises(Killed):
                begin(torn, "/a", "/b")
            if rng.random() < 0.5 if stride > 1 else (number + round) % 2:
                torn.crash(rng)
            else:
                torn.restart()
            state = begin(torn, "/a", "/b")
            found = topic_facts(state)
            assert {name: (configs, ends) for name, (_, configs, ends) in found.items()} == {
                name: (configs, ends) for name, (_, configs, ends) in wanted.items()
            }, f"crash at step {number}: {whole.log[number]}"
            finish(state)
            aside = [name for path in ("/a", "/b") for name in torn.list(path) if "-stray" in name or "-delete" in name]
            assert [name.partition("-0.")[0] for name in aside] == ["__cluster_metadata"] * (kind == "kraft")
            state = begin(torn, "/a", "/b")
            assert topic_facts(state) == found
            finish(state)


@pytest.mark.parametrize("kind", ["zookeeper", "kraft"])
async def test_unreadable_directory_refuses_the_adoption(tmp_path: Path, kind: str) -> None:
    """Otherwise its partitions would restart empty, and its data would be set aside on its return."""
    first = kraft(tmp_path / "first", *CHANGES) if kind == "kraft" else tmp_path / "first"
    second = tmp_path / "second"
    if kind == "zookeeper":
        copy_golden(first, "v2-none", "v1-none")
    second.mkdir()
    (second / ".kafka_cleanshutdown").touch()
    (second / "meta.properties").write_text(
        (first / "meta.properties").read_text().replace(encode_id(OTHER_ID), encode_id(ID))
    )
    moved = "t-1" if kind == "kraft" else "v1-none-0"
    (first / moved).rename(second / moved)
    disk = SimulatedFiles()
    copy_in(disk, first, "/a")
    copy_in(disk, second, "/b")
    disk.restart()
    disk.failing = lambda operation, path: path.startswith("/b/")
    with pytest.raises(StorageError, match="/b"):
        begin(disk, "/a", "/b")
    disk.failing = lambda operation, path: False
    disk.restart()
    state = begin(disk, "/a", "/b")
    assert all(end for _, _, ends in topic_facts(state).values() for _, end, _ in ends)
    finish(state)


async def test_full_disk_leaves_the_directory_unchanged(tmp_path: Path) -> None:
    copy_golden(tmp_path, "v2-none")
    disk = SimulatedFiles()
    copy_in(disk, tmp_path, "/a")
    write_file(disk, "/a/.kafka_cleanshutdown", b"")
    for number in range(4, 30):
        full = disk.fork()
        full.fail_at = full.steps + number
        try:
            state = begin(full, "/a")
        except StorageError:
            full.restart()
            state = begin(full, "/a")
        assert list(topic_facts(state)) == ["v2-none"]
        finish(state)
