"""Real clients that load a broker from threads of the test, and keep what was acknowledged.

Owns the producers, the members of groups, the thread that creates and deletes topics, and their ledgers. A record's
value has its producer and its number, with a padding that depends on the number, so that each record is unique.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PyKafkaError
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing.patience import PATIENCE_S

BURST, PAUSE_SECONDS = 10, 0.01  # some thousand records a second in all: the checks at the end read all of them
WINDOW = 1000  # records of a producer that are not yet acknowledged
KEYS = 50
NOT_ACKNOWLEDGED, NO_OFFSET = -2, -1

Place = tuple[str, int]  # topic, partition


def value_of(name: str, number: int) -> bytes:
    """Returns a record's value: up to some 300 bytes."""
    return b"%s:%d:" % (name.encode(), number) + b"." * (number * 7919 % 301)


def read_value(value: bytes | None) -> tuple[str, int]:
    """Returns (producer, number); fails for bytes that no producer wrote."""
    name, number = (value or b":").split(b":")[:2]
    assert value == value_of(name.decode(), int(number)), f"no producer wrote {value!r}"
    return name.decode(), int(number)


class Ledger:
    """The records that one producer has sent, by number, and their acknowledged offsets.

    The record with a number goes to partition number % partitions, with the key number % KEYS.
    """

    def __init__(self, name: str, topic: str, partitions: int = 1) -> None:
        self.name, self.topic, self.partitions = name, topic, partitions
        self.offsets = array("q")  # by number
        self.acknowledged = 0
        self.failures: list[object] = []

    def next(self) -> tuple[int, bytes, bytes, int]:
        """Returns (number, key, value, partition) of the next record."""
        number = len(self.offsets)
        self.offsets.append(NOT_ACKNOWLEDGED)
        return number, b"%d" % (number % KEYS), value_of(self.name, number), number % self.partitions

    @property
    def waiting(self) -> int:
        return len(self.offsets) - self.acknowledged

    def acknowledge(self, number: int, offset: int | None) -> None:
        self.offsets[number] = NO_OFFSET if offset is None or offset < 0 else offset
        self.acknowledged += 1

    def numbers(self, partition: int) -> list[int]:
        """Returns the numbers sent to a partition, in order."""
        return list(range(partition, len(self.offsets), self.partitions))


Write = Callable[[str, Ledger, threading.Event], None]


# -- producers


def confluent(address: str, ledger: Ledger, stop: threading.Event, *, idempotent: bool) -> None:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": idempotent,
            "max.in.flight": 5 if idempotent else 1,  # with more a plain producer's retries change the order
            "linger.ms": 2,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )

    def delivered(number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            ledger.acknowledge(number, message.offset())
        else:
            ledger.failures.append(error)

    while not stop.is_set() and not ledger.failures:
        for _ in range(BURST if ledger.waiting < WINDOW else 0):
            number, key, value, partition = ledger.next()
            callback = functools.partial(delivered, number)
            producer.produce(ledger.topic, value, key, partition, on_delivery=callback)
        producer.poll(PAUSE_SECONDS)
    if left := producer.flush(PATIENCE_S):
        ledger.failures.append(f"{left} records were not sent")


def kafka_python(address: str, ledger: Ledger, stop: threading.Event, *, idempotent: bool) -> None:
    producer = KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=5 if idempotent else 1,
        acks="all",
        linger_ms=2,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
    )
    try:
        while not stop.is_set() and not ledger.failures:
            for _ in range(BURST if ledger.waiting < WINDOW else 0):
                number, key, value, partition = ledger.next()
                sent = producer.send(ledger.topic, value, key, partition=partition)
                sent.add_callback(lambda metadata, number=number: ledger.acknowledge(number, metadata.offset))
                sent.add_errback(ledger.failures.append)
            stop.wait(PAUSE_SECONDS)
        producer.flush(PATIENCE_S)
    finally:
        producer.close(PATIENCE_S)


def aiokafka(address: str, ledger: Ledger, stop: threading.Event) -> None:
    def delivered(number: int, sent: asyncio.Future[Any]) -> None:
        if error := sent.exception():
            ledger.failures.append(error)
        else:
            ledger.acknowledge(number, sent.result().offset)

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, linger_ms=2, retry_backoff_ms=20
        )
        async with producer:
            while not stop.is_set() and not ledger.failures:
                for _ in range(BURST if ledger.waiting < WINDOW else 0):
                    number, key, value, partition = ledger.next()
                    sent = await producer.send(ledger.topic, value, key, partition)
                    sent.add_done_callback(functools.partial(delivered, number))
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.wait_for(producer.flush(), PATIENCE_S)

    asyncio.run(run())


# -- members of groups


class Seen:
    """The records that a group got and the offsets it committed. One member to a group, so that commits only rise."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.records: dict[Place, array[int]] = {}  # by offset: an index into `names` and the number, -1 for none
        self.committed: dict[Place, int] = {}
        self.failures: list[object] = []
        self.names: list[str] = []

    def record(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """Fails if the offset had another record before."""
        name, number = read_value(value)
        if name not in self.names:
            self.names.append(name)
        found = self.names.index(name) << 40 | number
        known = self.records.setdefault((topic, partition), array("q"))
        if len(known) <= offset:
            known.extend([-1] * (offset + 1000 - len(known)))
        if known[offset] not in (-1, found):
            self.failures.append(f"{topic}-{partition}: offset {offset} was {known[offset]:x} and is {name} {number}")
        known[offset] = found

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Stores acknowledged commits."""
        for place, offset in offsets.items():
            self.committed[place] = max(offset, self.committed.get(place, -1))

    def pairs(self, place: Place) -> Iterator[tuple[int, tuple[str, int]]]:
        """Returns (offset, (producer, number)) of all records read from a partition."""
        for offset, found in enumerate(self.records.get(place, ())):
            if found >= 0:
                yield offset, (self.names[found >> 40], found & ((1 << 40) - 1))


Read = Callable[[str, Seen, list[str], threading.Event], None]
SESSION_MS, HEARTBEAT_MS = 6000, 500


def confluent_member(address: str, seen: Seen, topics: list[str], stop: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": seen.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe(topics)
        while not stop.is_set():
            messages = [m for m in consumer.consume(500, 0.1) if not m.error()]
            for m in messages:
                seen.record(m.topic() or "", m.partition() or 0, m.offset() or 0, m.value())
            if messages:
                with contextlib.suppress(KafkaException):
                    done = consumer.commit(asynchronous=False) or ()
                    seen.commit({(p.topic, p.partition): p.offset for p in done if not p.error and p.offset >= 0})
    finally:
        consumer.close()


def kafka_python_member(address: str, seen: Seen, topics: list[str], stop: threading.Event) -> None:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=address,
        group_id=seen.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=100,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
    )
    try:
        while not stop.is_set():
            batches: Mapping[PyTopicPartition, list[Any]] = {}
            with contextlib.suppress(PyKafkaError):  # it logs a stopped broker
                # Long enough for a join: 3.0.12 loses an assignment that arrives between two polls.
                batches = consumer.poll(2000, max_records=1000)
            if not batches:
                stop.wait(PAUSE_SECONDS)
            for place, records in batches.items():
                for r in records:
                    seen.record(place.topic, place.partition, r.offset, r.value)
            ends = {(p.topic, p.partition): records[-1].offset + 1 for p, records in batches.items()}
            if ends:
                request = {PyTopicPartition(*place): OffsetAndMetadata(end, "", -1) for place, end in ends.items()}
                with contextlib.suppress(PyKafkaError):
                    consumer.commit(request, timeout_ms=5000)
                    seen.commit(ends)
    finally:
        with contextlib.suppress(PyKafkaError):
            consumer.close()


def aiokafka_member(address: str, seen: Seen, topics: list[str], stop: threading.Event) -> None:
    async def run() -> None:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=seen.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=100,
            retry_backoff_ms=20,
        )
        async with consumer:
            while not stop.is_set():
                batches = await consumer.getmany(timeout_ms=100, max_records=1000)
                for place, records in batches.items():
                    for r in records:
                        seen.record(place.topic, place.partition, r.offset, r.value)
                ends = {(p.topic, p.partition): records[-1].offset + 1 for p, records in batches.items()}
                if ends:
                    with contextlib.suppress(AioKafkaError):
                        await consumer.commit({AioTopicPartition(*place): end for place, end in ends.items()})
                        seen.commit(ends)

    asyncio.run(run())


# -- created and deleted topics


class Incarnation(NamedTuple):
    """The topics of one name: the last one (None during a change) and its records."""

    number: int
    exists: bool | None
    acknowledged: int


class Churn:
    """Creates topics, writes to them, deletes them and creates others with the same names."""

    NAMES = tuple(f"churn-{n}" for n in range(6))

    def __init__(self, seed: int) -> None:
        self.known = {name: Incarnation(0, False, 0) for name in self.NAMES}
        self.deleted = 0
        self.failures: list[object] = []
        self._chooser = random.Random(seed)

    def run(self, address: str, stop: threading.Event) -> None:
        quick = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}
        admin = AdminClient({"bootstrap.servers": address, **quick})
        while not stop.wait(self._chooser.random() / 10):
            name = self._chooser.choice(self.NAMES)
            number, exists, _ = self.known[name]
            if exists:
                self.known[name] = Incarnation(number, None, 0)
                deletes = functools.partial(admin.delete_topics, [name], request_timeout=5)
                if not self._until_done(deletes, KafkaError.UNKNOWN_TOPIC_OR_PART, stop):
                    return
                self.known[name] = Incarnation(number, False, 0)
                self.deleted += 1
            else:
                self.known[name] = Incarnation(number + 1, None, 0)
                creates = functools.partial(admin.create_topics, [NewTopic(name, 1)], request_timeout=5)
                if not self._until_done(creates, KafkaError.TOPIC_ALREADY_EXISTS, stop):
                    return
                written = self._write({"bootstrap.servers": address, **quick}, name, number + 1)
                self.known[name] = Incarnation(number + 1, True, written)

    def _until_done(self, request: Callable[[], Mapping[str, Any]], done: int, stop: threading.Event) -> bool:
        """Retries until it is done; "exists" or "unknown" then indicates a lost response. Returns False at the end."""
        while not stop.is_set():
            (response,) = request().values()
            try:
                response.result(PATIENCE_S)
                return True
            except KafkaException as error:
                if error.args[0].code() == done:
                    return True
                if not error.args[0].retriable() and error.args[0].code() >= 0:
                    self.failures.append(error)
                    return False
        return False

    @staticmethod
    def _write(config: dict[str, Any], topic: str, incarnation: int) -> int:
        """Writes acknowledged records; some are written more than once."""
        acknowledged: list[int] = []
        producer = Producer({**config, "linger.ms": 0})
        for number in range(3):
            callback = lambda error, _, number=number: None if error else acknowledged.append(number)  # noqa: E731
            producer.produce(topic, value_of(f"{topic}/{incarnation}", number), partition=0, on_delivery=callback)
        producer.flush(PATIENCE_S)
        return len(acknowledged)


# -- reading whole topics

Records = dict[int, list[tuple[int, str, int]]]  # by partition: offset, producer, number


def whole_topics(address: str, topics: Mapping[str, int]) -> dict[str, Records]:
    """Returns all records of topics, from the log starts on, by topic; the values are partition counts."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[str, Records] = {topic: {p: [] for p in range(count)} for topic, count in topics.items()}
    try:
        open_ends = {(topic, p) for topic, partitions in found.items() for p in partitions}
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in open_ends])
        end = time.monotonic() + PATIENCE_S
        while open_ends:
            messages = consumer.consume(1000, 0.05)
            if messages:
                end = time.monotonic() + PATIENCE_S
            assert time.monotonic() < end, f"nothing more comes, before the end of {open_ends}"
            for m in messages:
                topic, partition = m.topic() or "", m.partition() or 0
                if error := m.error():
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_ends.discard((topic, partition))
                else:
                    found[topic][partition].append((m.offset() or 0, *read_value(m.value())))
        return found
    finally:
        consumer.close()
