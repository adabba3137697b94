"""The first of several batches in flight is refused once: no idempotent client loses or duplicates it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from ottla.broker import Embedded
from ottla.client import Producer as OttlaProducer
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")

VALUES = [b"%d" % number for number in range(20)]


def confluent_kafka(address: str, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "batch.num.messages": 2, "linger.ms": 0}
    )
    producer.list_topics(topic)  # so that the batches are in flight together
    failed: list[object] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0 and not failed


def kafka_python(address: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, batch_size=90, linger_ms=0, retry_backoff_ms=20)
    try:
        for sent in [producer.send(topic, value) for value in VALUES]:
            sent.get(PATIENCE_S)
    finally:
        producer.close(20)


def ottla(address: str, topic: str) -> None:
    async def run() -> None:
        async with OttlaProducer(address, batch_size=90) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])

    asyncio.run(run())


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as embedded:
        yield embedded


@pytest.mark.parametrize("kind", ["error", "disk_full"])
@pytest.mark.parametrize("send", [confluent_kafka, kafka_python, ottla])
def test_refused_first_batch_is_retried(send: Callable[[str, str], None], kind: str, broker: Embedded) -> None:
    topic = broker.create_topic()
    if kind == "error":
        fault = broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=1)
    else:
        fault = broker.faults.disk_full(topic=topic, times=1)
    with fault:
        send(broker.bootstrap, topic)
        assert fault.fired == 1
    assert [record.value for record in broker.records(topic)] == VALUES
