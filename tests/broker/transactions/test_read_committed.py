"""READ_COMMITTED over the wire (KIP-98): directories written by Kafka, and a growing log."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.records import batch, formats
from ottla.storage.follower_log import FollowerLog
from ottla.storage.producers.txn_index import ABORT, COMMIT
from ottla_testing import GOLDEN
from ottla_testing.broker.harness import Broker, Client, fetch, only, records, running

DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
COMMITTED = 1
LATEST, MAX_TIMESTAMP = -1, -3


def marker(producer_id: int, kind: int) -> bytearray:
    record = batch.Record(0, 1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 7))
    return batch.build(
        [record],
        batch.BatchFields(
            producer_id=producer_id, producer_epoch=0, base_sequence=-1, transactional=True, control=True
        ),
    )


def data(producer_id: int, value: bytes = b"x") -> bytearray:
    return records(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def add(broker: Broker, *batches: bytearray, topic: str = "t") -> None:
    """Appends records like a leader and completes delayed fetches."""
    partition = broker.state.topics.partition(topic, 0)
    log = partition.log
    log.__class__ = FollowerLog
    assert isinstance(log, FollowerLog)
    for one in batches:
        batch.assign(one, 0, base_offset=log.log_end_offset, leader_epoch=0)
        log.append_fetched(one, now_ms=broker.clock.now_ms())
    partition.wake()


async def listed(client: Client, topic: str, timestamp: int, level: int, version: int = 7) -> tuple[int, int, int]:
    kind = ListOffsetsRequest.ListOffsetsTopic
    requested = kind.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=level, topics=[kind(name=topic, partitions=[requested])]
    )
    response = only(await client.call(request, version))
    return response.error_code, response.offset, response.timestamp


def aborted(response: Any) -> Any:
    found = response.aborted_transactions
    return None if found is None else [(one.producer_id, one.first_offset) for one in found]


async def is_waiting(broker: Broker) -> bool:
    await broker.settle()
    return bool(broker.state.topics.partition("t", 0).waiters)


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("release", RELEASES)
async def test_kafka_directories_give_the_same_responses_as_kafka(tmp_path: Path, release: str, version: int) -> None:
    root = shutil.copytree(DIRECTORIES / release, tmp_path / "data")
    wanted = json.loads((DIRECTORIES / f"{release}.json").read_text())
    wanted = {topic: reported for topic, reported in wanted.items() if (root / f"{topic}-0").exists()}
    assert sum(reported["last_stable_offset"] < reported["high_watermark"] for reported in wanted.values()) > 0
    async with running(root) as broker:
        client = await broker.client()
        for topic, reported in wanted.items():
            offset, responses = reported["log_start_offset"], []
            while True:
                response = only(await client.call(fetch((topic, 0, offset), isolation_level=COMMITTED), version))
                assert response.error_code == 0
                ends = (response.high_watermark, response.last_stable_offset)
                assert ends == (reported["high_watermark"], reported["last_stable_offset"])
                headers = [header for _, header in formats.headers(response.records)]
                if not headers:
                    break
                responses.append([offset, headers[-1].next_offset, [list(one) for one in aborted(response)]])
                offset = headers[-1].next_offset
            assert responses == reported["answers"], topic
            assert aborted(response) == [] and offset == max(
                reported["last_stable_offset"], reported["log_start_offset"]
            )
            plain = only(await client.call(fetch((topic, 0, reported["log_start_offset"])), version))
            assert plain.last_stable_offset == reported["last_stable_offset"] and aborted(plain) is None
            for level, end in (0, reported["high_watermark"]), (COMMITTED, reported["last_stable_offset"]):
                assert await listed(client, topic, LATEST, level) == (0, end, -1)
            for time_ms, found, timestamp in reported["times"]:
                assert await listed(client, topic, time_ms, 0) == (0, found, timestamp)
                shown = (found, timestamp) if found < reported["last_stable_offset"] else (-1, -1)
                assert await listed(client, topic, time_ms, COMMITTED) == (0, *shown)


async def test_delayed_fetch_completes_when_the_last_stable_offset_advances(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        add(broker, data(1, b"first"), records(b"after_it"))
        client, other = await broker.client(), await broker.client()
        await client.send(fetch(("t", 0, 0), isolation_level=COMMITTED, max_wait_ms=1000), 11)
        assert await is_waiting(broker)
        seen = only(await other.call(fetch(("t", 0, 0), max_wait_ms=1000), 11))
        assert (seen.high_watermark, seen.last_stable_offset, bool(seen.records)) == (2, 0, True)
        add(broker, records(b"more"), data(2))
        assert await is_waiting(broker)
        add(broker, marker(2, COMMIT))
        assert await is_waiting(broker)  # the other one is still open
        add(broker, marker(1, ABORT))
        _, response = await client.receive()
        found = only(response)
        assert [header.base_offset for _, header in formats.headers(found.records)] == list(range(6))
        assert (found.high_watermark, found.last_stable_offset, aborted(found)) == (6, 6, [(1, 0)])
        assert not await is_waiting(broker)


async def test_delayed_fetch_below_an_open_transaction_times_out(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        add(broker, data(1))
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), isolation_level=COMMITTED, max_wait_ms=1000), 11)
        add(broker, records(b"x" * 5000), records(b"x" * 5000))
        assert await is_waiting(broker)
        broker.clock.advance(1000)
        found = only((await client.receive())[1])
        assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 0)
        assert not found.records and aborted(found) == []


async def test_fetch_min_bytes_counts_only_stable_bytes(tmp_path: Path) -> None:
    """Also in a segment before the newest one: more of it becomes stable when its transaction ends."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        broker.log("t").configure(replace(broker.log("t").config, segment_bytes=1000))
        add(broker, records(b"0"), data(1), *(records(b"x" * 600) for _ in range(3)))
        assert broker.log("t").segments[-1].base_offset > 1
        client = await broker.client()
        requested = fetch(("t", 0, 0), isolation_level=COMMITTED, max_wait_ms=1000, min_bytes=200)
        await client.send(requested, 11)
        assert await is_waiting(broker)
        add(broker, marker(1, COMMIT))
        found = only((await client.receive())[1])
        assert len(found.records) > 200 and found.last_stable_offset == 6
        add(broker, data(1), records(b"y"))
        requested = fetch(("t", 0, 5), isolation_level=COMMITTED, max_wait_ms=1000, min_bytes=200)
        await client.send(requested, 11)
        assert await is_waiting(broker)  # bytes after the open transaction do not count
        add(broker, marker(1, COMMIT))
        assert len(only((await client.receive())[1]).records) > 200


async def test_aborted_transactions_are_listed_for_the_returned_range(tmp_path: Path) -> None:
    """As in Kafka: a partition whose first batch does not fit after those of other partitions has no list."""
    async with running(tmp_path / "data") as broker:
        for topic in ("t", "u"):
            await broker.topic(topic)
            add(broker, data(1, b"x" * 100), marker(1, ABORT), topic=topic)
        client = await broker.client()
        sizes = [only(await client.call(fetch(("t", 0, 0), isolation_level=COMMITTED), 11))]
        total = len(sizes[0].records)
        for room, second in (total, [(1, 0)]), (20, None), (0, []):
            requested = fetch(("t", 0, 0), ("u", 0, 0), isolation_level=COMMITTED, max_bytes=total + room)
            response = await client.call(requested, 11)
            found = [aborted(part) for topic in response.responses for part in topic.partitions]
            assert found == [[(1, 0)], second]
        plain = only(await client.call(fetch(("t", 0, 0)), 11))
        assert plain.records == sizes[0].records and aborted(plain) is None
        assert only(await client.call(fetch(("t", 0, 0)), 3)).aborted_transactions in (None, [])


async def test_max_timestamp_excludes_open_transactions(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        add(broker, records(b"0", timestamp=5), data(1))
        client = await broker.client()
        assert (await listed(client, "t", MAX_TIMESTAMP, 0))[:2] == (0, 1)
        assert await listed(client, "t", MAX_TIMESTAMP, COMMITTED) == (0, -1, -1)
        assert await listed(client, "t", 5, COMMITTED) == (0, 0, 5)
        add(broker, marker(1, COMMIT))
        assert (await listed(client, "t", MAX_TIMESTAMP, COMMITTED))[:2] == (0, 1)
        assert await listed(client, "t", LATEST, COMMITTED, 2) == (0, 3, -1)


async def test_aborted_transactions_after_a_restart_and_delete_records(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        add(broker, records(b"0"), data(1), data(2), marker(2, ABORT), records(b"4"))
    for start, stable in (0, 1), (3, 3):
        async with running(tmp_path / "data") as broker:
            broker.log("t").delete_records_before(start)
            client = await broker.client()
            found = only(await client.call(fetch(("t", 0, start), isolation_level=COMMITTED), 11))
            assert (found.high_watermark, found.last_stable_offset) == (5, stable)
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        found = only(await client.call(fetch(("t", 0, 3), isolation_level=COMMITTED), 11))
        assert found.last_stable_offset == 3
        add(broker, marker(1, ABORT))
        found = only(await client.call(fetch(("t", 0, 3), isolation_level=COMMITTED), 11))
        assert found.last_stable_offset == 6 and (1, 1) in aborted(found)
