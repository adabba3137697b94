"""One transaction committed and one aborted by each real client, with offsets in it, read back by each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import kafka.admin
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_MS, PATIENCE_S

WRITTEN = [(b"first", True), (b"lost", False), (b"second", True)]
KEPT = [value for value, decided in WRITTEN if decided]


def confluent_writes(address: str, topic: str) -> None:
    config = {"bootstrap.servers": address, "group.id": topic}
    producer, consumer = Producer({"bootstrap.servers": address, "transactional.id": topic}), Consumer(config)
    producer.init_transactions(PATIENCE_S)
    for offset, (value, decided) in enumerate(WRITTEN, 1):
        producer.begin_transaction()
        producer.produce(topic, value)
        offsets = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if decided else producer.abort_transaction)(PATIENCE_S)
    consumer.close()


def confluent_reads(address: str, topic: str) -> tuple[list[bytes | None], int]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[bytes | None] = []
    try:
        (at,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "its end is not reached"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found, at.offset
            found.append(message.value())
    finally:
        consumer.close()


def kafka_python_writes(address: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    try:
        producer.init_transactions()
        for offset, (value, decided) in enumerate(WRITTEN, 1):
            producer.begin_transaction()
            producer.send(topic, value)
            producer.send_offsets_to_transaction({PyTopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}, topic)
            producer.flush(PATIENCE_S)
            (producer.commit_transaction if decided else producer.abort_transaction)()
    finally:
        producer.close(timeout=PATIENCE_S)


def kafka_python_reads(address: str, topic: str) -> tuple[list[bytes | None], int]:
    consumer = KafkaConsumer(
        bootstrap_servers=address, group_id=topic, enable_auto_commit=False, isolation_level="read_committed"
    )
    place = PyTopicPartition(topic, 0)
    found: list[bytes | None] = []
    try:
        committed: Any = consumer.committed(place)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while (consumer.position(place) or 0) < end:
            for records in consumer.poll(PATIENCE_MS).values():
                found += [record.value for record in records]
        return found, committed
    finally:
        consumer.close()


async def _aiokafka_writes(address: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic) as producer:
        for offset, (value, decided) in enumerate(WRITTEN, 1):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): offset}, topic)
            await (producer.commit_transaction() if decided else producer.abort_transaction())


async def _aiokafka_reads(address: str, topic: str) -> tuple[list[bytes | None], int]:
    place = AioTopicPartition(topic, 0)
    found: list[bytes | None] = []
    async with AIOKafkaConsumer(
        bootstrap_servers=address, group_id=topic, enable_auto_commit=False, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([place])
        committed: Any = await consumer.committed(place)
        consumer.seek(place, 0)
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [record.value for record in records]
    return found, committed


def aiokafka_writes(address: str, topic: str) -> None:
    asyncio.run(_aiokafka_writes(address, topic))


def aiokafka_reads(address: str, topic: str) -> tuple[list[bytes | None], int]:
    return asyncio.run(_aiokafka_reads(address, topic))


WRITERS = {"confluent-kafka": confluent_writes, "kafka-python": kafka_python_writes, "aiokafka": aiokafka_writes}
READERS = {"confluent-kafka": confluent_reads, "kafka-python": kafka_python_reads, "aiokafka": aiokafka_reads}


@pytest.mark.parametrize("writes", WRITERS.values(), ids=WRITERS)
def test_committed_records_are_read_and_aborted_ones_are_not(
    writes: Callable[[str, str], None], broker: RunningBroker, topic: str
) -> None:
    writes(broker.address, topic)
    for name, reads in READERS.items():
        assert reads(broker.address, topic) == (KEPT, len(WRITTEN)), name


def test_hanging_transaction_is_aborted_by_an_admin(broker: RunningBroker, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, transactional_id=topic)
    admin: Any = KafkaAdminClient(bootstrap_servers=broker.address)
    spec: Any = getattr(kafka.admin, "AbortTransactionSpec")  # noqa: B009  pyright sees the types of an older one
    place = PyTopicPartition(topic, 0)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"hangs").get(PATIENCE_S)
        (known,) = admin.describe_producers([place])[place].active_producers
        assert known.current_transaction_start_offset == 0
        admin.abort_transaction(spec(place, known.producer_id, known.producer_epoch))
        (known,) = admin.describe_producers([place])[place].active_producers
        assert known.current_transaction_start_offset in (None, -1)
        assert confluent_reads(broker.address, topic)[0] == []
    finally:
        producer.close(0)
        admin.close()
