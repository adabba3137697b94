"""What was acknowledged is there after a restart, clean or by kill -9, and idempotent producers write nothing twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import kafka.net.inet
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from four_clients import READERS, WRITERS
from kafka import KafkaProducer
from losing_proxy import LosingProxy
from mixed_records import difference, mixed
from running_broker import RunningBroker

pytestmark = pytest.mark.slow

Acknowledged = dict[int, int]  # number of the record -> its offset
BATCH = 500


@pytest.fixture(autouse=True)
def close_what_kafka_python_leaves_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It forgets to close a socket whose connection was refused (3.0.12), as many are while a broker is down."""
    factory: Any = kafka.net.inet.KafkaNetSocket
    opened: list[socket.socket] = []
    make = factory.socket

    def remember(*arguments: Any) -> socket.socket:
        opened.append(make(*arguments))
        return opened[-1]

    monkeypatch.setattr(factory, "socket", remember)
    yield
    for one in opened:
        one.close()


class Progress:
    """What a producer in another thread has had acknowledged, and how the test waits for more of it."""

    def __init__(self) -> None:
        self.offsets: Acknowledged = {}
        self.failures: list[object] = []
        self.stop = threading.Event()
        self._changed = threading.Condition()

    def acknowledged(self, number: int, offset: int) -> None:
        with self._changed:
            self.offsets[number] = offset
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.offsets) >= count or self.failures, 40)
        assert not self.failures, self.failures[0]


def confluent_kafka(address: str, topic: str, progress: Progress) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2})

    def deliver(number: int, error: KafkaError | None, message: object) -> None:
        if error is None:
            progress.acknowledged(number, message.offset())  # type: ignore[attr-defined]
        else:
            progress.failures.append(error)

    number = 0
    while not progress.stop.is_set():
        if len(producer) < BATCH:
            producer.produce(
                topic, b"%d" % number, partition=0, on_delivery=lambda e, m, number=number: deliver(number, e, m)
            )
            number += 1
        producer.poll(0 if len(producer) < BATCH else 0.01)
    assert producer.flush(40) == 0


def kafka_python(address: str, topic: str, progress: Progress) -> None:
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=2, reconnect_backoff_max_ms=200)
    number = 0
    try:
        while not progress.stop.is_set() and not progress.failures:
            sent = [producer.send(topic, b"%d" % (number + n), partition=0) for n in range(BATCH)]
            for n, future in enumerate(sent):
                progress.acknowledged(number + n, future.get(40).offset)
            number += BATCH
    except Exception as error:
        progress.failures.append(error)
    finally:
        producer.close()


def aiokafka(address: str, topic: str, progress: Progress) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True, linger_ms=2)
        number = 0
        async with producer:
            while not progress.stop.is_set():
                sent = [await producer.send(topic, b"%d" % (number + n), partition=0) for n in range(BATCH)]
                for n, metadata in enumerate(await asyncio.gather(*sent)):
                    progress.acknowledged(number + n, metadata.offset)
                number += BATCH

    try:
        asyncio.run(run())
    except Exception as error:
        progress.failures.append(error)


PRODUCERS: dict[str, Callable[[str, str, Progress], None]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def numbers_in(broker: RunningBroker, topic: str) -> Sequence[int]:
    count = sum(header.record_count for header in broker.stored(topic))
    found = [int(message.value or b"") for message in READERS["confluent-kafka"](broker.address, topic, count)]
    assert len(found) == count
    return found


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("client", PRODUCERS)
def test_an_idempotent_producer_goes_on_over_restarts_and_each_record_is_there_once(
    client: str, how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """Three restarts in the midst of writing: nothing acknowledged is lost, nothing is there twice or out of order."""
    topic = create(own_broker.address, "t")
    progress = Progress()
    thread = threading.Thread(target=PRODUCERS[client], args=(own_broker.address, topic, progress))
    thread.start()
    try:
        for _ in range(3):
            progress.wait_for(len(progress.offsets) + scaled(1000))
            own_broker.restart(how)
        progress.wait_for(len(progress.offsets) + scaled(1000))
    finally:
        progress.stop.set()
        thread.join(60)
    assert not progress.failures, progress.failures[0]
    found = numbers_in(own_broker, topic)
    assert {number: found.index(number) for number in list(progress.offsets)[::97]} == dict(
        list(progress.offsets.items())[::97]
    )
    assert found == list(range(len(found)))
    assert set(progress.offsets) <= set(found)


@pytest.mark.parametrize("client", PRODUCERS)
def test_a_lost_answer_makes_no_duplicate(
    client: str, tmp_path: Path, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """The broker has appended, the client is not told and sends again: the broker knows the batch by its sequence."""
    proxy = LosingProxy(every=4)
    running = RunningBroker(tmp_path, advertised_listeners=f"PLAINTEXT://{proxy.address}")
    proxy.target = running.port
    progress = Progress()
    thread = threading.Thread(target=PRODUCERS[client], args=(proxy.address, "t", progress))
    try:
        create(proxy.address, "t")
        thread.start()
        while proxy.lost < 5 * scaled(1):
            progress.wait_for(len(progress.offsets) + 1)
        progress.stop.set()
        thread.join(60)
        assert not progress.failures, progress.failures[0]
        found = numbers_in(running, "t")
        assert found == list(range(len(found)))
        assert all(found[offset] == number for number, offset in progress.offsets.items())
    finally:
        progress.stop.set()
        thread.join(60)
        running.close()
        proxy.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_everything_acknowledged_is_there_after_a_restart(
    how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """Written by each client in another codec; twice, since what was recovered is recovered again."""
    topics: dict[str, list] = {}
    for client, codec in zip(WRITERS, ("gzip", "zstd", "lz4", "snappy"), strict=False):
        plain = mixed(scaled(1500), plain=True, null_values=False)
        topic = create(own_broker.address, f"{client}-{codec}", segment_bytes=1 << 20)
        WRITERS[client](own_broker.address, topic, plain, codec)
        topics[topic] = plain
    for _ in range(2):
        own_broker.restart(how)
        for topic, sent in topics.items():
            found = READERS["confluent-kafka"](own_broker.address, topic, len(sent))
            assert difference([m._replace(headers=()) for m in sent], [m._replace(headers=()) for m in found]) is None
    for topic in topics:  # and writing goes on behind it
        WRITERS["confluent-kafka"](own_broker.address, topic, mixed(10, plain=True))
        assert len(READERS["kafka-python"](own_broker.address, topic, len(topics[topic]) + 10)) >= len(topics[topic])
