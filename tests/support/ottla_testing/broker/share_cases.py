"""Cases of `test_apis.py` for share groups."""

from __future__ import annotations

from typing import Any

from ottla.broker.share.values import SharePartitionKey
from ottla.protocol.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share.write_share_group_state import WriteShareGroupStateRequest
from ottla_testing.broker.api_cases import World, case
from ottla_testing.broker.sharing import ACCEPT, GROUP, Member, initialize, initializing

KEYS = {78, 79, 83, 84, 85, 86, 87}


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
    batch = made.PartitionData.StateBatch(first_offset=4, last_offset=5, delivery_state=2, delivery_count=1)
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
