"""Transactions compared with plain idempotent writing, by the same client: a number of records, then a commit.
Owns this measure's workloads and names. For the share, plain writing waits for its acknowledgements where a transaction
commits, so that it shows the cost of the transaction itself; the other share is for writing without waiting.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from ottla import client
from ottla_testing.bench.peers import Peer
from ottla_testing.bench.raw import BenchError

COUNTS = (1, 10, 100)  # records per transaction
SIZES = {"100 B": 100, "1 KiB": 1024}
CALL_SECONDS = 10.0
WARM_UP = 5  # transactions
PAIRS = 5  # short runs of each, alternating: other load affects both
MOCK = "mock"
CASES = [(f"{count} x {label}", count, size) for label, size in SIZES.items() for count in COUNTS]
MOST = COUNTS[-1]
PLAIN = ("share", "stream")  # the kinds of plain writing
LABELS = tuple(f"transactions {case}" for case, _, _ in CASES)
OWN_LABELS = tuple(f"transactions own {case}" for case, _, _ in CASES)
SHARES = tuple(f"transactions share {MOST} x {label}" for label in SIZES)
OWN_SHARES = tuple(f"transactions own share {MOST} x {label}" for label in SIZES)
STREAMS = tuple(f"transactions stream {MOST} x {label}" for label in SIZES)
OWN_STREAMS = tuple(f"transactions own stream {MOST} x {label}" for label in SIZES)

Rates = dict[str, float]
Topics = Callable[[], str]
_ids = itertools.count(1)


class Client(Protocol):
    """A producer; `records` is the number that it has written."""

    records: int

    async def transact(self, count: int) -> None: ...

    async def write(self, count: int) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


Make = Callable[[Peer, str, bytes, bool], Awaitable[Client]]


async def runs_per_second(seconds: float, one: Callable[[int], Awaitable[None]], count: int, end: Client) -> float:
    """Returns the runs per second; `end` is flushed before the clock stops."""
    started = now = time.perf_counter()
    times = 0
    while now - started < seconds:
        await one(count)
        times += 1
        now = time.perf_counter()
    await end.flush()
    return times / (time.perf_counter() - started)


def check_seen(peer: Peer, topic: str, records: int) -> None:
    """Checks that a read_committed consumer gets exactly these records, except from the mock, which keeps too few."""
    if peer.name == MOCK:
        return
    consumer = Consumer(
        {"bootstrap.servers": peer.bootstrap, "group.id": "bench", "log_level": 0, "enable.auto.commit": False}
        | {"isolation.level": "read_committed", "fetch.queue.backoff.ms": 1}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found, deadline = 0, time.monotonic() + CALL_SECONDS
        while found < records and time.monotonic() < deadline:
            messages = consumer.consume(min(1000, records - found), 0.1)
            found += sum(message.error() is None for message in messages)
        found += sum(message.error() is None for message in consumer.consume(1, 0.01))
        if found != records:
            raise BenchError(f"{found} records of {records} can be read")
    finally:
        consumer.close()


async def _rates(peer: Peer, topics: Topics, make: Make, words: str, seconds: float) -> Rates:
    found: Rates = {}
    for label, size in SIZES.items():
        topic = topics()
        plain = await make(peer, topics(), bytes(size), False)
        transactional = await make(peer, topic, bytes(size), True)

        async def write_and_wait(count: int, plain: Client = plain) -> None:
            await plain.write(count)
            await plain.flush()

        for _ in range(WARM_UP):
            await write_and_wait(1)
            await transactional.transact(1)
        for count in COUNTS:
            rate = await runs_per_second(seconds, transactional.transact, count, transactional)
            found[f"{words} {count} x {label}"] = rate
        for kind, one in zip(PLAIN, (write_and_wait, plain.write), strict=True):
            shares: list[float] = []
            for _ in range(PAIRS):
                rate = await runs_per_second(seconds / PAIRS, transactional.transact, MOST, transactional)
                shares.append(rate / await runs_per_second(seconds / PAIRS, one, MOST, plain))
            found[f"{words} {kind} {MOST} x {label}"] = statistics.median(shares)
        await plain.close()
        await transactional.close()
        check_seen(peer, topic, transactional.records)
    return found


class Confluent:
    """confluent-kafka with its defaults and acks=all; its calls block the event loop, where nothing else runs."""

    def __init__(self, peer: Peer, topic: str, value: bytes, transactional: bool) -> None:
        self.failed: list[str] = []
        config: dict[str, Any] = {"bootstrap.servers": peer.bootstrap, "log_level": 0, "enable.idempotence": True}
        config |= {"delivery.report.only.error": True, "on_delivery": lambda error, _: self.failed.append(str(error))}
        config |= {"queue.buffering.max.messages": 1_000_000}  # room for a short run that never waits
        if transactional:
            config["transactional.id"] = f"bench-{next(_ids)}"
        self.producer = Producer(config)
        self.topic, self.value = topic, value
        self.records = 0
        if transactional:
            self.producer.init_transactions(CALL_SECONDS)

    async def write(self, count: int) -> None:
        produce, topic, value = self.producer.produce, self.topic, self.value
        for _ in range(count):
            produce(topic, value, partition=0)
        self.producer.poll(0)
        self.records += count

    async def transact(self, count: int) -> None:
        self.producer.begin_transaction()
        await self.write(count)
        self.producer.commit_transaction(CALL_SECONDS)

    async def flush(self) -> None:
        if self.producer.flush(CALL_SECONDS):
            raise BenchError(f"records are not acknowledged within {CALL_SECONDS:g} s")

    async def close(self) -> None:
        if self.failed:
            raise BenchError(f"{len(self.failed)} records failed, {self.failed[0]}")


async def _confluent(peer: Peer, topic: str, value: bytes, transactional: bool) -> Confluent:
    return Confluent(peer, topic, value, transactional)


def by_confluent(peer: Peer, topics: Topics, seconds: float) -> Rates:
    """Returns transactions per second, and shares."""
    try:
        return asyncio.run(_rates(peer, topics, _confluent, "transactions", seconds))
    except (KafkaException, BufferError) as error:
        raise BenchError(f"confluent-kafka's transactions: {error}") from error


class Own:
    """Ottla's client with its defaults, idempotent, acks=all."""

    def __init__(self, producer: client.Producer, topic: str, value: bytes) -> None:
        self.producer, self.topic, self.value = producer, topic, value
        self.records = 0

    async def write(self, count: int) -> None:
        send, topic, value = self.producer.send, self.topic, self.value
        for _ in range(count):
            await send(topic, value, partition=0)
        self.records += count

    async def transact(self, count: int) -> None:
        await self.producer.begin()
        await self.write(count)
        await self.producer.commit()

    async def flush(self) -> None:
        await self.producer.flush()

    async def close(self) -> None:
        await self.producer.stop()


async def _own(peer: Peer, topic: str, value: bytes, transactional: bool) -> Own:
    transactional_id = f"bench-own-{next(_ids)}" if transactional else None
    producer = client.Producer(peer.bootstrap, enable_idempotence="required", transactional_id=transactional_id)
    await producer.start()
    return Own(producer, topic, value)


def by_our_own(peer: Peer, topics: Topics, seconds: float) -> Rates:
    """Returns transactions per second, and shares."""
    return asyncio.run(_rates(peer, topics, _own, "transactions own", seconds))
