"""Rare situations of transactions: a stop that cannot wait, records that wait for memory, the target of rewound
sequences, and responses for several partitions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client import Consumer, GroupMetadata, Producer
from ottla.client.net import errors
from ottla.client.producer.sequences import Sequenced, Sequences
from ottla.client.producer.transactions import manager
from ottla.client.producer.transactions.requests import has_v2, worst
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.records import formats
from ottla.protocol.schema import Versions, spec
from ottla_testing.client.closing_proxy import AFTER, ClosingProxy
from ottla_testing.client.produced_logs import producing, running  # type: ignore[attr-defined]
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S


@pytest.mark.parametrize("how", ["in time", "cancelled"])
async def test_stop_that_cannot_abort_still_closes(how: str, tmp_path: Path) -> None:
    proxy = ClosingProxy()
    port = await proxy.open()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    async with running(tmp_path, overrides=overrides) as broker:
        await broker.topic("t")
        proxy.target = broker.ports[0]
        producer = Producer(f"127.0.0.1:{port}", transactional_id="shop", now_ms=broker.clock.now_ms)
        await producer.start()
        await producer.begin()
        await producer.send_and_wait("t", b"one")

        def away() -> None:
            proxy.target = 0

        proxy.shut_on(spec(EndTxnRequest).api_key, AFTER, away)
        async with asyncio.timeout(PATIENCE_S):
            if how == "in time":
                await producer.stop(timeout_s=0.2)
            else:
                stopping = asyncio.create_task(producer.stop())
                while proxy.is_waiting:
                    await asyncio.sleep(0.005)
                stopping.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await stopping
                await producer.stop()
        with pytest.raises(errors.ClientClosed):
            await producer.commit()
    await proxy.close()


async def test_stop_fails_a_waiting_commit(tmp_path: Path) -> None:
    proxy = ClosingProxy()
    port = await proxy.open()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    async with running(tmp_path, overrides=overrides) as broker:
        await broker.topic("t")
        proxy.target = broker.ports[0]
        producer = Producer(f"127.0.0.1:{port}", transactional_id="shop", now_ms=broker.clock.now_ms)
        await producer.start()
        await producer.begin()
        await producer.send("t", b"one")

        def away() -> None:
            proxy.target = 0

        proxy.shut_on(spec(EndTxnRequest).api_key, AFTER, away)
        committing = asyncio.create_task(producer.commit())
        while proxy.is_waiting:
            await asyncio.sleep(0.005)
        await producer.stop(timeout_s=0.1)
        with pytest.raises(errors.ClientClosed):
            await committing
    await proxy.close()


async def test_cancelled_commit_continues_and_can_be_awaited_again(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, producing(broker, transactional_id="shop", linger_ms=5) as producer:
        await broker.topic("t")
        await producer.begin()
        await producer.send("t", b"one")
        committing = asyncio.create_task(producer.commit())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        await asyncio.gather(producer.commit(), producer.commit())
        async with producer.transaction():
            pass
        assert not broker.log("t").open_transactions() and broker.log("t").last_stable_offset == 2


async def test_record_waiting_for_memory_stays_out_of_the_next_transaction(tmp_path: Path) -> None:
    options: dict[str, Any] = {"buffer_memory": 2000, "batch_size": 4000, "linger_ms": 60_000}
    async with running(tmp_path) as broker, producing(broker, transactional_id="shop", **options) as producer:
        await broker.topic("t")
        await producer.begin()
        first = await producer.send("t", bytes(1500))
        waiting = asyncio.create_task(producer.send("t", bytes(1500)))
        await asyncio.sleep(0)
        # A record waiting for memory has full batches sent; the commit ends before that.
        await producer.abort()
        await producer.begin()
        with pytest.raises(errors.InvalidTransactionState):
            await waiting
        assert first.done()
        sender = producer._sender
        assert sender is not None and sender.transactions is not None and sender.accumulator.free == 2000
        assert sender.transactions.refuses(2) is None
        assert isinstance(sender.transactions.refuses(1), errors.InvalidTransactionState)
        await producer.commit()


async def test_offsets_of_a_group_without_members_are_committed(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        address = f"127.0.0.1:{broker.ports[0]}"
        async with Consumer(address, assign=[("t", 0)], group="g") as consumer:
            assert consumer.group_metadata() == GroupMetadata("g")
        async with Consumer(address, topics=["t"]) as consumer:
            with pytest.raises(errors.ClientError, match="group"):
                consumer.group_metadata()


async def test_offsets_of_an_open_transaction_block_a_new_member(tmp_path: Path) -> None:
    """KIP-447: a member that takes over partitions must not start at an offset from before the pending commit."""
    async with running(tmp_path) as broker, producing(broker, transactional_id="shop") as producer:
        await broker.topic("t")
        address = f"127.0.0.1:{broker.ports[0]}"
        options: dict[str, Any] = {"assign": [("t", 0)], "group": "g", "isolation": "read_committed"}
        await producer.begin()
        await producer.send_offsets_to_transaction({("t", 0): 7}, "g")
        async with Consumer(address, default_api_timeout_ms=1000, retry_backoff_ms=5, **options) as consumer:
            with pytest.raises(errors.KafkaError) as raised:
                await consumer.committed([("t", 0)])
            assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
            await producer.commit()
            found = (await consumer.committed([("t", 0)]))[("t", 0)]
            assert found is not None and found.offset == 7


# -- lost records


def cut_last_batch(folder: Path) -> None:
    """Removes the last batch of a closed log, like a disk that lost it."""
    (segment,) = folder.glob("*.log")
    data = segment.read_bytes()
    positions = [position for position, _ in formats.headers(data)]
    segment.write_bytes(data[: positions[-1]])
    for file in (*folder.glob("*.snapshot"), *folder.glob("*.index"), *folder.glob("*.timeindex")):
        file.unlink()


@each("release", ["2.8", "4.3", "ottla"], strided=True)
@pytest.mark.parametrize("is_committed", [False, True])
async def test_records_lost_by_the_broker_abort_the_transaction_or_are_fatal(
    release: str, is_committed: bool, tmp_path: Path
) -> None:
    """Records of the open transaction abort it. Records of a committed one are fatal, if the loss is noticed."""
    proxy = ClosingProxy()
    port = await proxy.open()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    settings: dict[str, Any] = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "request_timeout_ms": 500}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        await broker.topic("t")
        proxy.target = broker.ports[0]
        producer = Producer(f"127.0.0.1:{port}", transactional_id="shop", now_ms=broker.clock.now_ms, **settings)
        await producer.start()
        for value in (b"one", b"two"):
            async with producer.transaction():
                await producer.send("t", value)
        await producer.begin()
        if not is_committed:
            await producer.send_and_wait("t", b"three")
        proxy.target = 0
    cut_last_batch(tmp_path / "t-0")
    if is_committed:
        cut_last_batch(tmp_path / "t-0")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    async with running(tmp_path, release=release, overrides=overrides, clock=broker.clock) as broker:
        proxy.target = broker.ports[0]
        async with asyncio.timeout(PATIENCE_S):
            await producer.send("t", b"four")
            if is_committed and release == "2.8":  # with an epoch for each transaction the loss goes unnoticed
                with pytest.raises(errors.OutOfOrderSequence):
                    await producer.commit()
            elif is_committed:
                await producer.commit()
            else:
                with pytest.raises(errors.TransactionFailed) as raised:
                    await producer.commit()
                assert isinstance(raised.value.__cause__, errors.KafkaError)
                assert raised.value.__cause__.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                await producer.abort()
                async with producer.transaction():
                    await producer.send("t", b"five")
            await producer.stop()
    await proxy.close()


# -- sequences


def written(sequences: Sequences[Sequenced], *counts: int) -> list[Sequenced]:
    batches = [Sequenced(count=count) for count in counts]
    for batch in batches:
        sequences.assign(batch)
    return batches


def test_sequences_go_back_to_the_last_acknowledged() -> None:
    sequences: Sequences[Sequenced] = Sequences(1, 0)
    first, second, third = written(sequences, 3, 2, 4)
    sequences.succeeded(first, 10)
    sequences.abandon(second)
    sequences.abandon(third)
    assert not sequences.unfinished and not sequences.in_flight and not sequences.is_in_step
    sequences.rewind()
    assert sequences.next_sequence == 3 and sequences.is_in_step and sequences.may_drain()
    (fourth,) = written(sequences, 1)
    assert fourth.base_sequence == 3 and not fourth.after_gap


def test_sequences_go_back_across_the_wrap() -> None:
    sequences: Sequences[Sequenced] = Sequences(1, 0, next_sequence=2**31 - 2)
    first, second = written(sequences, 2, 1)
    sequences.succeeded(first, 10)
    sequences.abandon(second)
    sequences.rewind()
    assert sequences.next_sequence == 0


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_sequences_go_back_to_the_beginning(is_forgotten: bool) -> None:
    sequences: Sequences[Sequenced] = Sequences(1, 0)
    if is_forgotten:  # all its records were deleted, and the broker forgot it: it begins again
        (first,) = written(sequences, 3)
        sequences.succeeded(first, 10)
    (second,) = written(sequences, 1)
    if is_forgotten:
        sequences.failed(second, ErrorCode.UNKNOWN_PRODUCER_ID, retriable=False, log_start_offset=13)
        assert sequences.restarting
        sequences.give_up(second)
    else:
        sequences.abandon(second)
    sequences.rewind()
    assert sequences.next_sequence == 0 and not sequences.restarting


# -- responses


@pytest.mark.parametrize(
    ("codes", "decides"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 51], 51),
        ([55, 3], 3),
        ([55, 29, 55], 29),
        ([55, 55], 55),
        ([16, 90], 90),
    ],
)
def test_deciding_code_of_several_partitions(codes: list[int], decides: int) -> None:
    # Code 3 is retriable, but a partition that was not attempted because of it has another code.
    assert worst(codes) == decides


@pytest.mark.parametrize(
    ("level", "produce", "end", "offsets", "expected"),
    [(2, 12, 5, 5, True), (3, 13, 5, 6, True), (1, 12, 5, 5, False), (2, 11, 5, 5, False), (2, 12, 4, 5, False)],
)
def test_transactions_v2_depend_on_the_finalized_feature(
    level: int, produce: int, end: int, offsets: int, expected: bool
) -> None:
    requests = {ProduceRequest: produce, EndTxnRequest: end, TxnOffsetCommitRequest: offsets}
    versions = {spec(request).api_key: Versions(0, last) for request, last in requests.items()}
    connection: Any = SimpleNamespace(versions=versions, finalized={"transaction.version": level})
    assert has_v2(connection) is expected
    connection.finalized = {}
    assert not has_v2(connection)


def test_wait_for_delayed_copies_is_as_long_as_for_batches() -> None:
    assert manager.COPIES_LIVE_S >= 2.0
