"""Transactions beside plain idempotent writing, by the same client in the same shape: so many records, then the end.

Owns this measure's workloads and names. Plain writing waits for its acknowledgements where a transaction commits, so
that the share says what the transaction itself costs; beside it stands the share of writing that never waits.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from peers import Peer
from raw import BenchError

from ottla import client

COUNTS = (1, 10, 100)  # records of a transaction
SIZES = {"100 B": 100, "1 KiB": 1024}
CALL_SECONDS = 10.0
WARM_UP = 5  # transactions
MOCK = "mock"
CASES = [(f"{count} x {label}", count, size) for label, size in SIZES.items() for count in COUNTS]
LABELS = tuple(f"transactions {case}" for case, _, _ in CASES)
OWN_LABELS = tuple(f"transactions own {case}" for case, _, _ in CASES)
MOST = COUNTS[-1]
SHARES = tuple(f"transactions share {MOST} x {label}" for label in SIZES)
OWN_SHARES = tuple(f"transactions own share {MOST} x {label}" for label in SIZES)
STREAMS = tuple(f"transactions stream {MOST} x {label}" for label in SIZES)
OWN_STREAMS = tuple(f"transactions own stream {MOST} x {label}" for label in SIZES)

Rates = dict[str, float]
_ids = itertools.count(1)


def for_a_while(seconds: float, one: Callable[[], object]) -> tuple[int, float]:
    """How often in how many seconds."""
    started = now = time.perf_counter()
    times = 0
    while now - started < seconds:
        one()
        times += 1
        now = time.perf_counter()
    return times, now - started


def check_seen(peer: Peer, topic: str, records: int) -> None:
    """A reader of committed records gets all of them and no more; the mock keeps too few to tell."""
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


class Confluent:
    """confluent-kafka with its defaults, all acknowledged."""

    def __init__(self, peer: Peer, topic: str, value: bytes, transactional: bool) -> None:
        self.failed: list[str] = []
        config: dict[str, Any] = {"bootstrap.servers": peer.bootstrap, "log_level": 0, "enable.idempotence": True}
        config |= {"delivery.report.only.error": True, "on_delivery": lambda error, _: self.failed.append(str(error))}
        if transactional:
            config["transactional.id"] = f"bench-{next(_ids)}"
        self.producer = Producer(config)
        self.topic, self.value, self.transactional = topic, value, transactional
        self.records = 0
        if transactional:
            self.producer.init_transactions(CALL_SECONDS)

    def write(self, count: int) -> None:
        produce, topic, value = self.producer.produce, self.topic, self.value
        for _ in range(count):
            produce(topic, value, partition=0)
        self.records += count

    def transact(self, count: int) -> None:
        self.producer.begin_transaction()
        self.write(count)
        self.producer.commit_transaction(CALL_SECONDS)

    def write_and_wait(self, count: int) -> None:
        self.write(count)
        self.flush()

    def flush(self) -> None:
        if self.producer.flush(CALL_SECONDS):
            raise BenchError(f"records are not acknowledged within {CALL_SECONDS:g} s")

    def stream(self, count: int) -> None:
        """Never waits but for room."""
        try:
            self.write(count)
        except BufferError as error:
            raise BenchError("the client's queue is full: its share would not be one of the broker") from error
        self.producer.poll(0)

    def check(self, peer: Peer) -> None:
        if self.failed:
            raise BenchError(f"{len(self.failed)} records failed, {self.failed[0]}")
        if self.transactional:
            check_seen(peer, self.topic, self.records)


def by_confluent(peer: Peer, topics: Callable[[], str], seconds: float) -> Rates:
    """Transactions per second, and shares."""
    try:
        return _by_confluent(peer, topics, seconds)
    except KafkaException as error:
        raise BenchError(f"confluent-kafka's transactions: {error.args[0].str()}") from error


def _by_confluent(peer: Peer, topics: Callable[[], str], seconds: float) -> Rates:
    found: Rates = {}
    for label, size in SIZES.items():
        plain = Confluent(peer, topics(), bytes(size), False)
        transactional = Confluent(peer, topics(), bytes(size), True)
        for _ in range(WARM_UP):
            plain.write_and_wait(1)
            transactional.transact(1)
        for count in COUNTS:
            times, took = for_a_while(seconds, partial(transactional.transact, count))
            found[f"transactions {count} x {label}"] = rate = times / took
        times, took = for_a_while(seconds, partial(plain.write_and_wait, MOST))
        found[f"transactions share {MOST} x {label}"] = rate / (times / took)
        started = time.perf_counter()
        times, _ = for_a_while(seconds, partial(plain.stream, MOST))
        plain.flush()
        found[f"transactions stream {MOST} x {label}"] = rate / (times / (time.perf_counter() - started))
        for one in (plain, transactional):
            one.check(peer)
    return found


# Our own client


async def _own(peer: Peer, topics: Callable[[], str], label: str, seconds: float) -> Rates:
    value = bytes(SIZES[label])
    found: Rates = {}
    topic, plain_topic = topics(), topics()
    records, rate = WARM_UP, 0.0

    async with (
        client.Producer(peer.bootstrap, transactional_id=f"bench-own-{next(_ids)}") as transactional,
        client.Producer(peer.bootstrap, enable_idempotence="required") as plain,
    ):

        async def transact(count: int) -> None:
            await transactional.begin()
            for _ in range(count):
                await transactional.send(topic, value, partition=0)
            await transactional.commit()

        async def write_and_wait(count: int) -> None:
            for _ in range(count):
                await plain.send(plain_topic, value, partition=0)
            await plain.flush()

        for _ in range(WARM_UP):
            await transact(1)
            await write_and_wait(1)
        for count in COUNTS:
            times, started = 0, time.perf_counter()
            while (took := time.perf_counter() - started) < seconds:
                await transact(count)
                times += 1
            records += times * count
            found[f"transactions own {count} x {label}"] = rate = times / took
        for kind in ("share", "stream"):
            times, started = 0, time.perf_counter()
            while time.perf_counter() - started < seconds:
                if kind == "share":
                    await write_and_wait(MOST)
                else:
                    for _ in range(MOST):
                        await plain.send(plain_topic, value, partition=0)
                times += 1
            await plain.flush()
            found[f"transactions own {kind} {MOST} x {label}"] = rate / (times / (time.perf_counter() - started))
    check_seen(peer, topic, records)
    return found


def by_our_own(peer: Peer, topics: Callable[[], str], seconds: float) -> Rates:
    """Transactions per second, and shares."""
    found: Rates = {}
    for label in SIZES:
        found |= asyncio.run(_own(peer, topics, label, seconds))
    return found
