"""Idempotent producers and APIs other than Produce: the producer states, and responses with fields of Ottla."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from ottla_testing.clients.four_clients import (
    aiokafka_read,
    aiokafka_write,
    confluent_read,
    confluent_write,
    kafka_python_read,
    kafka_python_write,
)
from ottla_testing.clients.mixed_records import Message
from ottla_testing.clients.rewriting_proxy import RewritingProxy
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

METADATA = 3
TAG = bytes.fromhex("01 d04f 00")  # one tagged field: 10192, empty


class Asking:
    """Makes every Metadata request from v9 on request the message formats, as Ottla's client does."""

    def __init__(self) -> None:
        self.changed = 0

    def __call__(self, request: bytes) -> bytes:
        api_key, version = struct.unpack_from(">hh", request, 4)
        if api_key != METADATA or version < 9 or request.endswith(bytes(7)):
            return request  # the last: librdkafka requests all topics, with three additional bytes
        assert request[-1] == 0  # no tagged fields
        self.changed += 1
        body = request[4:-1] + TAG
        return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("write", "read"),
    [
        pytest.param(confluent_write, confluent_read, id="confluent"),
        pytest.param(kafka_python_write, kafka_python_read, id="kafka-python"),
        pytest.param(aiokafka_write, aiokafka_read, id="aiokafka"),
    ],
)
def test_clients_skip_the_fields_of_ottla(
    write: Callable[..., None],
    read: Callable[..., list[Message]],
    tmp_path: Path,
    create: Callable[..., str],
) -> None:
    asking = Asking()
    proxy = RewritingProxy(asking)
    running = RunningBroker(tmp_path, advertised_listeners=f"PLAINTEXT://{proxy.address}")
    proxy.target = running.port
    messages = [Message(b"k", b"v%d" % number, ()) for number in range(100)]
    try:
        create(running.address, "t")
        write(proxy.address, "t", messages)
        assert read(proxy.address, "t", 100) == messages
        assert asking.changed
    finally:
        proxy.close()
        running.close()


def test_kafka_python_describes_the_producers_of_confluent(broker: RunningBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, b"v%d" % number, timestamp=1_700_000_000_000 + number)
        producer.flush(PATIENCE_S)
    admin: Any = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        (found,) = admin.describe_producers([TopicPartition(topic, 0)]).values()
    finally:
        admin.close()
    ((producer_id, epoch, sequence, time_ms, coordinator_epoch, transaction),) = found.active_producers
    assert producer_id >= 0
    assert (epoch, sequence, time_ms - 1_700_000_000_000, coordinator_epoch, transaction) == (0, 9, 9, -1, -1)
