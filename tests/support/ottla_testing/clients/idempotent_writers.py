"""Idempotent producers that write numbered records to partition 0 until they are stopped.

Each is a function `(address, topic, progress)`; the record with number n has the value `b"n"`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer

from ottla.client import Producer as OttlaProducer
from ottla_testing.clients.four_clients import READERS
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

Acknowledged = dict[int, int]  # number of the record -> its offset
BATCH = 500


class Progress:
    """The acknowledged records of a producer in another thread, for which a test can wait."""

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
            assert self._changed.wait_for(lambda: len(self.offsets) >= count or self.failures, PATIENCE_S)
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
    assert producer.flush(PATIENCE_S) == 0


def kafka_python(address: str, topic: str, progress: Progress) -> None:
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=2, reconnect_backoff_max_ms=200)
    number = 0
    try:
        while not progress.stop.is_set() and not progress.failures:
            sent = [producer.send(topic, b"%d" % (number + n), partition=0) for n in range(BATCH)]
            for n, future in enumerate(sent):
                progress.acknowledged(number + n, future.get(PATIENCE_S).offset)
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


def ottla(in_flight: int, idempotence: str = "required", batch_size: int = 200) -> Callable[[str, str, Progress], None]:
    """Ottla's producer, with small batches, so that many are in flight, and short retry delays."""
    quick: dict[str, Any] = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}
    quick |= {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100}

    async def run(address: str, topic: str, progress: Progress) -> None:
        async with OttlaProducer(
            address,
            enable_idempotence=idempotence,
            max_in_flight_requests_per_connection=in_flight,
            batch_size=batch_size,
            **quick,
        ) as producer:
            number = 0
            while not progress.stop.is_set():
                sent = [await producer.send(topic, b"%d" % (number + n), partition=0) for n in range(BATCH)]
                for n, metadata in enumerate(await asyncio.gather(*sent)):
                    progress.acknowledged(number + n, metadata.offset)
                number += BATCH

    def write(address: str, topic: str, progress: Progress) -> None:
        try:
            asyncio.run(run(address, topic, progress))
        except Exception as error:
            progress.failures.append(error)

    return write


PRODUCERS: dict[str, Callable[[str, str, Progress], None]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "ottla": ottla(5),
    "ottla, 20 in flight": ottla(20),
}


def numbers_in(broker: RunningBroker, topic: str) -> Sequence[int]:
    count = sum(header.record_count for header in broker.stored(topic))
    found = [int(message.value or b"") for message in READERS["confluent-kafka"](broker.address, topic, count)]
    assert len(found) == count
    return found
