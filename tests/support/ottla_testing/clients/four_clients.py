"""The four clients, each with a function that writes messages to one partition and one that reads them back.

Writers return when everything is acknowledged; readers return `count` messages from partition 0's beginning, or raise.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing.clients.mixed_records import Message
from ottla_testing.patience import PATIENCE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAX_REQUEST_BYTES = 1_048_576

Writer = Callable[..., None]
Reader = Callable[[str, str, int], list[Message]]


def create_topic(address: str, topic: str, partitions: int = 1, **configs: object) -> str:
    """Creates a topic, with _ in place of dots in config names. Returns its name."""
    named = {name.replace("_", "."): str(value) for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, config=named)])[topic].result(PATIENCE_S)
    return topic


def delete_topic(address: str, topic: str) -> None:
    """Deletes a topic with its data."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


# kafka-python


def kafka_python_write(address: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if codec == "none" else codec,  # type: ignore[arg-type]
        batch_size=65536,
        linger_ms=10,
        max_request_size=MAX_REQUEST_BYTES,
    )
    try:
        sent = [
            producer.send(topic, value=m.value, key=m.key, headers=list(m.headers), partition=0)  # type: ignore[arg-type]
            for m in messages
        ]
        producer.flush(PATIENCE_S)
        assert [future.get(PATIENCE_S).offset for future in sent] == list(
            range(sent[0].get(0).offset, sent[0].get(0).offset + len(sent))
        )
    finally:
        producer.close()


def kafka_python_read(address: str, topic: str, count: int) -> list[Message]:
    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100
    )
    try:
        consumer.assign([PyTopicPartition(topic, 0)])
        found: list[Message] = []
        end = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < end:
            for records in consumer.poll(500, max_records=5000).values():
                found += [Message(r.key, r.value, tuple(r.headers)) for r in records]
        return found
    finally:
        consumer.close()


# confluent-kafka


def confluent_write(address: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 10,
            "batch.size": 65536,
            "message.max.bytes": MAX_REQUEST_BYTES,
        }
    )

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for m in messages:
        while True:
            try:
                producer.produce(topic, m.value, m.key, 0, delivered, headers=list(m.headers))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures, failures[0]


def confluent_read(address: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Message] = []
        end = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < end:
            for m in consumer.consume(5000, 0.2):
                if error := m.error():
                    raise KafkaException(error)
                found.append(Message(m.key(), m.value(), tuple(m.headers() or ())))  # type: ignore[arg-type]
        return found
    finally:
        consumer.close()


# aiokafka


def aiokafka_write(address: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            max_batch_size=65536,
            linger_ms=10,
            max_request_size=MAX_REQUEST_BYTES,
        )
        async with producer:
            sent = [await producer.send(topic, m.value, m.key, partition=0, headers=list(m.headers)) for m in messages]
            await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)

    asyncio.run(write())


def aiokafka_read(address: str, topic: str, count: int) -> list[Message]:
    async def read() -> list[Message]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            check_crcs=True,
        )
        found: list[Message] = []
        async with consumer:
            consumer.assign([AioTopicPartition(topic, 0)])
            end = time.monotonic() + PATIENCE_S
            while len(found) < count and time.monotonic() < end:
                for records in (await consumer.getmany(timeout_ms=500, max_records=5000)).values():
                    found += [Message(r.key, r.value, tuple(r.headers)) for r in records]
        return found

    return asyncio.run(read())


# kcat: messages on lines, so text only. With -Z an empty key or value is null.

KEY_MARK = "\x1e"
KCAT_HEADERS = (("client", b"kcat"), ("twice", b"1"), ("twice", b"2"))


def run_kcat(*arguments: str, stdin: bytes = b"", timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[bytes]:
    """Runs kcat, which must succeed."""
    outcome = subprocess.run(["kcat", *arguments], input=stdin, capture_output=True, timeout=timeout, check=False)
    assert outcome.returncode == 0, outcome.stderr.decode()
    return outcome


def kcat_write(address: str, topic: str, messages: Sequence[Message], codec: str = "none") -> None:
    """All messages of a run have the same headers, as kcat requires."""
    lines = b"".join(
        (m.key + KEY_MARK.encode() if m.key else b"") + (m.value or b"") + b"\n" if m.key or m.value else b"\x1e\n"
        for m in messages
    )
    arguments = ["-P", "-b", address, "-t", topic, "-p", "0", "-Z", "-K", KEY_MARK, "-z", codec]
    arguments += ["-X", "linger.ms=10", "-X", "batch.size=65536", "-X", f"message.max.bytes={MAX_REQUEST_BYTES}"]
    for name, value in messages[0].headers:
        arguments += ["-H", f"{name}={(value or b'').decode()}"]
    run_kcat(*arguments, stdin=lines)


def kcat_read(address: str, topic: str, count: int) -> list[Message]:
    """Sizes precede the bytes, -1 for null, so that a message may have any bytes; header values are text."""
    output = run_kcat(
        *("-C", "-b", address, "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q"),
        *("-X", "fetch.wait.max.ms=100", "-X", "check.crcs=true", "-f", r"%h\n%K %S\n%k%s"),
    ).stdout
    found: list[Message] = []
    position = 0
    while position < len(output):
        named_end = output.index(b"\n", position)
        sizes_end = output.index(b"\n", named_end + 1)
        key_size, value_size = map(int, output[named_end + 1 : sizes_end].split())
        named = [pair.partition(b"=") for pair in output[position:named_end].split(b",") if pair]
        key_end = sizes_end + 1 + max(0, key_size)
        position = key_end + max(0, value_size)
        key = None if key_size < 0 else output[sizes_end + 1 : key_end]
        value = None if value_size < 0 else output[key_end:position]
        found.append(Message(key, value, tuple((name.decode(), value) for name, _, value in named)))
    return found


WRITERS: dict[str, Writer] = {
    "kafka-python": kafka_python_write,
    "confluent-kafka": confluent_write,
    "aiokafka": aiokafka_write,
}
READERS: dict[str, Reader] = {
    "kafka-python": kafka_python_read,
    "confluent-kafka": confluent_read,
    "aiokafka": aiokafka_read,
}
if shutil.which("kcat"):  # a program of the system, not a Python package
    WRITERS["kcat"] = kcat_write
    READERS["kcat"] = kcat_read
