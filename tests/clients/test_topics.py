"""The effect of topic configs on real clients: timestamps, recompression, size limits, and automatic topic creation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError as AioTooLarge
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import MessageSizeTooLargeError
from kafka.structs import TopicPartition as PyTopicPartition

from ottla.protocol.records.compression import Codec
from ottla_testing.clients.four_clients import READERS, WRITERS, run_kcat
from ottla_testing.clients.mixed_records import difference, mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000  # of records with explicit timestamps, one second apart


def write_seconds(address: str, topic: str, count: int) -> None:
    """Record n has the timestamp START_MS + n seconds; every tenth is sent alone, so there is more than one batch."""
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=START_MS + 1000 * number)
        if number % 10 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0


def offsets_by_confluent(address: str, topic: str, times: list[int]) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nobody"})
    try:
        return [consumer.offsets_for_times([TopicPartition(topic, 0, ms)], 10)[0].offset for ms in times]
    finally:
        consumer.close()


def offsets_by_kafka_python(address: str, topic: str, times: list[int]) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=address)
    try:
        partition = PyTopicPartition(topic, 0)
        found = [consumer.offsets_for_times({partition: ms})[partition] for ms in times]
        return [-1 if one is None else one.offset for one in found]
    finally:
        consumer.close()


def offsets_by_aiokafka(address: str, topic: str, times: list[int]) -> list[int]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as AioTopicPartition

    async def look_up() -> list[int]:
        async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
            partition = AioTopicPartition(topic, 0)
            found = [(await consumer.offsets_for_times({partition: ms}))[partition] for ms in times]
            return [-1 if one is None else one.offset for one in found]

    return asyncio.run(look_up())


def offsets_by_kcat(address: str, topic: str, times: list[int]) -> list[int]:
    responses = [run_kcat("-Q", "-b", address, "-t", f"{topic}:0:{ms}").stdout.decode() for ms in times]
    return [int(response.rpartition(" ")[2]) for response in responses]


LOOKED_UP = {
    "kafka-python": offsets_by_kafka_python,
    "confluent-kafka": offsets_by_confluent,
    "aiokafka": offsets_by_aiokafka,
    "kcat": offsets_by_kcat,
}


@pytest.mark.parametrize("client", READERS)
def test_seek_by_timestamp_finds_the_offset(client: str, broker: RunningBroker, topic: str) -> None:
    write_seconds(broker.address, topic, 100)
    times = [START_MS - 1, START_MS, START_MS + 1, START_MS + 55_000, START_MS + 98_999]
    assert LOOKED_UP[client](broker.address, topic, times) == [0, 0, 1, 55, 99]
    (after_the_last,) = LOOKED_UP[client](broker.address, topic, [START_MS + 99_001])
    assert after_the_last in (-1, 100)  # librdkafka returns "the end" for "none"


def test_consumer_continues_at_the_seeked_timestamp(broker: RunningBroker, topic: str) -> None:
    write_seconds(broker.address, topic, 100)
    consumer = KafkaConsumer(bootstrap_servers=broker.address)
    try:
        partition = PyTopicPartition(topic, 0)
        consumer.assign([partition])
        found = consumer.offsets_for_times({partition: START_MS + 42_500})[partition]
        assert found is not None
        consumer.seek(partition, found.offset)
        record = next(iter(consumer))
        assert (record.offset, record.value, record.timestamp) == (43, b"43", START_MS + 43_000)
    finally:
        consumer.close()


@pytest.mark.parametrize("writer", WRITERS)
def test_log_append_time_is_the_brokers_for_producer_and_consumer(
    writer: str, broker: RunningBroker, name: str, create: Callable[..., str]
) -> None:
    create(broker.address, name, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    sent = mixed(200, plain=True, null_values=False)
    WRITERS[writer](broker.address, name, sent, "lz4")
    if writer == "confluent-kafka":
        reports: list[tuple[int, int]] = []
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce(name, "x", timestamp=START_MS, on_delivery=lambda _, m: reports.append(m.timestamp()))
        producer.flush(PATIENCE_S)
        assert reports[0][0] == 2 and reports[0][1] >= before  # 2: TIMESTAMP_LOG_APPEND_TIME
    after = int(time.time() * 1000)
    stored = list(broker.stored(name))
    assert stored and all(header.log_append_time for header in stored)
    assert all(before <= header.max_timestamp <= after for header in stored)
    consumer = KafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
    try:
        consumer.assign([PyTopicPartition(name, 0)])
        record = next(iter(consumer))
        assert record.timestamp_type == 1 and before <= record.timestamp <= after
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("requested", "sent_as", "stored_as"),
    [
        ("gzip", "lz4", Codec.GZIP),
        ("lz4", "none", Codec.LZ4),
        ("snappy", "zstd", Codec.SNAPPY),
        ("zstd", "gzip", Codec.ZSTD),
        ("uncompressed", "snappy", Codec.NONE),
        ("producer", "zstd", Codec.ZSTD),
    ],
)
def test_compression_type_of_the_topic_overrides_the_producers(
    requested: str, sent_as: str, stored_as: Codec, broker: RunningBroker, name: str, create: Callable[..., str]
) -> None:
    create(broker.address, name, compression_type=requested)
    sent = mixed(1000)
    WRITERS["confluent-kafka"](broker.address, name, sent, sent_as)
    stored = list(broker.stored(name))
    if requested == "producer":
        stored = [header for header in stored if header.size_bytes > 4096]
    assert {header.codec for header in stored} == {stored_as}
    for reader, read in READERS.items():
        if reader != "kcat":  # which has header values as text
            assert difference(sent, read(broker.address, name, len(sent))) is None, reader


# Size limits


def too_large_for_kafka_python(address: str, topic: str, size: int) -> None:
    # An idempotent one treats any error as fatal, and would not send the small record.
    producer = KafkaProducer(bootstrap_servers=address, max_request_size=10_000_000, enable_idempotence=False)
    try:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, bytes(size)).get(PATIENCE_S)
        assert producer.send(topic, b"small").get(PATIENCE_S).offset == 0
    finally:
        producer.close()


def too_large_for_confluent(address: str, topic: str, size: int) -> None:
    reports: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": address, "message.max.bytes": 10_000_000})
    for value in (bytes(size), b"small"):
        producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert reports[0] is not None and reports[0].code() == KafkaError.MSG_SIZE_TOO_LARGE and reports[1] is None


def too_large_for_aiokafka(address: str, topic: str, size: int) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, max_request_size=10_000_000) as producer:
            with pytest.raises(AioTooLarge):
                await asyncio.wait_for(producer.send_and_wait(topic, bytes(size)), PATIENCE_S)
            assert (await producer.send_and_wait(topic, b"small")).offset == 0

    asyncio.run(send())


TOO_LARGE = {
    "kafka-python": too_large_for_kafka_python,
    "confluent-kafka": too_large_for_confluent,
    "aiokafka": too_large_for_aiokafka,
}


@pytest.mark.parametrize("client", TOO_LARGE)
def test_message_above_the_brokers_limit_is_refused_and_the_next_is_not(
    client: str, broker: RunningBroker, topic: str
) -> None:
    TOO_LARGE[client](broker.address, topic, 2_000_000)
    assert [header.record_count for header in broker.stored(topic)] == [1]


@pytest.mark.parametrize("client", TOO_LARGE)
def test_topic_may_set_another_limit(client: str, broker: RunningBroker, name: str, create: Callable[..., str]) -> None:
    create(broker.address, name, max_message_bytes=1000)
    TOO_LARGE[client](broker.address, name, 1001)


# Automatic topic creation


@pytest.mark.parametrize("client", WRITERS)
def test_write_to_a_missing_topic_creates_it(client: str, broker: RunningBroker, name: str) -> None:
    sent = mixed(5, plain=True, null_values=False)
    WRITERS[client](broker.address, name, sent)
    assert difference(sent, READERS[client](broker.address, name, 5)) is None
    assert len(AdminClient({"bootstrap.servers": broker.address}).list_topics(name).topics[name].partitions) == 1


def test_no_topic_is_created_if_the_broker_forbids_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    strict = RunningBroker(tmp_path_factory.mktemp("strict"), auto_create_topics_enable="false", num_partitions="3")
    try:
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": strict.address, "topic.metadata.propagation.max.ms": 200})
        producer.produce("none", "x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert errors[0] is not None and errors[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        assert "none" not in AdminClient({"bootstrap.servers": strict.address}).list_topics().topics
    finally:
        strict.close()


def test_consumer_creates_a_topic_only_if_it_requests_that(broker: RunningBroker, name: str) -> None:
    """librdkafka's default is not to request it; kafka-python always requests it (3.0.12)."""
    shy = Consumer({"bootstrap.servers": broker.address, "group.id": name, "topic.metadata.refresh.interval.ms": 100})
    try:
        shy.subscribe([f"{name}-shy"])
        shy.poll(1)
    finally:
        shy.close()
    bold = KafkaConsumer(f"{name}-bold", bootstrap_servers=broker.address)
    try:
        bold.poll(1000)
    finally:
        bold.close()
    there = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=PATIENCE_S).topics
    assert f"{name}-shy" not in there and f"{name}-bold" in there
