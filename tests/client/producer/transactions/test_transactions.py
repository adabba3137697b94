"""The transactional producer against many releases: visible records, fencing, lost responses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Consumer, GroupMetadata, Producer
from ottla.client.net import errors
from ottla.client.producer.transactions import manager
from ottla.client.producer.transactions.state_machine import State
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.schema import spec
from ottla_testing.client.closing_proxy import AFTER, BEFORE, ClosingProxy
from ottla_testing.client.produced_logs import Broker, headers_of, producing, running  # type: ignore[attr-defined]
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

RELEASES = ("0.11", "1.0", "2.0", "2.4", "2.5", "2.8", "3.0", "3.5", "3.6", "3.9", "4.0", "4.3", "ottla")
FEW = ("0.11", "2.4", "2.8", "3.9", "4.3", "ottla")
V2 = ("4.0", "4.3", "ottla")
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def consuming(broker: Broker, isolation: str = "read_committed", **options: Any) -> Consumer:
    options.setdefault("topics", ["t"])
    return Consumer(
        f"127.0.0.1:{broker.ports[0]}", isolation=isolation, offset_reset="earliest", retry_backoff_ms=5, **options
    )


async def seen(broker: Broker, topic: str = "t", isolation: str = "read_committed") -> list[bytes | None]:
    """Returns all visible records of a topic, in any order of partitions."""
    async with consuming(broker, isolation, topics=[topic]) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while not consumer.assignment():
                await asyncio.sleep(0)
            ends = await consumer.end_offsets(consumer.assignment())
            found = []
            while any([await consumer.position(*where) < end for where, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    found += [record.value for record in records]
    return sorted(found, key=lambda value: value or b"")


async def committed(broker: Broker, group: str = "g", where: tuple[str, int] = ("t", 0)) -> int | None:
    async with consuming(broker, "read_uncommitted", topics=None, assign=[where], group=group) as consumer:
        found = (await consumer.committed([where]))[where]
        return None if found is None else found.offset


def status(producer: Producer) -> Any:
    assert producer._sender is not None and producer._sender.transactions is not None
    return producer._sender.transactions.status


def some(letter: str, count: int = 10) -> list[bytes]:
    return [f"{letter}{n:02}".encode() for n in range(count)]


async def send(producer: Producer, values: list[bytes], topic: str = "t") -> list[asyncio.Future[Any]]:
    return [await producer.send(topic, value, partition=n % 2) for n, value in enumerate(values)]


@pytest.fixture(autouse=True)
def copies_die_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait for delayed copies: nothing arrives late here."""
    monkeypatch.setattr(manager, "COPIES_LIVE_S", 0.05)


# -- visible records


@each("release", RELEASES, strided=True)
async def test_committed_records_are_visible_and_aborted_ones_are_not(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop") as producer:
            assert status(producer).state is State.NEW
            async with producer.transaction() as same:
                assert same is producer
                futures = await send(producer, some("a"))
                await producer.send_offsets_to_transaction({("t", 0): 5}, "g")
                assert await committed(broker) is None
            assert all(future.done() and future.exception() is None for future in futures)
            assert status(producer).is_v2 is (release in V2)
            assert await committed(broker) == 5
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await send(producer, some("b"))
                    await producer.send_offsets_to_transaction({("t", 0): 7}, "g")
                    await producer.flush()
                    raise ZeroDivisionError
            assert status(producer).state is State.READY and await committed(broker) == 5
            await producer.begin()
            await send(producer, some("c"))
            await producer.flush()
            assert await seen(broker) == some("a")  # the last is open
            assert await seen(broker, isolation="read_uncommitted") == some("a") + some("b") + some("c")
            await producer.commit()
        assert await seen(broker) == some("a") + some("c")
        epochs = [header.producer_epoch for header in headers_of(broker, "t") if not header.is_control]
        assert len(set(epochs)) == (3 if release in V2 else 1)
        assert {header.producer_id for header in headers_of(broker, "t")} == {status(producer).producer_id}
        assert all(header.is_transactional for header in headers_of(broker, "t"))


@each("release", FEW, strided=True)
async def test_empty_transactions_commit_and_abort(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop") as producer:
            for _ in range(3):
                async with producer.transaction():
                    pass
                await producer.begin()
                await producer.abort()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({("t", 1): 9}, "g")
                await producer.send_offsets_to_transaction({}, "g")
        assert await committed(broker, where=("t", 1)) == 9
        assert headers_of(broker, "t") == [] and headers_of(broker, "t", 1) == []


async def test_open_transaction_is_aborted_when_its_producer_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop") as producer:
            await producer.begin()
            futures = await send(producer, some("a"))
            await producer.flush()
            late = await producer.send("t", b"late", partition=0)
        assert await seen(broker) == []
        assert [future.exception() for future in futures] == [None] * 10
        assert late.exception() is None or isinstance(late.exception(), errors.TransactionAborted)
        assert not broker.log("t").open_transactions()


@each("release", ["3.9", "ottla"], strided=True)
async def test_unsent_records_fail_with_the_abort(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop", linger_ms=60_000) as producer:
            await producer.begin()
            futures = await send(producer, some("a"))
            await producer.abort()
            for future in futures:
                with pytest.raises(errors.TransactionAborted):
                    await future
            async with producer.transaction():
                await send(producer, some("b"))
        assert await seen(broker) == some("b") == await seen(broker, isolation="read_uncommitted")


# -- calls in a wrong state


async def test_calls_in_a_wrong_state_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        async with producing(broker) as plain:
            for call in (plain.begin, plain.commit, plain.abort, plain.init_transactions):
                with pytest.raises(errors.InvalidTransactionState, match="transactional_id"):
                    await call()
        producer = Producer(f"127.0.0.1:{broker.ports[0]}", transactional_id="shop")
        with pytest.raises(errors.ClientClosed):
            await producer.begin()
        async with producer:
            for call in (producer.commit, producer.abort):
                with pytest.raises(errors.InvalidTransactionState, match="no producer id"):
                    await call()
            await producer.init_transactions()
            await producer.init_transactions()
            assert status(producer).epoch == 0
            with pytest.raises(errors.InvalidTransactionState, match="needs an open transaction"):
                await producer.send("t", b"")
            with pytest.raises(errors.InvalidTransactionState, match="needs an open transaction"):
                await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
            await producer.begin()
            with pytest.raises(errors.InvalidTransactionState, match="has a transaction open"):
                await producer.begin()
            with pytest.raises(errors.ConfigError):
                await producer.send_offsets_to_transaction({("t", 0): -1}, "g")
            await producer.commit()
            with pytest.raises(errors.InvalidTransactionState, match="no transaction open"):
                await producer.commit()
        with pytest.raises(errors.ClientClosed):
            await producer.begin()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"transactional_id": ""}, "transactional.id"),
        ({"transactional_id": "x" * 32768}, "transactional.id"),
        ({"transactional_id": "x", "acks": 1}, "acks=all"),
        ({"transactional_id": "x", "enable_idempotence": "off"}, "enable.idempotence"),
        ({"transaction_timeout_ms": 0}, "transaction.timeout.ms"),
    ],
)
def test_invalid_options_raise_config_error(options: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.ConfigError, match=match):
        Producer("127.0.0.1:1", **options)


def test_transactional_id_requires_idempotence() -> None:
    config = {"transactional.id": "shop", "transaction.timeout.ms": "5000"}
    producer = Producer.from_config(config)
    assert producer.options.enable_idempotence == "required" and producer.options.transaction_timeout_ms == 5000


@each("release", ["0.9", "0.10.2"], strided=True)
async def test_brokers_without_transactions_raise_transactions_unsupported(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, producing(broker, transactional_id="shop") as producer:
        with pytest.raises(errors.TransactionsUnsupported):
            await producer.begin()
        with pytest.raises(errors.ProducerFailed):
            await producer.begin()


async def test_transaction_timeout_above_the_brokers_maximum_is_fatal(tmp_path: Path) -> None:
    overrides = {"transaction.max.timeout.ms": "1000"}
    async with running(tmp_path, overrides=overrides) as broker, producing(broker, transactional_id="shop") as producer:
        with pytest.raises(errors.ProducerFailed, match="INVALID_TRANSACTION_TIMEOUT"):
            await producer.init_transactions()


# -- errors that end a transaction, or the producer


@each("release", RELEASES, strided=True)
async def test_refused_batch_fails_the_transaction_and_the_next_one_works(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2, {"max.message.bytes": "2000"})
        async with producing(broker, transactional_id="shop") as producer:
            async with producer.transaction():
                await send(producer, some("a"))
            await producer.begin()
            await send(producer, some("b"))
            large = await producer.send("t", bytes(3000), partition=0)
            with pytest.raises(errors.TransactionFailed) as raised:
                await producer.commit()
            assert isinstance(raised.value.__cause__, errors.MessageTooLarge)
            with pytest.raises(errors.MessageTooLarge):
                await large
            with pytest.raises(errors.TransactionFailed):
                await producer.send("t", b"more")
            with pytest.raises(errors.TransactionFailed):
                await producer.commit()
            await producer.abort()
            with pytest.raises(errors.TransactionFailed):
                async with producer.transaction():
                    await producer.send("t", bytes(3000), partition=1)
            async with producer.transaction():
                await send(producer, some("c"))
        assert await seen(broker) == some("a") + some("c")


@each("release", FEW, strided=True)
@pytest.mark.parametrize("call", ["commit", "offsets"])
async def test_zombie_is_fenced(release: str, call: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with (
            producing(broker, transactional_id="shop") as zombie,
            producing(broker, transactional_id="shop") as producer,
        ):
            await zombie.begin()
            await send(zombie, some("a"))
            await zombie.flush()
            await producer.init_transactions()
            with pytest.raises(errors.ProducerFenced, match="'shop'"):
                if call == "offsets":
                    await zombie.send_offsets_to_transaction({("t", 0): 1}, "g")
                await zombie.commit()
            with pytest.raises(errors.ProducerFailed):
                await zombie.begin()
            async with producer.transaction():
                await send(producer, some("b"))
        assert await seen(broker) == some("b")


@each("release", FEW, strided=True)
async def test_zombie_that_only_writes_is_fenced_by_its_abort(release: str, tmp_path: Path) -> None:
    """A partition only knows that an epoch is old; the coordinator knows the reason."""
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with (
            producing(broker, transactional_id="shop") as zombie,
            producing(broker, transactional_id="shop") as producer,
        ):
            await zombie.begin()
            await zombie.send_and_wait("t", b"a", partition=0)
            await producer.init_transactions()
            with pytest.raises(errors.KafkaError) as raised:
                await zombie.send_and_wait("t", b"z", partition=0)
            assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(errors.TransactionFailed):
                await zombie.commit()
            with pytest.raises(errors.ProducerFenced):
                await zombie.abort()


@each("release", FEW, strided=True)
async def test_transaction_exceeding_its_timeout_is_fenced(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop", transaction_timeout_ms=1000) as producer:
            await producer.begin()
            await send(producer, some("a"))
            await producer.flush()
            broker.clock.advance(60_000)
            with pytest.raises((errors.ProducerFenced, errors.TransactionFailed)):
                await producer.commit()
            if isinstance(status(producer).error, errors.ProducerFenced):
                return
            await producer.abort()
            async with producer.transaction():
                await send(producer, some("b"))
            assert await seen(broker) == some("b")


# -- lost connections, before and after each request


@contextlib.asynccontextmanager
async def through_a_proxy(folder: Path, release: str) -> AsyncIterator[tuple[Broker, ClosingProxy]]:
    proxy = ClosingProxy()
    port = await proxy.open()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    try:
        async with running(folder, release=release, overrides=overrides) as broker:
            await broker.topic("t", 2)
            proxy.target = broker.ports[0]
            broker.proxy_port = port  # type: ignore[attr-defined]
            yield broker, proxy
    finally:
        await proxy.close()


def through(broker: Broker, **options: Any) -> Producer:
    settings: dict[str, Any] = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "transactional_id": "shop", **options}
    settings["now_ms"] = broker.clock.now_ms
    return Producer(f"127.0.0.1:{broker.proxy_port}", **settings)  # type: ignore[attr-defined]


OF_BOTH = (FindCoordinatorRequest, InitProducerIdRequest, ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)
OF_V1 = (*OF_BOTH, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest)
EACH = [
    pytest.param(release, spec(request).api_key, where, id=f"{release}-{request.__name__[:-7]}-{where}")
    for where in (BEFORE, AFTER)
    for release in ("0.11", "2.8", "3.9", "ottla")
    for request in (OF_BOTH if release in V2 else OF_V1)
]


@each(("release", "api_key", "where"), EACH, strided=True)
async def test_connection_lost_at_each_request_of_a_commit(
    release: str, api_key: int, where: str, tmp_path: Path
) -> None:
    async with through_a_proxy(tmp_path, release) as (broker, proxy), through(broker) as producer:
        proxy.shut_on(api_key, where)
        async with asyncio.timeout(PATIENCE_S):
            async with producer.transaction():
                await send(producer, some("a"))
                await producer.send_offsets_to_transaction({("t", 0): 5}, "g")
            assert proxy.cuts == 1
            async with producer.transaction():
                await send(producer, some("b"))
        assert await seen(broker) == some("a") + some("b") and await committed(broker) == 5
        assert not broker.log("t", 0).open_transactions() and not broker.log("t", 1).open_transactions()


@pytest.mark.parametrize("where", [BEFORE, AFTER])
@each("release", ["2.4", "3.9", "ottla"], strided=True)
async def test_connection_lost_at_each_request_of_an_abort(release: str, where: str, tmp_path: Path) -> None:
    async with through_a_proxy(tmp_path, release) as (broker, proxy), through(broker) as producer:
        async with asyncio.timeout(PATIENCE_S):
            await producer.begin()
            await send(producer, some("a"))
            await producer.flush()
            proxy.shut_on(spec(EndTxnRequest).api_key, where)
            await producer.abort()
            assert proxy.cuts == 1
            async with producer.transaction():
                await send(producer, some("b"))
        assert await seen(broker) == some("b")


@each("release", ["2.4", "2.8", "4.3"], strided=True)
async def test_abort_of_a_batch_with_a_lost_response(release: str, tmp_path: Path) -> None:
    """Its records must not appear in the next transaction: it has another epoch, or the batch has a response first."""
    async with through_a_proxy(tmp_path, release) as (broker, proxy), through(broker) as producer:
        async with asyncio.timeout(PATIENCE_S):
            async with producer.transaction():
                await send(producer, some("a"))
            epoch = status(producer).epoch
            await producer.begin()
            shut = asyncio.Event()
            proxy.shut_on(spec(ProduceRequest).api_key, AFTER, shut.set)
            futures = await send(producer, some("b"))
            await shut.wait()
            await producer.abort()
            assert status(producer).epoch == epoch + (release != "2.4")
            async with producer.transaction():
                await send(producer, some("c"))
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(one, tuple | errors.TransactionAborted | errors.ConnectionLost) for one in outcomes)
        assert await seen(broker) == some("a") + some("c")


async def test_commit_without_a_response_in_time_may_be_repeated(tmp_path: Path) -> None:
    async with through_a_proxy(tmp_path, "ottla") as (broker, proxy), through(broker, max_block_ms=200) as producer:
        await producer.begin()
        await send(producer, some("a"))
        port = proxy.target

        def away() -> None:
            proxy.target = 0

        proxy.shut_on(spec(EndTxnRequest).api_key, AFTER, away)
        for _ in range(2):
            with pytest.raises(errors.TransactionUnsettled):
                await producer.commit()
        with pytest.raises(errors.InvalidTransactionState, match="result is unknown"):
            await producer.abort()
        with pytest.raises(errors.InvalidTransactionState, match="committing"):
            await producer.begin()
        proxy.target = port
        while status(producer).state is not State.READY:
            await asyncio.sleep(0.01)
        await producer.commit()  # returns the outcome, though the transaction is over
        async with producer.transaction():
            await send(producer, some("b"))
        assert await seen(broker) == some("a") + some("b")


@each("release", ["2.4", "3.9", "4.3", "ottla"], strided=True)
@pytest.mark.parametrize("api_key", [spec(ProduceRequest).api_key, spec(EndTxnRequest).api_key])
async def test_broker_restart_within_a_transaction(release: str, api_key: int, tmp_path: Path) -> None:
    proxy = ClosingProxy()
    port = await proxy.open()
    overrides = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    stopped = asyncio.Event()

    def stop() -> None:
        proxy.target = 0
        stopped.set()

    try:
        async with running(tmp_path, release=release, overrides=overrides) as broker:
            await broker.topic("t", 2)
            proxy.target = broker.ports[0]
            broker.proxy_port = port  # type: ignore[attr-defined]
            producer = through(broker)
            await producer.start()
            async with producer.transaction():
                await send(producer, some("a"))
            await producer.begin()
            await send(producer, some("b", 4))
            await producer.flush()
            proxy.shut_on(api_key, AFTER, stop)
            await send(producer, some("c", 4))
            committing = asyncio.create_task(producer.commit())
            await stopped.wait()
        async with running(tmp_path, release=release, overrides=overrides, clock=broker.clock) as broker:
            proxy.target = broker.ports[0]
            async with asyncio.timeout(PATIENCE_S):
                await committing
                async with producer.transaction():
                    await send(producer, some("d"))
            await producer.stop()
            assert await seen(broker) == some("a") + some("b", 4) + some("c", 4) + some("d")
    finally:
        await proxy.close()


# -- offsets


@contextlib.asynccontextmanager
async def grouping(tmp_path: Path, release: str) -> AsyncIterator[Broker]:
    """Runs a broker whose clock advances continuously: this ends the initial rebalance delay."""
    async with running(tmp_path, release=release, overrides=AT_ONCE) as broker:

        async def go_on() -> None:
            while True:
                broker.clock.advance(1)
                await asyncio.sleep(0.002)

        ticking = asyncio.ensure_future(go_on())
        try:
            yield broker
        finally:
            ticking.cancel()


NO_COMMITS: dict[str, Any] = {"group": "g", "enable_auto_commit": False}


@each("release", FEW, strided=True)
async def test_offsets_of_an_unknown_member_are_refused(release: str, tmp_path: Path) -> None:
    knows_members = release not in ("0.11", "2.4")
    async with grouping(tmp_path, release) as broker:
        await broker.topic("t", 2)
        async with producing(broker, transactional_id="shop") as producer, consuming(broker, **NO_COMMITS) as consumer:
            whose = consumer.group_metadata()
            assert whose.group == "g" and GroupMetadata("g") == GroupMetadata("g", -1, "", None)
            await producer.begin()
            await send(producer, some("a"))
            async with asyncio.timeout(PATIENCE_S):
                while not consumer.assignment():
                    await asyncio.sleep(0.005)
            whose = consumer.group_metadata()
            assert whose.generation >= 1 and whose.member_id
            if not knows_members:
                with pytest.raises(errors.UnsupportedVersion, match="KIP-447"):
                    await producer.send_offsets_to_transaction({("t", 0): 3}, whose)
                await producer.abort()
                return
            await producer.send_offsets_to_transaction({("t", 0): 3}, whose)
            await producer.commit()
            assert await committed(broker) == 3
            for other, code in (
                (whose._replace(generation=whose.generation + 1), ErrorCode.ILLEGAL_GENERATION),
                (whose._replace(member_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
            ):
                await producer.begin()
                await send(producer, some("b"))
                with pytest.raises(errors.KafkaError) as raised:
                    await producer.send_offsets_to_transaction({("t", 0): 9}, other)
                assert raised.value.code is code
                with pytest.raises(errors.TransactionFailed):
                    await producer.commit()
                await producer.abort()
        assert await committed(broker) == 3 and await seen(broker) == some("a")


@each("release", ["2.8", "4.3", "ottla"], strided=True)
async def test_read_transform_write_is_exactly_once(release: str, tmp_path: Path) -> None:
    """Each input is once in the output, though every third transaction is aborted and read again."""
    inputs = some("i", 60)
    async with grouping(tmp_path, release) as broker:
        await broker.topic("in", 2)
        await broker.topic("t", 2)
        async with producing(broker, batch_size=0) as feeder:
            for n, value in enumerate(inputs):
                await feeder.send("in", value, partition=n % 2)
        reading: dict[str, Any] = {"topics": ["in"], "max_poll_records": 7, **NO_COMMITS}
        async with producing(broker, transactional_id="shop") as producer:
            done = rounds = 0
            while done < len(inputs):
                async with consuming(broker, **reading) as consumer, asyncio.timeout(PATIENCE_S):
                    while done < len(inputs):
                        taken = await consumer.getmany(timeout_ms=1000)
                        await producer.begin()
                        for records in taken.values():
                            for record in records:
                                await producer.send("t", b"out " + (record.value or b""), partition=record.partition)
                        offsets = {where: records[-1].offset + 1 for where, records in taken.items()}
                        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                        rounds += 1
                        if rounds % 3 == 0:
                            await producer.abort()
                            break  # as after a crash: another member reads on from the committed offsets
                        await producer.commit()
                        done += sum(map(len, taken.values()))
        assert await seen(broker) == sorted(b"out " + value for value in inputs)
        assert rounds > 9
