"""Transactional and idempotent producers of clients continue after DeleteRecords deleted all their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from ottla.broker import Embedded
from ottla_testing.clients.transactional import PRODUCERS, librdkafka

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")
ROUNDS = 3
RELEASES = ["2.4", "4.3", "ottla"]


@pytest.fixture(params=RELEASES)
def broker(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    with Embedded(release=request.param) as embedded:
        yield embedded


def delete_all(broker: Embedded, topic: str, kept: int = 0) -> None:
    """Deletes all records except for the last `kept` offsets."""
    (partition,) = next(one for one in broker.topics() if one.name == topic).partitions
    offset = TopicPartition(topic, 0, partition.end_offset - kept)
    admin = AdminClient(librdkafka(broker.bootstrap))
    admin.delete_records([offset])[offset].result(20)


@pytest.mark.parametrize("client", PRODUCERS)
def test_transactional_producer_continues_after_its_records_are_deleted(broker: Embedded, client: str) -> None:
    """Its newest marker is left, or nothing; within a transaction all its records of that transaction."""
    topic = broker.create_topic()
    producer = PRODUCERS[client](broker.bootstrap, topic)
    try:
        for number in range(ROUNDS):
            producer.begin()
            producer.send(topic, 0, b"%d" % number)
            producer.flush()
            producer.send(topic, 0, b"%d" % number)
            producer.flush()
            producer.commit()
            delete_all(broker, topic, 1 if number % 2 else 0)
    finally:
        producer.close()


def test_librdkafka_continues_with_idempotence(broker: Embedded) -> None:
    topic = broker.create_topic()
    failed: list[Any] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({**librdkafka(broker.bootstrap), "enable.idempotence": True, "linger.ms": 0})
    for number in range(ROUNDS):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        assert producer.flush(20) == 0
        delete_all(broker, topic)
    assert failed == []


def test_kafka_python_continues_with_idempotence(broker: Embedded) -> None:
    topic = broker.create_topic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
    for number in range(ROUNDS):
        producer.send(topic, b"%d" % number).get(20)
        delete_all(broker, topic)
    producer.close()


async def test_aiokafka_continues_with_idempotence(broker: Embedded) -> None:
    topic = broker.create_topic()
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
        for number in range(ROUNDS):
            await producer.send_and_wait(topic, b"%d" % number, partition=0)
            delete_all(broker, topic)
