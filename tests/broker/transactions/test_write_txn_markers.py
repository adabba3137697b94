"""WriteTxnMarkers (KIP-98, 664): ends a transaction that its coordinator does not end; errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from ottla_testing.broker.harness import running
from ottla_testing.broker.transacting import Owner, committed, described, marked, marking, read_committed

T0, T1, NOWHERE = ("t", 0), ("t", 1), ("nowhere", 0)


@pytest.mark.parametrize("is_committed", [False, True])
async def test_hanging_transaction_is_ended_in_one_partition(is_committed: bool, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        owner = Owner(client)
        assert await owner.init() == 0
        assert await owner.add(T0, T1) == {T0: 0, T1: 0}
        assert (await owner.send(b"a"), await owner.send(b"b", partition=1)) == (0, 0)
        response = await client.call(marking(*owner.identity, T0, committed=is_committed), 1)
        assert marked(response) == {owner.id: {T0: 0}}
        assert broker.log("t").last_stable_offset == 2
        assert await read_committed(client, "t", 0) == ([b"a"] if is_committed else [])
        assert broker.log("t", 1).last_stable_offset == 0  # the transaction continues there
        # Its coordinator is not aware of the marker, and writes its own marker after it.
        assert (await described(client))[1] == "Ongoing"
        assert await owner.end(True) == 0
        assert (await described(client))[1] == "CompleteCommit"
        assert broker.log("t").log_end_offset == 3
        assert await read_committed(client, "t", 1) == [b"b"]


async def test_transactional_offsets_are_applied_or_dropped(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"offsets.topic.num.partitions": "1"}) as broker:
        await broker.topic("t", 1)
        client = await broker.client()
        for number, is_committed in enumerate((False, True)):
            owner = Owner(client, f"x{number}")
            assert await owner.init() == 0
            assert await owner.add_offsets() == 0
            assert await owner.commit_offset(5) == 0
            response = await client.call(marking(*owner.identity, ("__consumer_offsets", 0), committed=is_committed), 1)
            assert marked(response) == {owner.id: {("__consumer_offsets", 0): 0}}
            assert await committed(client) == (0, 5 if is_committed else -1)


async def test_errors_are_reported_for_each_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        owner = Owner(client)
        assert await owner.init() == 0
        assert (await owner.add(T0), await owner.send(b"a")) == ({T0: 0}, 0)
        end = broker.log("t").log_end_offset

        async def reported(request: WriteTxnMarkersRequest, version: int = 1) -> dict[int, dict[tuple[str, int], int]]:
            return marked(await client.call(request, version))

        assert await reported(WriteTxnMarkersRequest(markers=[])) == {}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await reported(marking(*owner.identity, NOWHERE, ("t", 2), ("t", -1))) == {
            owner.id: {NOWHERE: unknown, ("t", 2): unknown, ("t", -1): unknown}
        }
        # An epoch that has ended; with transaction.version 2 also the epoch of its batches (KIP-1228).
        fenced = {owner.id: {T0: ErrorCode.INVALID_PRODUCER_EPOCH}}
        assert await reported(marking(owner.id, -1, T0)) == fenced
        assert await reported(marking(*owner.identity, T0, transaction_version=2), 2) == fenced
        unknown = await reported(marking(-1, 0, T0, NOWHERE))
        assert unknown == {-1: dict.fromkeys((T0, NOWHERE), ErrorCode.INVALID_REQUEST)}
        assert broker.log("t").log_end_offset == end
        # A coordinator older than the one of the last marker.
        assert await reported(marking(*owner.identity, T0, coordinator_epoch=3)) == {owner.id: {T0: 0}}
        older = await reported(marking(*owner.identity, T0, coordinator_epoch=2))
        assert older == {owner.id: {T0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}}


async def test_results_are_grouped_by_producer(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        markers = [marking(8, 0, T0), marking(7, 0, T0, T1), marking(8, 0, NOWHERE)]
        request = WriteTxnMarkersRequest(markers=[one.markers[0] for one in markers])
        assert marked(await client.call(request, 2)) == {
            8: {T0: 0, NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
            7: {T0: 0, T1: 0},
        }
        requested = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
        (topic,) = (await client.call(DescribeProducersRequest(topics=[requested]), 0)).topics
        known = [(one.producer_id, one.coordinator_epoch) for one in topic.partitions[0].active_producers]
        assert known == [(7, 0), (8, 0)]


async def test_markers_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 1)
        client = await broker.client()
        owner = Owner(client)
        assert await owner.init() == 0
        assert (await owner.add(T0), await owner.send(b"a")) == ({T0: 0}, 0)
        assert marked(await client.call(marking(*owner.identity, T0), 1)) == {owner.id: {T0: 0}}
    async with running(tmp_path) as broker:
        assert broker.log("t").last_stable_offset == 2
        assert await read_committed(await broker.client(), "t", 0) == []


async def test_topic_with_an_old_format_refuses_markers(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("old", 1, {"message.format.version": "0.10.0"})
        response = await (await broker.client()).call(marking(7, 0, ("old", 0)), 1)
        assert marked(response) == {7: {("old", 0): ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}}
