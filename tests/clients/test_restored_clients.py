"""Real clients continue by themselves after a restore that removes records and changes leaders and their epochs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from ottla.broker import Embedded
from ottla_testing.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")

QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 10, "log_level": 3}


def until_read(poll: Callable[[], list[bytes | None]], last: bytes) -> list[bytes | None]:
    """Returns the records read up to a value."""
    found: list[bytes | None] = []
    end = time.monotonic() + PATIENCE_S
    while last not in found:
        assert time.monotonic() < end, found
        found += poll()
    return found


def moved_about(broker: Embedded, topic: str) -> None:
    for node in (2, 3, 2):
        broker.topology.move_leader(topic, 0, node)


def test_confluent_kafka_continues_after_a_restore():
    with Embedded(brokers=3) as broker:
        topic = broker.create_topic()
        broker.send(topic, "kept")
        snapshot = broker.snapshot()
        settings = {"bootstrap.servers": broker.bootstrap, **QUICK}
        producer = Producer({**settings, "linger.ms": 0, "message.timeout.ms": PATIENCE_MS})
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([ConfluentPartition(topic, 0, 0)])

        def poll() -> list[bytes | None]:
            message = consumer.poll(0.1)
            if message is None:
                return []
            error = message.error()
            assert error is None or error.code() != KafkaError._FATAL
            return [] if error else [message.value()]

        delivered: list[object] = []
        try:
            moved_about(broker, topic)
            producer.produce(topic, b"taken away", on_delivery=lambda error, message: delivered.append(error))
            producer.flush(PATIENCE_S)
            assert until_read(poll, b"taken away") == [b"kept", b"taken away"]
            broker.restore(snapshot)
            for value in (b"new", b"newer", b"newest"):
                producer.produce(topic, value, on_delivery=lambda error, message: delivered.append(error))
            producer.flush(PATIENCE_S)
            assert delivered == [None] * 4
            # It had read one more record than there is now, and detects the truncation by the epoch: it misses nothing.
            assert until_read(poll, b"newest")[-3:] == [b"new", b"newer", b"newest"]
        finally:
            consumer.close()
        broker.assert_produced(topic, ["kept", "new", "newer", "newest"])


def test_acls_of_kafka_python():
    with Embedded(brokers=3) as broker:
        topic = broker.create_topic()
        broker.send(topic, "kept")
        snapshot = broker.snapshot()
        servers = broker.bootstrap.split(",")
        producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=False, retry_backoff_ms=10)
        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", retry_backoff_ms=10)
        consumer.assign([TopicPartition(topic, 0)])

        def poll() -> list[bytes | None]:
            return [record.value for records in consumer.poll(100).values() for record in records]

        with closing(producer):
            moved_about(broker, topic)
            producer.send(topic, b"taken away").get(PATIENCE_S)
            assert until_read(poll, b"taken away") == [b"kept", b"taken away"]
            broker.restore(snapshot)
            assert producer.send(topic, b"new").get(PATIENCE_S).offset == 1
            assert producer.send(topic, b"newer").get(PATIENCE_S).offset == 2
            assert b"newer" in until_read(poll, b"newer")
        consumer.close()
        broker.assert_produced(topic, ["kept", "new", "newer"])


async def test_aiokafka_continues_after_a_restore():
    async with Embedded(brokers=3) as broker:
        topic = broker.create_topic()
        broker.send(topic, "kept")
        snapshot = broker.snapshot()
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer, consumer:
            assert (await consumer.getone()).value == b"kept"
            moved_about(broker, topic)
            await producer.send_and_wait(topic, b"taken away")
            assert (await consumer.getone()).value == b"taken away"
            broker.restore(snapshot)
            async with asyncio.timeout(PATIENCE_S):
                assert (await producer.send_and_wait(topic, b"new")).offset == 1
                assert (await producer.send_and_wait(topic, b"newer")).offset == 2
                while (await consumer.getone()).value != b"newer":
                    pass
        broker.assert_produced(topic, ["kept", "new", "newer"])
