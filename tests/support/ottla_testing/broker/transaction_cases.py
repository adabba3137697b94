"""Cases of `test_apis.py` for transactions."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from ottla_testing.broker.api_cases import World, case
from ottla_testing.broker.harness import only
from ottla_testing.broker.transacting import marked, marking

KEYS = {24, 25, 26, 27, 28, 65, 66}


async def begun(world: World) -> tuple[int, int]:
    """Returns the producer id and epoch of transactional id x, whose transaction includes partition 0 of t."""
    response = await world.client.call(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 0)
    assert response.error_code == 0
    owner = response.producer_id, response.producer_epoch
    topic = AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=owner[0],
        v3_and_below_producer_epoch=owner[1],
        v3_and_below_topics=[topic],
    )
    (result,) = (await world.client.call(request, 0)).results_by_topic_v3_and_below
    assert [(one.partition_index, one.partition_error_code) for one in result.results_by_partition] == [(0, 0)]
    return owner


def transaction(world: World) -> Any:
    error, found = world.broker.state.transactions.describe("x")
    assert error == 0
    return found


@case(AddPartitionsToTxnRequest)
async def adds_partitions(world: World, version: int) -> None:
    producer_id, epoch = await begun(world)
    topic = AddPartitionsToTxnTopic(name="t", partitions=[1])
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )
        (result,) = (await world.client.call(request, version)).results_by_topic_v3_and_below
    else:
        requested = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
        one = requested(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, topics=[topic])
        response = await world.client.call(AddPartitionsToTxnRequest(transactions=[one]), version)
        ((result,),) = [found.topic_results for found in response.results_by_transaction]
    assert [(one.partition_index, one.partition_error_code) for one in result.results_by_partition] == [(1, 0)]
    assert transaction(world).partitions == (("t", 0), ("t", 1))


@case(AddOffsetsToTxnRequest)
async def adds_offsets(world: World, version: int) -> None:
    await add_offsets(world, *await begun(world), version)


async def add_offsets(world: World, producer_id: int, epoch: int, version: int) -> None:
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, group_id="g")
    assert (await world.client.call(request, version)).error_code == 0
    assert transaction(world).partitions[-1] == ("__consumer_offsets", world.broker.state.groups.partition_of("g"))


@case(TxnOffsetCommitRequest)
async def commits_in_a_transaction(world: World, version: int) -> None:
    producer_id, epoch = await begun(world)
    if version < 5:
        await add_offsets(world, producer_id, epoch, 0)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    one = topic.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[topic(name="t", topic_id=world.topic_id, partitions=[one])],
    )
    assert only(await world.client.call(request, version)).error_code == 0
    assert world.broker.state.groups.offsets("g") == {}
    end = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)
    assert (await world.client.call(end, 0)).error_code == 0
    ((partition, committed),) = world.broker.state.groups.offsets("g").items()
    assert (partition, committed.offset, committed.metadata) == (("t", 0), 2, "m")


@case(EndTxnRequest)
async def ends_transactions(world: World, version: int) -> None:
    producer_id, epoch = await begun(world)
    request = EndTxnRequest(transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=True)
    response = await world.client.call(request, version)
    assert response.error_code == 0
    assert (response.producer_id, response.producer_epoch) == ((producer_id, epoch + 1) if version >= 5 else (-1, -1))
    assert transaction(world).state.value == "CompleteCommit"
    assert world.broker.log("t").log_end_offset == 4  # the marker


@case(WriteTxnMarkersRequest)
async def writes_markers(world: World, version: int) -> None:
    producer_id, epoch = await begun(world)
    response = await world.client.call(marking(producer_id, epoch, ("t", 0)), version)
    assert marked(response) == {producer_id: {("t", 0): 0}}
    assert world.broker.log("t").log_end_offset == 4
    assert world.broker.log("t").last_stable_offset == 4


@case(DescribeTransactionsRequest)
async def describes_transactions(world: World, version: int) -> None:
    producer_id, epoch = await begun(world)
    response = await world.client.call(DescribeTransactionsRequest(transactional_ids=["x"]), version)
    (found,) = response.transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 1000)
    assert (found.producer_id, found.producer_epoch) == (producer_id, epoch)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0])]


@case(ListTransactionsRequest)
async def lists_transactions(world: World, version: int) -> None:
    producer_id, _ = await begun(world)
    response = await world.client.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), version)
    found = [(one.transactional_id, one.producer_id, one.transaction_state) for one in response.transaction_states]
    assert (response.error_code, found) == (0, [("x", producer_id, "Ongoing")])
