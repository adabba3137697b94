"""Members of share groups through the wire: heartbeats, assignments, descriptions, offsets, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.limits import INT64_MAX, INT64_MIN
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.share.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.messages.share.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla_testing.broker.harness import Broker, Client, produce, records, running
from ottla_testing.broker.sharing import ACCEPT, GROUP, Member

SMALL = {
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.share.assignment.interval.ms": "0",
}
NOT_FOUND, UNKNOWN = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID


async def beat(client: Client, member: str = "a", epoch: int = 0, topics: str | None = "t", **more: Any) -> Any:
    names = None if topics is None else list(topics)
    return await client.call(
        ShareGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": member, "member_epoch": epoch, "subscribed_topic_names": names} | more
        ),
        1,
    )


def partitions_of(response: Any) -> list[int] | None:
    if response.assignment is None:
        return None
    return [index for topic in response.assignment.topic_partitions for index in topic.partitions]


async def joined(client: Client, member: str = "a") -> Any:
    """Joins and sends heartbeats until the member has partitions."""
    response = await beat(client, member)
    assert response.error_code == 0, response.error_message
    for _ in range(3):
        if partitions_of(response):
            return response
        await asyncio.sleep(0)  # the state of the share partitions is initialized after the response
        response = await beat(client, member, response.member_epoch, None)
    return response


async def described(client: Client, group: str = GROUP) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    (found,) = (await client.call(request, 1)).groups
    return found


async def offsets(client: Client, group: str = GROUP) -> dict[tuple[str, int], tuple[int, int]]:
    """Start offset and lag of all share partitions of a group."""
    made = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[made(group_id=group, topics=None)])
    (found,) = (await client.call(request, 1)).groups
    assert found.error_code == 0
    return {
        (topic.topic_name, one.partition_index): (one.start_offset, one.lag)
        for topic in found.topics
        for one in topic.partitions
    }


async def alter(client: Client, offset: int, topic: str = "t", index: int = 0) -> Any:
    made = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = made.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
    request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[made(topic_name=topic, partitions=[part])])
    return await client.call(request, 0)


async def forget(client: Client, topic: str = "t") -> Any:
    made = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[made(topic_name=topic)])
    return await client.call(request, 0)


async def written(broker: Broker, *values: bytes) -> None:
    response = await (await broker.client()).call(produce(records(*values)), 9)
    assert response.responses[0].partition_responses[0].error_code == 0


def test_member_joins_is_described_leaves_and_the_group_is_deleted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 2)
            client = await broker.client()
            response = await joined(client)
            assert partitions_of(response) == [0, 1]
            assert response.heartbeat_interval_ms == 5000
            found = await described(client)
            assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
            assert [one.member_id for one in found.members] == ["a"]
            assert found.group_epoch == found.assignment_epoch
            listed = (await client.call(ListGroupsRequest(types_filter=["share"], states_filter=[]), 5)).groups
            assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed] == [
                (GROUP, "share", "Stable", "share")
            ]
            delete = DeleteGroupsRequest(groups_names=[GROUP])
            assert (await client.call(delete, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
            left = await beat(client, epoch=-1, topics=None)
            assert (left.error_code, left.member_epoch) == (0, -1)
            assert (await described(client)).group_state == "Empty"
            assert (await client.call(delete, 2)).results[0].error_code == 0
            assert (await described(client)).error_code == NOT_FOUND
            assert await offsets(client) == {}

    asyncio.run(scenario())


def test_session_that_is_not_kept_ends_after_its_timeout(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            client = await broker.client()
            first = await joined(client)
            broker.clock.advance(44_000)
            assert (await beat(client, epoch=first.member_epoch, topics=None)).error_code == 0
            broker.clock.advance(44_000)
            assert len((await described(client)).members) == 1
            broker.clock.advance(1_001)
            assert (await described(client)).members == []
            gone = await beat(client, epoch=first.member_epoch, topics=None)
            assert gone.error_code == UNKNOWN

    asyncio.run(scenario())


def test_group_with_its_assignment_and_offsets_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            topic_id = await broker.topic("t", 1)
            client = await broker.client()
            before = await joined(client)
            await written(broker, b"0", b"1", b"2")
            assert (await beat(client, epoch=-1, topics=None)).error_code == 0
            assert (await alter(client, 0)).responses[0].partitions[0].error_code == 0
            before = await joined(client)
            member = await Member.join(broker)
            await member.fetch((topic_id, 0))
            await member.fetch((topic_id, 0), max_wait_ms=0, batch_size=2)
            await member.acknowledge({(topic_id, 0): [(0, 1, [ACCEPT])]})
            assert [lag for _, lag in (await offsets(client)).values()] == [1]
            shown = await described(client)
        async with running(tmp_path, overrides=SMALL) as broker:
            client = await broker.client()
            assert await described(client) == shown
            assert [lag for _, lag in (await offsets(client)).values()] == [1]
            again = await beat(client, epoch=before.member_epoch, topics=None)
            assert (again.error_code, again.member_epoch) == (0, before.member_epoch)

    asyncio.run(scenario())


def test_altered_offsets_create_a_group_that_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            await written(broker, b"0", b"1", b"2")
            client = await broker.client()
            refused = await alter(client, 1, "u")
            assert refused.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await described(client)).error_code == NOT_FOUND
            assert (await alter(client, 1)).responses[0].partitions[0].error_code == 0
            assert await offsets(client) == {("t", 0): (1, 2)}
        async with running(tmp_path, overrides=SMALL) as broker:
            client = await broker.client()
            assert await offsets(client) == {("t", 0): (1, 2)}
            assert (await described(client)).group_state == "Empty"

    asyncio.run(scenario())


def test_lag_from_a_start_offset_far_below_zero_wraps(tmp_path: Path) -> None:
    """Kafka stores any start offset, and computes with 64 bits."""

    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            client = await broker.client()
            await written(broker, b"0", b"1", b"2")
            assert (await alter(client, INT64_MIN)).responses[0].partitions[0].error_code == 0
            assert await offsets(client) == {("t", 0): (INT64_MIN, INT64_MIN + 3)}
            assert (await alter(client, INT64_MAX)).responses[0].partitions[0].error_code == 0
            assert await offsets(client) == {("t", 0): (INT64_MAX, 3 - INT64_MAX)}

    asyncio.run(scenario())


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__share_group_state"])
def test_deleted_internal_topic_is_made_again(tmp_path: Path, topic: str) -> None:
    """The groups write about the deletion while it is done, which must not touch the folders of the deleted topic."""

    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            client = await broker.client()
            await joined(client)
            assert (await beat(client, epoch=-1, topics=None)).error_code == 0
            # The group has state of the internal topic itself, and forgets it by a record.
            assert (await alter(client, 0, topic)).responses[0].partitions[0].error_code == 0
            deleting = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
            (done,) = (await client.call(deleting, 4)).responses
            assert done.error_code == 0
            assert len(broker.state.logs.online) == 1
            again = await beat(client, "c", epoch=0)
            assert again.error_code == 0
        async with running(tmp_path, overrides=SMALL):
            pass

    asyncio.run(scenario())


def test_offsets_are_changed_and_deleted_only_without_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            await written(broker, b"0", b"1", b"2")
            client = await broker.client()
            await joined(client)
            assert (await alter(client, 1)).error_code == ErrorCode.NON_EMPTY_GROUP
            assert (await forget(client)).error_code == ErrorCode.NON_EMPTY_GROUP
            await beat(client, epoch=-1, topics=None)
            assert await offsets(client) == {("t", 0): (-1, -1)}
            assert (await alter(client, 1)).responses[0].partitions[0].error_code == 0
            assert await offsets(client) == {("t", 0): (1, 2)}
            unknown = await alter(client, 1, index=7)
            assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown = await alter(client, 1, "u")
            assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await forget(client)).responses[0].error_code == 0
            assert await offsets(client) == {}
            assert (await forget(client)).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(scenario())


def test_group_has_one_kind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            client = await broker.client()
            assert (await beat(client, epoch=1)).error_code == NOT_FOUND
            await joined(client)
            classic = HeartbeatRequest(group_id=GROUP, member_id="a", generation_id=1, group_instance_id=None)
            assert (await client.call(classic, 4)).error_code == UNKNOWN
            made = OffsetCommitRequest.OffsetCommitRequestTopic
            commit = OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    made(
                        name="t",
                        partitions=[
                            made.OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=1, committed_metadata=None
                            )
                        ],
                    )
                ],
            )
            response = await client.call(commit, 9)
            assert response.topics[0].partitions[0].error_code == NOT_FOUND

    asyncio.run(scenario())


def test_invalid_heartbeats_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, overrides=SMALL) as broker:
            await broker.topic("t", 1)
            client = await broker.client()
            for fields, text in (
                ({"member_id": ""}, None),
                ({"member_id": "x" * 37}, None),
                ({"group_id": " "}, "GroupId can't be empty."),
                ({"rack_id": " "}, "RackId can't be empty."),
                ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
                ({"member_epoch": -2}, "MemberEpoch is invalid."),
            ):
                response = await beat(client, **dict[str, Any](fields))
                assert (response.error_code, response.error_message) == (ErrorCode.INVALID_REQUEST, text)

    asyncio.run(scenario())
