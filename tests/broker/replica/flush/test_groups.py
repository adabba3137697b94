"""`__consumer_offsets` under `flush.messages`: no response reports a commit, membership or deletion that a power loss
could take back.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.replica.flush import RETRY_MS
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla_testing.broker.harness import Broker, Client, only, running
from ottla_testing.broker.held_syncs import begun, holding, still_waits
from ottla_testing.patience import PATIENCE_S

OVERRIDES = {
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


async def commit(client: Client, offset: int, group: str = "g", **more: Any) -> int:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(group_id=group, topics=[topic(name="t", partitions=[requested])], **more)
    return only(await client.call(request, 5)).error_code


async def committed(client: Client, group: str = "g", version: int = 5) -> tuple[int, int]:
    """(error, offset)"""
    if version >= 8:
        topics = [OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        requested = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        (found,) = (await client.call(OffsetFetchRequest(groups=[requested]), version)).groups
    else:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        found = await client.call(OffsetFetchRequest(group_id=group, topics=topics), version)
    return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1


async def started(broker: Broker, syncs: Any, number: int) -> list[Client]:
    """Clients of a broker with topic t and the groups' log, of which syncs wait from here on."""
    await broker.topic("t", configs={"flush.messages": "1000"})
    broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
    syncs.prefix = GROUP_OFFSETS_TOPIC
    return [await broker.client() for _ in range(number)]


async def test_commits_and_fetches_of_offsets_wait_for_one_sync(tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        clients = await started(broker, syncs, 8)
        first = begun(commit(clients[0], 7))
        await syncs.until(1)
        others = [begun(commit(client, 8, f"g{n}")) for n, client in enumerate(clients[1:6])]
        requested = [begun(committed(clients[6])), begun(committed(clients[7], "g0", 8))]
        await still_waits(broker, first, *others, *requested)
        assert len(syncs.begun) == 1
        syncs.let()
        assert await first == 0
        await syncs.until(2)
        await still_waits(broker, *others)
        syncs.let()
        assert [await task for task in others] == [0] * 5
        assert [await task for task in requested] == [(0, 7), (0, 8)]
        assert len(syncs.begun) == 2
        assert await committed(clients[0]) == (0, 7)


async def test_acknowledged_commit_is_known_to_the_next_coordinator(tmp_path: Path) -> None:
    """It is in the log when that one loads it, but held back from consumers until the sync ends."""
    async with holding(tmp_path, overrides=OVERRIDES, brokers=2) as (broker, syncs):
        await broker.topic("t")
        broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
        old = broker.state.topics.leader(GROUP_OFFSETS_TOPIC, 0)
        syncs.prefix = GROUP_OFFSETS_TOPIC
        client, successor = await broker.client(old - 1), await broker.client(2 - old)
        calls = [begun(commit(client, 7))]
        await syncs.until(1)
        await still_waits(broker, *calls)
        assert broker.log(GROUP_OFFSETS_TOPIC).high_watermark < broker.log(GROUP_OFFSETS_TOPIC).log_end_offset
        broker.state.topology.move_leader(GROUP_OFFSETS_TOPIC, 0, 3 - old)
        calls.append(begun(committed(successor)))
        await still_waits(broker, *calls)
        syncs.let_all()
        assert [await call for call in calls] == [0, (0, 7)]


async def test_failed_sync_returns_coordinator_not_available(tmp_path: Path) -> None:
    """A consumer cannot handle KAFKA_STORAGE_ERROR."""
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        one, two, three = await started(broker, syncs, 3)
        syncs.code = errno.EMFILE
        calls = [begun(commit(one, 7))]
        await syncs.until(1)
        calls += [begun(commit(two, 8)), begun(committed(three))]
        await still_waits(broker, *calls)
        syncs.let_all()
        assert await calls[0] == ErrorCode.NOT_COORDINATOR
        await still_waits(broker, *calls[1:])
        syncs.code = 0
        broker.clock.advance(RETRY_MS)
        assert (await calls[1], await calls[2]) == (0, (0, 8))


async def test_memberships_and_deletions_wait_for_the_sync(tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        client, second = await started(broker, syncs, 2)
        allowed = 0

        async def waits(call: Any) -> Any:
            """Checks that the response arrives after the sync and not before, and returns it."""
            nonlocal allowed
            allowed += 1
            task = begun(call)
            await syncs.until(allowed)
            await still_waits(broker, task)
            syncs.let()
            async with asyncio.timeout(PATIENCE_S):
                return await task

        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joining = begun(client.call(join, 3))
        allowed += 1
        await syncs.until(allowed)  # for the record of the new group
        syncs.let()
        await broker.settle()
        broker.clock.advance(1)
        joined = await joining
        assert joined.error_code == 0
        assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
        member = {"group_id": "g", "member_id": joined.member_id}
        sync = SyncGroupRequest(generation_id=joined.generation_id, assignments=[assigned], **member)
        synced = await waits(client.call(sync, 3))
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"x")
        generation = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
        assert await waits(commit(client, 7, **generation)) == 0
        assert (await waits(client.call(LeaveGroupRequest(**member), 2))).error_code == 0
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = topic.OffsetDeleteRequestPartition(partition_index=0)
        assert await waits(commit(client, 8, "simple")) == 0
        deletion = OffsetDeleteRequest(group_id="simple", topics=[topic(name="t", partitions=[partition])])
        deleted = await waits(client.call(deletion, 0))
        assert (deleted.error_code, only(deleted).error_code) == (0, 0)
        (result,) = (await waits(client.call(DeleteGroupsRequest(groups_names=["g"]), 1))).results
        assert result.error_code == 0
        assert await committed(second) == (0, -1)


async def test_group_requests_do_not_wait_by_default(tmp_path: Path) -> None:
    quiet = {**OVERRIDES, "log.flush.interval.messages": "1000"}
    async with holding(tmp_path, overrides=quiet) as (broker, syncs):
        (client,) = await started(broker, syncs, 1)
        assert await commit(client, 7) == 0
        assert await committed(client) == (0, 7)
        assert not syncs.begun


async def test_offsets_topic_recreated_with_fewer_partitions(tmp_path: Path) -> None:
    """A group whose partition does not exist has nothing to wait for; that is no error of the broker."""
    async with running(tmp_path, overrides={"offsets.topic.num.partitions": "8"}) as broker:
        await broker.topic("__consumer_offsets", 1)
        client = await broker.client()
        for number in range(16):
            response = await client.call(LeaveGroupRequest(group_id=f"group-{number}", members=[]), 3)
            assert response.error_code == 0
