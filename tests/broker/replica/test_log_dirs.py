"""Several log directories, one of which fails: at the start, and while the broker runs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import structlog

from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import StartupError
from ottla.broker.metadata.adoption import METADATA_ELSEWHERE
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.network import server
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.storage.log_dir.directory import CLEAN_SHUTDOWN
from ottla_testing.broker.harness import Broker, Client, create_topics, fetch, only, options, produce, records, values
from ottla_testing.storage.failing_files import CHANGES, FailingFiles

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@contextlib.asynccontextmanager
async def running(
    files: FailingFiles, *folders: Path, overrides: Mapping[str, str] | None = None
) -> AsyncIterator[Broker]:
    clock = ManualClock()
    started = await server.start(options(folders, overrides), asyncio.get_running_loop(), clock, files=files)
    broker = Broker(started, clock)
    try:
        yield broker
    finally:
        await broker.stop()


def lies_in(folder: Path, topic: str) -> list[int]:
    """The partitions of a topic with a folder there."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-[0-9]"))


async def filled(files: FailingFiles, folders: list[Path]) -> dict[Path, list[int]]:
    """A stopped broker's directories with topic t of six partitions, one record in each. Returns their places."""
    async with running(files, *folders) as broker:
        await broker.topic("t", 6)
        client = await broker.client()
        for index in range(6):
            assert only(await client.call(produce(records(b"%d" % index), "t", index), 9)).error_code == 0
    return {folder: lies_in(folder, "t") for folder in folders}


async def codes(client: Client, count: int = 6) -> dict[int, int]:
    """The error codes of a fetch of each partition; served records must be right."""
    found = {}
    for index in range(count):
        response = only(await client.call(fetch(("t", index, 0)), 11))
        found[index] = response.error_code
        assert values(response.records)[:1] == ([] if response.error_code else [b"%d" % index])
    return found


async def log_dirs(client: Client) -> dict[str, tuple[int, list[int]]]:
    """The error of each directory, and its partitions of t."""
    results = (await client.call(DescribeLogDirsRequest(topics=None), 4)).results
    return {
        Path(result.log_dir).name: (
            result.error_code,
            sorted(p.partition_index for topic in result.topics if topic.name == "t" for p in topic.partitions),
        )
        for result in results
    }


# At the start


@pytest.mark.parametrize("how", ["read-only", "EIO", "no directory", "unreadable identity", "unreadable partition"])
async def test_broker_starts_without_an_unusable_directory(how: str, files: FailingFiles, folders: list[Path]) -> None:
    placed = await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    lost = next(folder for folder in folders if folder != holder)
    away = lost.with_name("away")
    if how == "read-only":
        files.break_down(lost, errno.EROFS, CHANGES | {"lock"})
    elif how == "EIO":
        files.break_down(lost)
    elif how == "no directory":
        lost.rename(away)
        lost.write_text("")
    elif how == "unreadable identity":
        files.break_down(lost / "meta.properties")
    else:
        files.break_down(lost / f"t-{placed[lost][-1]}")
    async with running(files, *folders) as broker:
        client = await broker.client()
        assert await codes(client) == {index: 56 if index in placed[lost] else 0 for index in range(6)}
        assert await log_dirs(client) == {
            folder.name: (56, []) if folder == lost else (0, placed[folder]) for folder in folders
        }
        (topic,) = (await client.call(MetadataRequest(topics=None), 12)).topics
        assert topic.error_code == 0
        node = broker.state.node_id
        for partition in topic.partitions:
            offline = partition.partition_index in placed[lost]
            assert (partition.replica_nodes, partition.isr_nodes) == ([node], [node])
            assert partition.offline_replicas == ([node] if offline else [])
            assert partition.leader_id == (-1 if offline else node)
            assert partition.error_code == (ErrorCode.LEADER_NOT_AVAILABLE if offline else 0)
        for request in (
            produce(records(b"more"), "t", placed[lost][0]),
            produce(records(b"more" * 100_000), "t", placed[lost][0]),
        ):
            assert only(await client.call(request, 9)).error_code == 56
    files.repair()
    if how == "no directory":
        lost.unlink()
        away.rename(lost)
    async with running(files, *folders) as broker:
        client = await broker.client()
        assert set((await codes(client)).values()) == {0}
    assert {folder: lies_in(folder, "t") for folder in folders} == placed
    assert not list(lost.parent.glob("*/*-stray"))


@pytest.mark.parametrize("eligible", [False, True])
async def test_offline_partition_has_no_leader(eligible: bool, files: FailingFiles, folders: list[Path]) -> None:
    """As in Apache Kafka 3.9 and 4.3, when one of two directories has failed."""
    placed = await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    lost = next(folder for folder in folders if folder != holder)
    files.break_down(lost)
    overrides = {"ottla.behaviour.eligible_leaders": str(eligible).lower()}
    async with running(files, *folders, overrides=overrides) as broker:
        client = await broker.client()
        node = [broker.state.node_id]
        requested = DescribeTopicPartitionsRequest.TopicRequest(name="t")
        request = DescribeTopicPartitionsRequest(topics=[requested], response_partition_limit=100)
        described = (await client.call(request, 0)).topics[0].partitions
        (listed,) = (await client.call(MetadataRequest(topics=None), 12)).topics
        for partition in described:
            offline = partition.partition_index in placed[lost]
            shown = partition.isr_nodes, partition.eligible_leader_replicas, partition.last_known_elr
            assert shown == (([], node, node) if offline and eligible else (node, [], []))
            assert listed.partitions[partition.partition_index].isr_nodes == partition.isr_nodes
            assert partition.replica_nodes == node and partition.error_code == 0


@pytest.mark.parametrize("how", ["locked", "of another node", "of another cluster", "malformed"])
async def test_directory_of_another_broker_refuses_the_start(
    how: str, files: FailingFiles, folders: list[Path]
) -> None:
    await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    other = next(folder for folder in folders if folder != holder)
    properties = other / "meta.properties"
    text = properties.read_text()
    async with contextlib.AsyncExitStack() as stack:
        if how == "locked":
            stack.callback(files.lock(str(other / ".lock")).release)
        elif how == "of another node":
            properties.write_text(text.replace("node.id=1", "node.id=7"))
        elif how == "of another cluster":
            properties.write_text(text.replace("cluster.id=", "cluster.id=x"))
        else:
            properties.write_text("garbage")
        with pytest.raises(StartupError, match=str(other)) as raised:
            await stack.enter_async_context(running(files, *folders))
        assert "\n" not in str(raised.value)
    assert all((folder / CLEAN_SHUTDOWN).exists() for folder in folders)


async def test_missing_metadata_log_refuses_the_start(files: FailingFiles, folders: list[Path]) -> None:
    await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    for broken in ([holder], folders):
        for code in (errno.EIO, errno.EROFS):
            files.fails = lambda operation, path, broken=broken, code=code: (
                code if any(path.startswith(str(folder)) for folder in broken) else 0
            )
            with pytest.raises(StartupError, match=str(holder)):
                async with running(files, *folders):
                    pass
            assert all((folder / CLEAN_SHUTDOWN).exists() for folder in folders)
    files.repair()
    files.break_down(holder / "t-0" if (holder / "t-0").exists() else holder / f"t-{lies_in(holder, 't')[0]}")
    with pytest.raises(StartupError, match="the cluster's metadata"):
        async with running(files, *folders):
            pass
    files.repair()
    async with running(files, *folders) as broker:
        assert set((await codes(await broker.client())).values()) == {0}


async def test_first_start_with_a_broken_directory_writes_nothing(files: FailingFiles, folders: list[Path]) -> None:
    """A cluster id made without it would not match when it is back."""
    files.break_down(folders[1])
    with pytest.raises(StartupError, match=str(folders[1])):
        async with running(files, *folders):
            pass
    assert not list(folders[0].glob("meta*")) and not list(folders[2].glob("meta*"))
    files.repair()
    async with running(files, *folders) as broker:
        await broker.topic("t")


async def test_new_directory_beside_a_broken_one(files: FailingFiles, folders: list[Path], tmp_path: Path) -> None:
    """It joins the cluster; no partition of the broken one is created in it."""
    placed = await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    lost = next(folder for folder in folders if folder != holder)
    files.break_down(lost)
    async with running(files, *folders, tmp_path / "new") as broker:
        client = await broker.client()
        assert await codes(client) == {index: 56 if index in placed[lost] else 0 for index in range(6)}
        await broker.topic("more", 4)
        assert len(lies_in(tmp_path / "new", "more")) >= 3
    assert not lies_in(tmp_path / "new", "t")
    files.repair()
    for name in ("meta.properties", METADATA_ELSEWHERE):  # at the first small files
        files.fail_once(tmp_path / "newer", errno.EIO, "create", f"{name}.tmp")
        async with running(files, *folders, tmp_path / "new", tmp_path / "newer") as broker:
            assert [Path(log_dir.path) for log_dir in broker.state.logs.online] == [*folders, tmp_path / "new"]
        assert files.failed.pop()[1].endswith(f"{name}.tmp")


# Two folders of one partition


@pytest.mark.parametrize("reverse", [False, True])
async def test_folder_named_by_the_metadata_stays_of_two(
    reverse: bool, files: FailingFiles, folders: list[Path]
) -> None:
    placed = await filled(files, folders)
    first, second = folders[:2]
    named = {folder: placed[folder][0] for folder in (first, second)}
    for here, there in ((first, second), (second, first)):
        shutil.copytree(here / f"t-{named[here]}", there / f"t-{named[here]}")
        (there / f"t-{named[here]}" / f"{0:020d}.log").write_bytes(b"")
    async with running(files, *(reversed(folders) if reverse else folders)) as broker:
        assert set((await codes(await broker.client())).values()) == {0}
    assert {folder: lies_in(folder, "t") for folder in folders} == placed
    for here, there in ((first, second), (second, first)):
        assert len(list(there.glob(f"t-{named[here]}.*-stray"))) == 1


async def test_folder_moved_by_hand_is_found(files: FailingFiles, folders: list[Path]) -> None:
    """For example out of a failed directory; a copy that comes back with it is put aside."""
    placed = await filled(files, folders)
    holder = next(folder for folder in folders if (folder / "__cluster_metadata-0").exists())
    lost, other = (folder for folder in folders if folder != holder)
    moved = f"t-{placed[lost][0]}"
    shutil.copytree(lost / moved, other / moved)
    files.break_down(lost)
    async with running(files, *folders) as broker:
        client = await broker.client()
        assert (await codes(client))[placed[lost][0]] == 0
        assert only(await client.call(produce(records(b"new"), "t", placed[lost][0]), 9)).base_offset == 1
    files.repair()
    async with running(files, *folders) as broker:
        response = only(await (await broker.client()).call(fetch(("t", placed[lost][0], 1)), 11))
        assert values(response.records) == [b"new"]
    assert len(list(lost.glob(f"{moved}.*-stray"))) == 1


# While it runs


async def test_failed_directory_takes_only_its_partitions_offline(files: FailingFiles, folders: list[Path]) -> None:
    placed = await filled(files, folders)
    async with running(files, *folders) as broker:
        client = await broker.client()
        lost = next(folder for folder in folders if folder != Path(broker.state.logs.metadata_dir.path))
        sound = next(index for folder in folders if folder != lost for index in placed[folder])
        waiting = await broker.client()
        both = (("t", sound, 1), ("t", placed[lost][1], 1))
        await waiting.send(fetch(*both, max_wait_ms=60_000), 11)
        await broker.settle()
        files.break_down(lost)
        assert only(await client.call(produce(records(b"x"), "t", placed[lost][0]), 9)).error_code == 56
        woken = (await waiting.receive())[1].responses
        assert [p.error_code for topic in woken for p in topic.partitions] == [0, 56]
        assert await codes(client) == {index: 56 if index in placed[lost] else 0 for index in range(6)}
        assert only(await client.call(produce(records(b"y"), "t", sound), 9)).base_offset == 1
        assert (await log_dirs(client))[lost.name] == (56, [])
        # New topics and partitions go to the others.
        (made,) = (await client.call(create_topics("new", partitions=6), 7)).topics
        assert made.error_code == 0 and not lies_in(lost, "new")
        grow = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=8, assignments=None)
        request = CreatePartitionsRequest(topics=[grow], timeout_ms=1, validate_only=False)
        assert (await client.call(request, 1)).results[0].error_code == 0
        for index in (6, 7):
            assert only(await client.call(produce(records(b"z"), "t", index), 9)).error_code == 0
        broker.clock.advance(700_000)  # checkpoints, retention and so on
        described = (
            await client.call(
                DescribeTopicPartitionsRequest(
                    topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")], response_partition_limit=100
                ),
                0,
            )
        ).topics[0]
        assert [p.partition_index for p in described.partitions if p.leader_id == -1] == placed[lost]
        assert [p.partition_index for p in described.partitions if p.offline_replicas] == placed[lost]
        assert not any(p.error_code for p in described.partitions)
    assert [(folder / CLEAN_SHUTDOWN).exists() for folder in folders] == [folder != lost for folder in folders]
    files.repair()
    async with running(files, *folders) as broker:
        client = await broker.client()
        assert set((await codes(client)).values()) == {0}


async def test_failed_sync_takes_its_directory_offline(files: FailingFiles, folders: list[Path]) -> None:
    """Requests that wait for it are refused, as is everything else in the directory; the others are unaffected."""
    async with running(files, *folders) as broker:
        topic = broker.state.topics.create("t", 6, {"flush.messages": "1"}, broker.clock.now_ms())
        client = await broker.client()
        lost = next(folder for folder in folders if folder != Path(broker.state.logs.metadata_dir.path))
        offline = lies_in(lost, "t")
        for index in range(6):
            assert only(await client.call(produce(records(b"%d" % index), "t", index), 9)).error_code == 0
        files.fail_once(lost, errno.ENOSPC, "sync", ".log")  # written bytes may be lost, even with this error
        codes_by_index = await asyncio.gather(
            *[one_produce(broker, index) for index in range(6)],
        )
        await broker.settle()
        assert all(codes_by_index[index] == 0 for index in range(6) if index not in offline)
        assert STORAGE_ERROR in [codes_by_index[index] for index in offline]
        assert await codes(client) == {index: 56 if index in offline else 0 for index in range(6)}
        assert [partition.index for partition in topic.online_partitions()] == [
            index for index in range(6) if index not in offline
        ]
    assert not (lost / CLEAN_SHUTDOWN).exists()


async def one_produce(broker: Broker, index: int) -> int:
    client = await broker.client()
    return only(await client.call(produce(records(b"more"), "t", index), 9)).error_code


async def test_topic_with_offline_partitions_can_be_deleted_for_good(files: FailingFiles, folders: list[Path]) -> None:
    placed = await filled(files, folders)
    async with running(files, *folders) as broker:
        client = await broker.client()
        lost = next(folder for folder in folders if folder != Path(broker.state.logs.metadata_dir.path))
        files.break_down(lost)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
        assert (await client.call(request, 4)).responses[0].error_code == 0
        assert only(await client.call(produce(records(b"x"), "t", placed[lost][0]), 9)).error_code == 3
        (made,) = (await client.call(create_topics("t", partitions=6), 7)).topics
        assert made.error_code == 0
        assert only(await client.call(produce(records(b"x"), "t", placed[lost][0]), 9)).base_offset == 0
    files.repair()
    async with running(files, *folders) as broker:
        client = await broker.client()
        response = only(await client.call(fetch(("t", placed[lost][0], 0)), 11))
        assert values(response.records) == [b"x"]
        assert not lies_in(lost, "t")
    assert len(list(lost.glob("t-*-stray"))) == len(placed[lost])


async def test_topic_created_during_a_failure_uses_another_directory(files: FailingFiles, folders: list[Path]) -> None:
    async with running(files, *folders) as broker:
        client = await broker.client()
        lost = next(folder for folder in folders if folder != Path(broker.state.logs.metadata_dir.path))
        files.break_down(lost, operations=CHANGES)
        (made,) = (await client.call(create_topics("new", partitions=6), 7)).topics
        assert made.error_code == 0
        for index in range(6):
            assert only(await client.call(produce(records(b"z"), "new", index), 9)).error_code == 0
    assert not lies_in(lost, "new")


async def test_groups_of_an_offline_partition_have_no_coordinator(files: FailingFiles, folders: list[Path]) -> None:
    overrides = {"offsets.topic.num.partitions": "6"}
    async with running(files, *folders, overrides=overrides) as broker:
        broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
        client = await broker.client()
        lost = next(folder for folder in folders if folder != Path(broker.state.logs.metadata_dir.path))
        offline = lies_in(lost, GROUP_OFFSETS_TOPIC)
        partition_of = broker.state.groups.partition_of
        names = [str(n) for n in range(100)]
        gone = next(name for name in names if partition_of(name) in offline)
        other = next(name for name in reversed(names) if partition_of(name) == partition_of(gone))
        sound = next(name for name in names if partition_of(name) not in offline)

        async def codes_of(name: str) -> tuple[int, int]:
            heartbeat = await client.call(HeartbeatRequest(group_id=name, generation_id=1, member_id="m"), 3)
            (found,) = (await client.call(FindCoordinatorRequest(coordinator_keys=[name], key_type=0), 4)).coordinators
            old = await client.call(FindCoordinatorRequest(key=name, key_type=0), 1)
            assert (old.error_code, old.node_id) == (found.error_code, found.node_id)
            assert old.error_message == ("The coordinator is not available." if old.error_code else "NONE")
            assert (found.node_id == -1) == (found.error_code != 0)
            return heartbeat.error_code, found.error_code

        member = await broker.client()
        await member.send(joining(gone), 2)
        await broker.settle()
        assert await codes_of(gone) == await codes_of(sound) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)
        files.break_down(lost)
        assert gone != other
        commit = committing(other, GROUP_OFFSETS_TOPIC)
        assert only(await client.call(commit, 2)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await member.receive())[1].error_code == ErrorCode.NOT_COORDINATOR
        assert await codes_of(gone) == (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert await codes_of(sound) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)
    async with running(files, *folders, overrides=overrides) as broker:
        client = await broker.client()
        assert await codes_of(gone) == (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert await codes_of(sound) == (ErrorCode.UNKNOWN_MEMBER_ID, 0)


def committing(group: str, topic: str) -> OffsetCommitRequest:
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[of(name=topic, partitions=[partition])])


def joining(group: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=b"")
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )


@pytest.mark.parametrize("which", ["metadata", "last"])
async def test_broker_ends_with_the_metadata_or_last_directory(
    which: str, files: FailingFiles, folders: list[Path]
) -> None:
    placed = await filled(files, folders)
    async with running(files, *folders) as broker:
        client = await broker.client()
        holder = Path(broker.state.logs.metadata_dir.path)
        others = [folder for folder in folders if folder != holder]
        if which == "last":
            for folder in others:
                files.break_down(folder)
                assert only(await client.call(produce(records(b"x"), "t", placed[folder][0]), 9)).error_code == 56
            assert not broker.state.failed.done()
        files.break_down(holder)
        assert only(await client.call(produce(records(b"x"), "t", placed[holder][0]), 9)).error_code == 56
        await broker.settle()
        assert broker.state.failed.done() and str(holder) in broker.state.failed.result()
    clean = [folder for folder in folders if (folder / CLEAN_SHUTDOWN).exists()]
    assert clean == ([] if which == "last" else others)


async def test_failure_found_by_a_periodic_pass_is_logged_once(files: FailingFiles, folders: list[Path]) -> None:
    """Regardless of the number of partitions in the directory."""
    overrides = {"log.retention.check.interval.ms": "1000"}
    async with running(files, *folders[:2], overrides=overrides) as broker:
        await broker.topic("t", 40)
        lost = next(folder for folder in folders[:2] if folder != Path(broker.state.logs.metadata_dir.path))
        for index in lies_in(lost, "t"):
            broker.log("t", index).append(records(b"old", timestamp=1), now_ms=broker.clock.now_ms())
        files.break_down(lost)
        with structlog.testing.capture_logs() as events:
            broker.clock.advance(1000)
            await broker.state.durability.idle()
            await broker.settle()
        reported = [event for event in events if event["log_level"] == "error"]
        assert 1 <= len(reported) <= 2 and "offline" in reported[0]["event"], reported
