"""Responses of Fetch, its waits and their ends; and ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.records import batch, formats
from ottla_testing.broker.harness import Broker, Client, fetch, only, produce, records, running, values

T0 = 1_700_000_000_000


def batches(response: Any) -> list[tuple[int, int]]:
    """(base offset, last offset) of the batches in a response."""
    return [(header.base_offset, header.last_offset) for _, header in formats.headers(response.records)]


def parts(response: Any) -> list[Any]:
    """The partitions of a response, in order."""
    return [part for topic in response.responses for part in topic.partitions]


async def filled(broker: Broker, *sizes: int, topic: str = "t", partition: int = 0) -> int:
    """Appends one record of each size, each in its own batch; returns the bytes of the last batch."""
    data = bytearray()
    for size in sizes:
        data = records(b"v" * size, timestamp=broker.clock.now_ms())
        broker.state.topics.partition(topic, partition).append(data, broker.clock.now_ms(), 13)
    return len(data)


async def is_waiting(broker: Broker, topic: str = "t") -> bool:
    await broker.settle()
    return bool(broker.state.topics.partition(topic, 0).waiters)


# Waiting


async def test_fetch_waits_for_min_bytes(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        size = await filled(broker, 100)
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=1000, min_bytes=2 * size + 1), 11)
        assert await is_waiting(broker)
        await filled(broker, 100, partition=1)
        assert await is_waiting(broker)  # two batches in all, one byte short
        broker.clock.advance(999)
        assert await is_waiting(broker)
        await filled(broker, 1)
        _, response = await client.receive()
        found = [(part.partition_index, batches(part)) for part in parts(response)]
        assert found == [(0, [(0, 0), (1, 1)]), (1, [(0, 0)])]
        assert not await is_waiting(broker)


@pytest.mark.parametrize("min_bytes", [1, 1000])
async def test_fetch_returns_at_its_deadline(min_bytes: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        if min_bytes > 1:
            await filled(broker, 1)
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=500, min_bytes=min_bytes), 11)
        assert await is_waiting(broker)
        broker.clock.advance(499)
        assert await is_waiting(broker)
        broker.clock.advance(1)
        response = only((await client.receive())[1])
        assert (response.error_code, batches(response)) == (0, [(0, 0)] if min_bytes > 1 else [])


@pytest.mark.parametrize("max_wait_ms", [0, -1])
async def test_fetch_without_max_wait_returns_at_once(max_wait_ms: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        response = only(await client.call(fetch(("t", 0, 0), max_wait_ms=max_wait_ms, min_bytes=1 << 30), 11))
        assert (response.error_code, response.records) == (0, b"")


async def test_fetch_that_cannot_get_more_returns_at_once(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        await broker.topic("rolled", 1, {"segment.bytes": "1048576", "max.message.bytes": "1048576"})
        await filled(broker, 600_000, 600_000, topic="rolled")
        await filled(broker, 100)
        client = await broker.client()
        patient: dict[str, Any] = {"max_wait_ms": 60_000, "min_bytes": 1 << 30}
        assert (await client.call(fetch(**patient), 11)).responses == []
        response = await client.call(fetch(("t", 1, 0), ("t", 7, 0), **patient), 11)
        assert [part.error_code for part in parts(response)] == [0, 3]
        # More than max_bytes can never be returned.
        assert batches(only(await client.call(fetch(("t", 0, 0), max_bytes=100, **patient), 11))) == [(0, 0)]
        # An older segment does not grow.
        assert batches(only(await client.call(fetch(("rolled", 0, 0), **patient), 11))) == [(0, 0)]


async def test_fetch_bytes_above_the_partitions_limit_do_not_count(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=1000, min_bytes=300, partition_max_bytes=200), 11)
        assert await is_waiting(broker)
        await filled(broker, 1000, 1000)
        assert await is_waiting(broker)
        await filled(broker, 100, partition=1)
        assert not await is_waiting(broker)
        await client.receive()


async def test_deleted_topic_ends_the_wait_of_a_fetch(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        topic_id = await broker.topic("t")
        by_name, by_id, admin = [await broker.client() for _ in range(3)]
        await by_name.send(fetch(("t", 0, 0), max_wait_ms=60_000), 12)
        await by_id.send(fetch((topic_id, 0, 0), max_wait_ms=60_000), 13)
        assert await is_waiting(broker)
        response = await admin.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        assert response.responses[0].error_code == 0
        assert only((await by_name.receive())[1]).error_code == 3
        assert only((await by_id.receive())[1]).error_code == 100
        # The topic that gets its name is another one.
        await broker.topic("t")
        await filled(broker, 1)
        assert only(await by_id.call(fetch((topic_id, 0, 0)), 13)).error_code == 100
        assert only(await by_name.call(fetch(("t", 0, 0)), 12)).error_code == 0


# Sizes


async def test_fetch_is_bounded_over_all_partitions_in_order(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 4)
        for partition in (1, 2, 3):
            size = await filled(broker, 200, 200, 200, partition=partition)
        client = await broker.client()

        async def read(max_bytes: int, **more: Any) -> list[tuple[int, int]]:
            """(partition, batches) in order, without empty ones."""
            wanted = [("t", index, 0) for index in (3, 0, 2, 1)]
            response = await client.call(fetch(*wanted, max_bytes=max_bytes, **more), 11)  # type: ignore[arg-type]
            assert [part.partition_index for part in parts(response)] == [3, 0, 2, 1]
            return [(part.partition_index, len(batches(part))) for part in parts(response) if len(part.records)]

        assert await read(size * 9) == [(3, 3), (2, 3), (1, 3)]
        assert await read(size * 5) == [(3, 3), (2, 2)]
        assert await read(size * 5 - 1) == [(3, 3), (2, 1)]
        assert await read(size * 3) == [(3, 3)]
        # The first partition with records returns one batch, however large.
        for max_bytes in (0, 1, size - 1, -1):
            assert await read(max_bytes) == [(3, 1)]
        assert await read(1 << 20, partition_max_bytes=1) == [(3, 1)]
        assert await read(1 << 20, partition_max_bytes=2 * size) == [(3, 2), (2, 2), (1, 2)]


async def test_fetch_max_bytes_of_the_broker_bounds_a_fetch(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"fetch.max.bytes": "1024"}) as broker:
        await broker.topic("t", 2)
        await filled(broker, 400, 400, 400)
        await filled(broker, 1, partition=1)
        client = await broker.client()
        response = await client.call(fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=60_000, min_bytes=1 << 20), 11)
        assert [batches(part) for part in parts(response)] == [[(0, 0), (1, 1)], []]
        assert [len(part.records or b"") for part in parts(response)] == [1024, 0]


async def test_bytes_cut_off_by_the_bounds_count_for_min_bytes(tmp_path: Path) -> None:
    """A client with min_bytes equal to max_bytes does not wait if whole batches do not add up to it."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        size = await filled(broker, 100, 100, 100)
        client = await broker.client()
        patient: dict[str, Any] = {"max_wait_ms": 60_000}
        limit = size * 2 + 5
        for bounds in ({"max_bytes": limit}, {"partition_max_bytes": limit}):
            response = await client.call(fetch(("t", 0, 0), ("t", 1, 0), min_bytes=limit, **bounds, **patient), 11)
            assert [len(batches(part)) for part in parts(response)] == [2, 0]
        await client.send(fetch(("t", 0, 1), ("t", 1, 0), min_bytes=limit, max_bytes=limit, **patient), 11)
        assert await is_waiting(broker)
        await filled(broker, 100)
        assert [len(batches(part)) for part in parts((await client.receive())[1])] == [2, 0]


async def test_fetch_from_the_middle_of_a_batch_returns_it_whole(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for _ in range(2):
            await client.call(produce(records(b"a", b"b", b"c")), 9)
        assert batches(only(await client.call(fetch(("t", 0, 1)), 11))) == [(0, 2), (3, 5)]
        assert batches(only(await client.call(fetch(("t", 0, 5)), 11))) == [(3, 5)]
        response = only(await client.call(fetch(("t", 0, 6)), 11))
        assert (response.error_code, response.high_watermark, response.records) == (0, 6, b"")


@pytest.mark.parametrize("offset", [-1, 0, 1, 7, 2**63 - 1, -(2**63)])
async def test_fetch_out_of_range_is_refused(offset: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await filled(broker, 1, 1, 1, 1, 1, 1)
        broker.log("t").delete_records_before(2)
        client = await broker.client()
        response = only(await client.call(fetch(("t", 0, offset), max_wait_ms=60_000, min_bytes=1 << 20), 11))
        shown = response.error_code, response.high_watermark, response.last_stable_offset, response.log_start_offset
        assert (*shown, response.records) == (1, -1, -1, -1, b"")
        response = only(await client.call(fetch(("t", 0, 2)), 11))
        assert (response.error_code, response.log_start_offset, batches(response)[0]) == (0, 2, (2, 2))


# Epochs and isolation


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75), (2**31 - 1, 75), (-2, 74)])
async def test_fetch_with_another_leader_epoch_is_refused(epoch: int, code: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await filled(broker, 1)
        client = await broker.client()
        request = fetch(("t", 0, 0), partition_fields={"current_leader_epoch": epoch})
        assert only(await client.call(request, 11)).error_code == code
        topic = ListOffsetsRequest.ListOffsetsTopic
        requested = topic.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[requested])])
        response = only(await client.call(request, 5))
        assert (response.error_code, response.offset) == (code, -1 if code else 1)


async def test_fetch_after_the_end_of_its_epoch_returns_the_diverging_epoch(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await filled(broker, 1, 1)
        log = broker.log("t")
        log.leader_epoch = 3
        await filled(broker, 1)
        client = await broker.client()

        async def read(offset: int, last_fetched_epoch: int) -> tuple[int, int, int, int]:
            fields = {"last_fetched_epoch": last_fetched_epoch}
            request = fetch(("t", 0, offset), max_wait_ms=60_000, min_bytes=1 << 20, partition_fields=fields)
            await client.send(request, 12)
            if await is_waiting(broker):
                broker.clock.advance(60_000)
            response = only((await client.receive())[1])
            diverging = response.diverging_epoch
            return response.error_code, len(batches(response)), diverging.epoch, diverging.end_offset

        assert await read(2, 0) == (0, 1, -1, -1)
        assert await read(3, 0) == (0, 0, 0, 2)
        assert await read(2, 1) == (0, 0, 0, 2)
        assert await read(3, 3) == (0, 0, -1, -1)
        assert await read(3, 4) == (1, 0, -1, -1)


async def test_read_committed_lists_aborted_transactions(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await filled(broker, 1)
        client = await broker.client()
        for level, expected in ((0, None), (1, [])):
            for topic, offset, listed in ("t", 0, expected), ("t", 1, expected), ("t", 9, None), ("x", 0, []):
                response = only(await client.call(fetch((topic, 0, offset), isolation_level=level), 11))
                assert response.aborted_transactions == listed
            assert only(await client.call(fetch(("t", 0, 0), isolation_level=level), 11)).last_stable_offset == 1


# ListOffsets


async def listed(client: Client, timestamp: int, version: int, partition: int = 0, **more: Any) -> tuple[Any, ...]:
    topic = ListOffsetsRequest.ListOffsetsTopic
    requested = topic.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, **more)
    request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[requested])])
    response = only(await client.call(request, version))
    return response.error_code, response.timestamp, response.offset, response.leader_epoch


async def test_list_offsets_returns_offsets_by_timestamp(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        for first, times in ((0, [5, 9, 7]), (3, [6, 20])):
            made = [batch.Record(n, T0 + time, None, b"v", ()) for n, time in enumerate(times)]
            assert only(await client.call(produce(batch.build(made)), 9)).base_offset == first
        expected = {0: 0, T0 + 5: 0, T0 + 6: 1, T0 + 8: 1, T0 + 10: 4, T0 + 20: 4}
        times = {0: 5, 1: 9, 4: 20}
        for timestamp, offset in expected.items():
            for version in (1, 3):
                assert await listed(client, timestamp, version) == (0, T0 + times[offset], offset, -1)
            assert await listed(client, timestamp, 11) == (0, T0 + times[offset], offset, 0)
        assert await listed(client, T0 + 21, 5) == (0, -1, -1, -1)
        assert await listed(client, -1, 5) == (0, -1, 5, 0)
        assert await listed(client, -2, 5) == (0, -1, 0, 0)
        assert await listed(client, -3, 7) == (0, T0 + 20, 4, 0)
        assert await listed(client, -4, 8) == (0, -1, 0, 0)
        assert await listed(client, -5, 9) == (0, -1, -1, -1)
        assert await listed(client, -6, 11) == (0, -1, -1, -1)
        for special, since in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
            assert await listed(client, special, since - 1) == (35, -1, -1, -1)
        assert await listed(client, -7, 11) == (35, -1, -1, -1)
        for timestamp in (0, -3):
            assert await listed(client, timestamp, 11, 1) == (0, -1, -1, -1)  # an empty log
        assert await listed(client, -1, 11, 1) == (0, -1, 0, 0)
        broker.log("t").delete_records_before(2)
        assert await listed(client, -2, 5) == (0, -1, 2, 0)
        assert await listed(client, 0, 5) == (0, T0 + 7, 2, 0)


async def test_list_offsets_partition_listed_twice_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        topic = ListOffsetsRequest.ListOffsetsTopic
        requested = [topic.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
        request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=requested)])
        (response,) = (await client.call(request, 5)).topics
        assert [(p.partition_index, p.error_code) for p in response.partitions] == [(0, 42), (1, 0), (0, 42)]


async def test_list_offsets_v0_lists_segments(tmp_path: Path) -> None:
    """Newest first, each as old as its newest record, preceded by the log end offset."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"segment.bytes": "1048576"})
        client = await broker.client()

        async def old(timestamp: int, limit: int = 10) -> list[int]:
            topic = ListOffsetsRequest.ListOffsetsTopic
            requested = topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=limit)
            request = ListOffsetsRequest(replica_id=-1, topics=[topic(name="t", partitions=[requested])])
            return only(await client.call(request, 0)).old_style_offsets

        assert await old(-1) == [0] and await old(-2) == [0]
        for _ in range(3):
            await filled(broker, 700_000)
            broker.clock.advance(1000)
        assert await old(-1) == [3, 2, 1, 0]
        assert await old(-1, 2) == [3, 2]
        assert await old(-2) == [0]
        assert await old(-1, 0) == [] and await old(-1, -5) == []
        assert await old(T0 - 1) == []
        assert await old(T0) == [0]
        assert await old(T0 + 1999) == [1, 0]
        assert await old(T0 + 2000, 1) == [2]
        assert await old(T0 + 10**6) == [3, 2, 1, 0]
        broker.log("t").delete_records_before(1)
        assert await old(-2) == [1]


async def test_values_are_equal_for_every_way_of_reading(tmp_path: Path) -> None:
    """From every offset with every limit, each record is returned once by continuing after the last one."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"segment.bytes": "1048576"})
        client = await broker.client()
        sent: list[bytes] = []
        for number in range(60):
            some = [b"%d.%d" % (number, n) + b"x" * 40_000 * (number % 3) for n in range(number % 4 + 1)]
            sent += some
            await client.call(produce(records(*some)), 9)
        for limit in (1, 50_000, 1_000_000):
            offset, got = 0, []
            while offset < len(sent):
                response = only(await client.call(fetch(("t", 0, offset), partition_max_bytes=limit), 11))
                assert batches(response)[0][0] == offset
                got += values(response.records)
                offset = batches(response)[-1][1] + 1
            assert got == sent
