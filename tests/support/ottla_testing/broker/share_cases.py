"""Cases of `test_apis.py` for share groups."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.share.state import SharePartitionKey
from ottla.protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.share.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.messages.share.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.messages.share.parts import StateBatch
from ottla.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.share.write_share_group_state import WriteShareGroupStateRequest
from ottla_testing.broker.api_cases import World, case
from ottla_testing.broker.sharing import ACCEPT, GROUP, Member, initialize, initializing

KEYS = {*range(76, 80), *range(83, 88), *range(90, 93)}
SHARE_GROUP = "s"  # g is a classic group


def state(world: World) -> Any:
    return world.broker.state.share_state.summary(SharePartitionKey(GROUP, world.topic_id, 0))


def only_result(response: Any) -> Any:
    ((result,),) = [topic.partitions for topic in response.results]
    assert result.error_code == 0 and result.error_message is None
    return result


@case(ShareFetchRequest)
async def fetches_shared_records(world: World, version: int) -> None:
    p = world.topic_id, 0
    await initialize(world.client, p)
    member = Member(world.client)
    assert await member.fetch(p, version=version) == {p: ([(0, 2, 1)], {0: b"a", 1: b"b", 2: b"c"})}
    assert await member.fetch(acks={p: [(0, 2, [ACCEPT])]}, version=version) == {}
    assert member.codes == {p: (0, 0)} and state(world).complete_count == 3


@case(ShareAcknowledgeRequest)
async def acknowledges_shared_records(world: World, version: int) -> None:
    p = world.topic_id, 0
    await initialize(world.client, p)
    member = Member(world.client)
    await member.fetch(p)
    assert await member.acknowledge({p: [(0, 0, [ACCEPT]), (2, 2, [ACCEPT])]}, version=version) == {p: 0}
    assert [tuple(batch) for batch in state(world).batches] == [(0, 0, 2, 1), (2, 2, 2, 1)]


@case(InitializeShareGroupStateRequest)
async def initializes_share_state(world: World, version: int) -> None:
    only_result(await world.client.call(initializing((world.topic_id, 0), state_epoch=3, start=2), version))
    assert (state(world).state_epoch, state(world).start_offset) == (3, 2)


@case(ReadShareGroupStateRequest)
async def reads_share_state(world: World, version: int) -> None:
    await initialize(world.client, (world.topic_id, 0), state_epoch=3, start=2)
    made = ReadShareGroupStateRequest.ReadStateData
    topic = made(topic_id=world.topic_id, partitions=[made.PartitionData(partition=0, leader_epoch=5)])
    result = only_result(await world.client.call(ReadShareGroupStateRequest(group_id=GROUP, topics=[topic]), version))
    assert (result.state_epoch, result.start_offset, result.state_batches) == (3, 2, [])
    assert state(world).leader_epoch == 5


@case(WriteShareGroupStateRequest)
async def writes_share_state(world: World, version: int) -> None:
    await initialize(world.client, (world.topic_id, 0))
    made = WriteShareGroupStateRequest.WriteStateData
    batch = StateBatch(first_offset=4, last_offset=5, delivery_state=2, delivery_count=1)
    one = made.PartitionData(partition=0, state_epoch=0, leader_epoch=0, start_offset=3, state_batches=[batch])
    if version >= 1:
        one.delivery_complete_count = 2
    topic = made(topic_id=world.topic_id, partitions=[one])
    only_result(await world.client.call(WriteShareGroupStateRequest(group_id=GROUP, topics=[topic]), version))
    found = state(world)
    assert (found.start_offset, found.complete_count) == (3, 2 if version >= 1 else -1)
    assert [tuple(batch) for batch in found.batches] == [(4, 5, 2, 1)]


@case(DeleteShareGroupStateRequest)
async def deletes_share_state(world: World, version: int) -> None:
    await initialize(world.client, (world.topic_id, 0))
    made = DeleteShareGroupStateRequest.DeleteStateData
    topic = made(topic_id=world.topic_id, partitions=[made.PartitionData(partition=0)])
    only_result(await world.client.call(DeleteShareGroupStateRequest(group_id=GROUP, topics=[topic]), version))
    assert state(world) is None


@case(ReadShareGroupStateSummaryRequest)
async def summarizes_share_state(world: World, version: int) -> None:
    await initialize(world.client, (world.topic_id, 0), state_epoch=3, start=2)
    made = ReadShareGroupStateSummaryRequest.ReadStateSummaryData
    topic = made(topic_id=world.topic_id, partitions=[made.PartitionData(partition=0, leader_epoch=0)])
    request = ReadShareGroupStateSummaryRequest(group_id=GROUP, topics=[topic])
    result = only_result(await world.client.call(request, version))
    assert (result.state_epoch, result.leader_epoch, result.start_offset) == (3, 0, 2)
    assert result.delivery_complete_count == (0 if version >= 1 else -1)


async def heartbeat(world: World, version: int, epoch: int = 0) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=SHARE_GROUP, member_id="a", member_epoch=epoch, subscribed_topic_names=["t"] if epoch == 0 else None
    )
    response = await world.client.call(request, version)
    assert (response.error_code, response.error_message, response.member_id) == (0, None, "a")
    return response


@case(ShareGroupHeartbeatRequest)
async def joins_a_share_group(world: World, version: int) -> None:
    response = await heartbeat(world, version)
    assert response.member_epoch > 0 and response.heartbeat_interval_ms == 5000
    assert response.assignment is not None
    assert (await heartbeat(world, version, -1)).member_epoch == -1


@case(ShareGroupDescribeRequest)
async def describes_a_share_group(world: World, version: int) -> None:
    await world.commit()
    await heartbeat(world, 1)
    request = ShareGroupDescribeRequest(group_ids=[SHARE_GROUP, "g"], include_authorized_operations=False)
    found, other = (await world.client.call(request, version)).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    (member,) = found.members
    assert (member.member_id, member.subscribed_topic_names, member.client_host) == ("a", ["t"], "/127.0.0.1")
    assert (other.error_code, other.error_message) == (69, "Group g is not a share group.")


async def altered(world: World, version: int, offset: int) -> Any:
    await heartbeat(world, 1)
    await heartbeat(world, 1, -1)
    made = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    one = made.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    request = AlterShareGroupOffsetsRequest(group_id=SHARE_GROUP, topics=[made(topic_name="t", partitions=[one])])
    return await world.client.call(request, version)


async def offset_and_lag(world: World, version: int) -> tuple[int, int]:
    made = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topic = made.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    request = DescribeShareGroupOffsetsRequest(groups=[made(group_id=SHARE_GROUP, topics=[topic])])
    (group,) = (await world.client.call(request, version)).groups
    ((found,),) = [topic.partitions for topic in group.topics]
    assert (group.error_code, found.error_code) == (0, 0)
    return found.start_offset, found.lag


@case(AlterShareGroupOffsetsRequest)
async def alters_share_offsets(world: World, version: int) -> None:
    response = await altered(world, version, 2)
    ((result,),) = [topic.partitions for topic in response.responses]
    assert (response.error_code, result.error_code) == (0, 0)
    assert await offset_and_lag(world, 1) == (2, 1)


@case(DescribeShareGroupOffsetsRequest)
async def describes_share_offsets(world: World, version: int) -> None:
    assert await offset_and_lag(world, version) == (-1, -1)
    await altered(world, 0, 1)
    assert await offset_and_lag(world, version) == (1, 2 if version >= 1 else -1)


@case(DeleteShareGroupOffsetsRequest)
async def deletes_share_offsets(world: World, version: int) -> None:
    await altered(world, 0, 1)
    made = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    request = DeleteShareGroupOffsetsRequest(group_id=SHARE_GROUP, topics=[made(topic_name="t")])
    response = await world.client.call(request, version)
    assert (response.error_code, [one.error_code for one in response.responses]) == (0, [0])
    assert await offset_and_lag(world, 1) == (-1, -1)
