"""Whole transactions over the wire, as in a consume-transform-produce loop, with both transaction versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla_testing.broker.harness import Broker, fetch, only, records, running, values
from ottla_testing.broker.transacting import (
    IMPLICIT_PRODUCE,
    PRODUCE,
    READ_COMMITTED,
    Owner,
    committed,
    described,
    read_committed,
)

T0, T1 = ("t", 0), ("t", 1)
GENERATIONS = pytest.mark.parametrize("implicit", [False, True], ids=["version 0", "version 2"])


async def begun(broker: Broker, name: str = "x") -> Owner:
    owner = Owner(await broker.client(), name)
    assert await owner.init() == 0
    return owner


async def transact(owner: Owner, value: bytes, offset: int, implicit: bool) -> None:
    """Writes to both partitions and commits an offset, in one transaction that stays open."""
    if not implicit:
        assert await owner.add(T0, T1) == {T0: 0, T1: 0}
        assert await owner.add_offsets() == 0
    for partition in (0, 1):
        version = IMPLICIT_PRODUCE if implicit else PRODUCE
        assert await owner.send(value, partition=partition, version=version) == 0
    assert await owner.commit_offset(offset, version=5 if implicit else 3) == 0


@GENERATIONS
async def test_read_committed_returns_whole_transactions(implicit: bool, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        owner = await begun(broker)
        seen: list[bytes | None] = []
        last = -1
        for number, decided in enumerate((True, False, False, True, True), 1):
            value = b"%d" % number
            await transact(owner, value, number, implicit)
            groups_index = broker.state.groups.partition_of("g")
            held = {"t": [0, 1], "__consumer_offsets": [groups_index]}
            assert await described(owner.client) == (0, "Ongoing", held)
            for partition in (0, 1):
                assert await read_committed(owner.client, partition=partition) == seen
            assert await committed(owner.client) == (0, last)
            assert await owner.end(decided, 5 if implicit else 4) == 0
            if decided:
                seen.append(value)
                last = number
            for partition in (0, 1):
                assert await read_committed(owner.client, partition=partition) == seen
            assert await committed(owner.client, stable=True) == (0, last)
        assert owner.epoch == (5 if implicit else 0)
        everything = only(await owner.client.call(fetch(("t", 0, 0)), 11))
        batches = [record for record in values(everything.records) if record is not None and len(record) == 1]
        assert batches == [b"1", b"2", b"3", b"4", b"5"]
        assert everything.last_stable_offset == everything.high_watermark == 10


@GENERATIONS
@pytest.mark.parametrize("decided", [True, False])
async def test_transaction_continues_after_a_restart(decided: bool, implicit: bool, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        owner = await begun(broker)
        await transact(owner, b"before", 1, implicit)
    async with running(tmp_path) as broker:
        owner.client = await broker.client()
        assert (await described(owner.client))[1] == "Ongoing"
        assert await read_committed(owner.client) == []
        await transact(owner, b"after", 2, implicit)
        assert await owner.end(decided, 5 if implicit else 4) == 0
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert await read_committed(client) == ([b"before", b"after"] if decided else [])
        assert await committed(client, stable=True) == (0, 2 if decided else -1)
        assert (await described(client))[1] == ("CompleteCommit" if decided else "CompleteAbort")


@GENERATIONS
async def test_transaction_is_aborted_at_its_timeout(implicit: bool, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        owner = await begun(broker)
        await transact(owner, b"late", 1, implicit)
        broker.clock.advance(5_000)
        assert (await described(owner.client))[1] == "Ongoing"  # no check has run yet
        broker.clock.advance(5_000)
        assert await described(owner.client) == (0, "CompleteAbort", {})
        assert await read_committed(owner.client) == []
        assert await committed(owner.client, stable=True) == (0, -1)
        # With an epoch per transaction it looks like a repeated abort; otherwise it gets an error.
        refused = ErrorCode.INVALID_TXN_STATE if implicit else ErrorCode.PRODUCER_FENCED
        assert await owner.end(True, 5 if implicit else 4) == refused
        assert await owner.send(b"more") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await owner.init() == 0
        await transact(owner, b"again", 2, implicit)
        assert await owner.end(True, 5 if implicit else 4) == 0
        assert await read_committed(owner.client) == [b"again"]


async def test_last_stable_offset_is_held_by_the_oldest_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        owners = [await begun(broker, f"x{number}") for number in range(20)]
        client = owners[0].client
        for owner in owners:
            assert await owner.send(owner.name.encode(), version=IMPLICIT_PRODUCE) == 0
        assert only(await client.call(fetch((*T0, 0), isolation_level=READ_COMMITTED), 11)).last_stable_offset == 0
        for owner in reversed(owners[1:]):
            assert await owner.end(owner.name != "x7", 5) == 0
        assert await read_committed(client) == []
        assert await latest(client, READ_COMMITTED) == 0
        assert await latest(client, 0) == 39
        assert await owners[0].end(True, 5) == 0
        assert await read_committed(client) == [owner.name.encode() for owner in owners if owner.name != "x7"]
        assert await latest(client, READ_COMMITTED) == 40


async def latest(client: object, level: int) -> int:
    kind = ListOffsetsRequest.ListOffsetsTopic
    requested = kind(name="t", partitions=[kind.ListOffsetsPartition(partition_index=0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[requested])
    return only(await client.call(request, 7)).offset  # type: ignore[attr-defined]


async def test_transaction_has_only_added_partitions(tmp_path: Path) -> None:
    """KIP-890: a write that the coordinator has not verified does not begin a transaction; a plain write of the same
    producer does not end it.
    """
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        owner = await begun(broker)
        assert await owner.add(T0) == {T0: 0}
        assert await owner.send(b"in") == 0
        assert await owner.send(b"out", partition=1) == ErrorCode.INVALID_TXN_STATE
        assert await owner.send(b"out", partition=1, version=11) == ErrorCode.TRANSACTION_ABORTABLE
        kind = DescribeProducersRequest.TopicRequest
        requested = DescribeProducersRequest(topics=[kind(name="t", partition_indexes=[0, 1])])
        (topic,) = (await owner.client.call(requested, 0)).topics
        starts = [[one.current_txn_start_offset for one in part.active_producers] for part in topic.partitions]
        assert starts == [[0], []]
        assert await owner.end(True) == 0
        assert await owner.send(b"after the end") == ErrorCode.INVALID_TXN_STATE
        assert await read_committed(owner.client) == [b"in"]


async def test_two_hundred_transactions_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        owners = [await begun(broker, f"x{number}") for number in range(4)]
        clients = [owner.client for owner in owners]
        owners += [Owner(clients[number % 4], f"y{number}") for number in range(196)]
        for owner in owners[4:]:
            assert await owner.init() == 0
        for number, owner in enumerate(owners):
            assert await owner.send(b"%d" % number, partition=number % 2, version=IMPLICIT_PRODUCE) == 0
        for number, owner in enumerate(owners):
            assert await owner.end(number % 3 > 0, 5) == 0
        for partition in (0, 1):
            expected = [b"%d" % number for number in range(200) if number % 2 == partition and number % 3]
            assert await read_committed(clients[0], partition=partition) == expected


async def test_plain_records_between_transactional_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        owner = await begun(broker)
        log = broker.state.topics.partition("t", 0)
        assert await owner.send(b"lost", version=IMPLICIT_PRODUCE) == 0
        log.append(records(b"plain"), broker.clock.now_ms(), 9)
        assert await owner.end(False, 5) == 0
        assert await owner.send(b"kept", version=IMPLICIT_PRODUCE) == 0
        assert await owner.end(True, 5) == 0
        assert await read_committed(owner.client) == [b"plain", b"kept"]
