"""DescribeProducers (KIP-664): the producer state of partitions, errors, and the releases that serve it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.router import apis_of
from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.storage.errors import StorageError
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers.producer_state import Producer
from ottla_testing.broker.harness import Client, Closed, produce, records, running

KEY = 61
TIME = 1_700_000_000_000
NO_SUCH_TOPIC = "This server does not host this topic-partition."


def asking(*topics: tuple[str, Iterable[int]]) -> DescribeProducersRequest:
    wanted = [DescribeProducersRequest.TopicRequest(name=name, partition_indexes=list(of)) for name, of in topics]
    return DescribeProducersRequest(topics=wanted)


def states(partition: Any) -> list[tuple[int, int, int, int]]:
    assert all((s.coordinator_epoch, s.current_txn_start_offset) == (-1, -1) for s in partition.active_producers)
    return [
        (s.producer_id, s.producer_epoch, s.last_sequence, s.last_timestamp - TIME) for s in partition.active_producers
    ]


async def described(client: Client, topic: str, partition: int = 0) -> list[tuple[int, int, int, int]]:
    ((described,),) = [t.partitions for t in (await client.call(asking((topic, [partition])), 0)).topics]
    assert (described.partition_index, described.error_code) == (partition, 0)
    return states(described)


async def write(client: Client, pid: int, epoch: int, sequence: int, *values: bytes, time_ms: int = TIME) -> int:
    data = records(*values, timestamp=time_ms, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    return (await client.call(produce(data), 8)).responses[0].partition_responses[0].error_code


async def test_each_producer_has_its_last_sequence_and_timestamp(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        assert await described(client, "t") == []
        assert await write(client, 9, 3, 0, b"a", b"b") == 0
        assert await described(client, "t") == [(9, 3, 1, 0)]
        assert await write(client, 4, 0, 0, b"c", time_ms=TIME + 5) == 0
        assert await write(client, 9, 3, 2, b"d", time_ms=TIME - 5) == 0
        assert await write(client, -1, -1, -1, b"no producer") == 0
        expected = [(4, 0, 0, 5), (9, 3, 2, -5)]
        assert await described(client, "t") == expected
        assert await write(client, 9, 3, 0, b"a", b"b") == 0  # a duplicate batch
        assert await write(client, 9, 3, 7, b"gap") == 45
        assert await write(client, 9, 2, 0, b"old") == 47
        assert await described(client, "t") == expected
        assert await write(client, 9, 4, 0, b"bumped") == 0
        assert await described(client, "t") == [(4, 0, 0, 5), (9, 4, 0, 0)]
        assert await described(client, "t", 1) == []


@pytest.mark.parametrize("release", ["2.8", "4.3", "ottla"])
async def test_a_producer_below_the_log_start_is_described(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client = await broker.client()
        await write(client, 9, 0, 0, b"a")
        await write(client, 10, 0, 0, b"b")
        broker.log("t").delete_records_before(1)
        assert await described(client, "t") == [(9, 0, 0, 0), (10, 0, 0, 0)]


async def test_producers_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        await write(client, 9, 1, 0, b"a")
        await write(client, 9, 1, 1, b"b", b"c")
    async with running(tmp_path) as broker:
        assert await described(await broker.client(), "t") == [(9, 1, 2, 0)]


async def test_open_transaction_is_described(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        for sequence, transactional in ((0, False), (1, True), (2, True)):
            data = records(b"a", producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=transactional)
            broker.log("t").append(data, now_ms=TIME)
        ((partition,),) = [t.partitions for t in (await (await broker.client()).call(asking(("t", [0])), 0)).topics]
        (state,) = partition.active_producers
        assert (state.last_sequence, state.current_txn_start_offset, state.coordinator_epoch) == (2, 1, -1)


async def test_unreadable_log_is_an_error_of_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        producers, failing = PartitionLog.producers, broker.log("t")

        def fails(log: PartitionLog) -> dict[int, Producer]:
            if log is failing:
                raise StorageError("the disk is gone")
            return producers(log)

        monkeypatch.setattr(PartitionLog, "producers", fails)
        response = await (await broker.client()).call(asking(("t", [0, 1])), 0)
        assert [p.error_code for p in response.topics[0].partitions] == [56, 0]


async def test_unknown_partitions_have_individual_errors(tmp_path: Path) -> None:
    """Codes and messages are those of Kafka 3.9.1; 2.8.2 has no messages, and code 3 for a malformed name."""
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        response = await client.call(asking(("u", [0, 3]), ("t", [1, 2, -1]), ("", [0]), ("t", [1]), ("v", [])), 0)
        assert response.throttle_time_ms == 0
        found = [
            (topic.name, [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions])
            for topic in response.topics
        ]
        assert found == [
            ("u", [(0, 3, NO_SUCH_TOPIC), (3, 3, NO_SUCH_TOPIC)]),
            ("t", [(1, 0, None), (2, 3, None), (-1, 3, None)]),
            ("", [(0, 17, "Topic name is invalid: the empty string is not allowed")]),
            ("v", []),
        ]
        assert broker.state.topics.get("u") is None  # describing creates no topic


async def test_errors_before_3_0_have_no_message(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("t")
        response = await (await broker.client()).call(asking(("u", [0]), ("a b", [0]), ("t", [1])), 0)
        found = [(one.error_code, one.error_message) for topic in response.topics for one in topic.partitions]
        assert found == [(3, None)] * 3


async def test_duplicate_partition_is_described_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        await write(client, 9, 0, 0, b"a")
        response = await client.call(asking(*[("t", [0] * 1000)] * 10), 0)
        ((partition,),) = [topic.partitions for topic in response.topics]
        assert states(partition) == [(9, 0, 0, 0)]


def test_api_is_served_from_2_8_on() -> None:
    serving = {name for name in PROFILE_NAMES if KEY in apis_of(profile(name)).served}
    assert serving == set(PROFILE_NAMES[PROFILE_NAMES.index("2.8") :])
    assert all(KEY in apis_of(profile(name)).advertised for name in serving)


async def test_older_release_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.7") as broker:
        client = await broker.client()
        with pytest.raises(Closed):
            await client.call(asking(("t", [0])), 0)
