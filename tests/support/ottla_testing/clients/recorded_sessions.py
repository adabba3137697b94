"""One session of each real client, for recording and replay: admin calls, an idempotent producer, a consumer in a group
that commits, a transaction committed and one aborted, and refused requests.

Owns the sessions. All names are the session's own, so a broker may serve several of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla_testing.patience import PATIENCE_MS, PATIENCE_S

RECORDS = 6
PARTITIONS = 2


def confluent(address: str, name: str) -> None:
    """Runs the session of librdkafka."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    quiet = {"bootstrap.servers": address, "log_level": 0, "error_cb": lambda _error: None, "client.id": "confluent"}
    admin = AdminClient(quiet)
    topics = [NewTopic(name, 1, 1, config={"retention.ms": "-1"}), NewTopic(f"{name}-out", 1, 1)]
    for done in admin.create_topics(topics, operation_timeout=PATIENCE_S).values():
        done.result(PATIENCE_S)
    try:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
        raise AssertionError("a topic was made twice")
    except KafkaException:
        pass
    admin.create_partitions([NewPartitions(name, PARTITIONS)])[name].result(PATIENCE_S)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert resource in admin.describe_configs([resource])
    admin.describe_configs([resource])[resource].result(PATIENCE_S)

    producer = Producer({**quiet, "enable.idempotence": True, "linger.ms": 0, "compression.type": "zstd", "retries": 3})
    for number in range(RECORDS):
        producer.produce(name, b"%d" % number, b"key", partition=number % PARTITIONS, headers=[("h", b"1")])
        producer.flush(PATIENCE_S)

    config = {"group.id": f"{name}-group", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**quiet, **config, "fetch.wait.max.ms": 50, "isolation.level": "read_committed"})
    consumer.subscribe([name])
    found = 0
    while found < RECORDS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None, message
        found += 1
    consumer.commit(asynchronous=False)

    writer = Producer({**quiet, "transactional.id": f"{name}-writer", "linger.ms": 0})
    writer.init_transactions(PATIENCE_S)
    for commits in (True, False):
        writer.begin_transaction()
        writer.produce(f"{name}-out", b"decided", partition=0)
        offsets = [TopicPartition(name, 0, RECORDS // PARTITIONS)]
        writer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        writer.flush(PATIENCE_S)
        (writer.commit_transaction if commits else writer.abort_transaction)(PATIENCE_S)
    consumer.close()
    admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S)
    admin.describe_consumer_groups([f"{name}-group"])[f"{name}-group"].result(PATIENCE_S)
    admin.delete_topics([f"{name}-out"])[f"{name}-out"].result(PATIENCE_S)


def kafka_python(address: str, name: str) -> None:
    """Runs the session of kafka-python."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
    from kafka.errors import TopicAlreadyExistsError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    admin: Any = KafkaAdminClient(bootstrap_servers=address, client_id="kafka-python")
    producer = KafkaProducer(bootstrap_servers=address, client_id="kafka-python", enable_idempotence=True)
    writer = KafkaProducer(bootstrap_servers=address, client_id="writer", transactional_id=f"{name}-writer")
    consumer: Any = None
    try:
        admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(f"{name}-out", 1, 1)])
        try:
            admin.create_topics([NewTopic(name, 1, 1)])
            raise AssertionError("a topic was made twice")
        except TopicAlreadyExistsError:
            pass
        admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        for number in range(RECORDS):
            producer.send(name, b"%d" % number, b"key", partition=number % PARTITIONS).get(PATIENCE_S)
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=address,
            client_id="kafka-python",
            group_id=f"{name}-group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        )
        found = 0
        while found < RECORDS:
            found += sum(map(len, consumer.poll(PATIENCE_MS).values()))
        consumer.commit()
        writer.init_transactions()
        for commits in (True, False):
            writer.begin_transaction()
            writer.send(f"{name}-out", b"decided", partition=0)
            offset = OffsetAndMetadata(RECORDS // PARTITIONS, "", -1)
            writer.send_offsets_to_transaction({TopicPartition(name, 0): offset}, f"{name}-group")
            writer.flush(PATIENCE_S)
            (writer.commit_transaction if commits else writer.abort_transaction)()
        admin.list_groups()
        admin.describe_groups([f"{name}-group"])
    finally:
        if consumer is not None:
            consumer.close()
        for one in (producer, writer):
            one.close(timeout=PATIENCE_S)
        admin.close()


async def _aiokafka(address: str, name: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    admin = AIOKafkaAdminClient(bootstrap_servers=address, client_id="aiokafka")
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1), NewTopic(f"{name}-out", 1, 1)])
        await admin.create_topics([NewTopic(name, 1, 1)])  # it returns errors in the response
        await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        ours: dict[str, Any] = {"bootstrap_servers": address, "client_id": "aiokafka"}
        async with AIOKafkaProducer(**ours, enable_idempotence=True, compression_type="gzip") as producer:
            for number in range(RECORDS):
                await producer.send_and_wait(name, b"%d" % number, b"key", partition=number % PARTITIONS)
        async with AIOKafkaConsumer(
            name,
            **ours,
            group_id=f"{name}-group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=50,
        ) as consumer:
            for _ in range(RECORDS):
                await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            await consumer.commit()
        async with AIOKafkaProducer(**ours, transactional_id=f"{name}-writer") as writer:
            for commits in (True, False):
                await writer.begin_transaction()
                await writer.send_and_wait(f"{name}-out", b"decided", partition=0)
                offsets = {TopicPartition(name, 0): RECORDS // PARTITIONS}
                await writer.send_offsets_to_transaction(offsets, f"{name}-group")
                await (writer.commit_transaction() if commits else writer.abort_transaction())
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups([f"{name}-group"])
        await admin.delete_topics([f"{name}-out"])
    finally:
        await admin.close()


def aiokafka(address: str, name: str) -> None:
    """Runs the session of aiokafka."""
    asyncio.run(_aiokafka(address, name))


SESSIONS: dict[str, Callable[[str, str], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
