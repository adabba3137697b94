"""Real clients produce and consume while the leader moves and its node stops: all records arrive.

A short test of each client; `test_leader_moves.py` has a longer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from ottla.broker import Embedded
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")

NODES = (0, 7, 1001)
ROUND = 20  # records before each disturbance


@pytest.fixture(scope="module")
def cluster() -> Iterator[Embedded]:
    with Embedded(node_ids=NODES) as embedded:
        yield embedded


@pytest.fixture
def topic(cluster: Embedded) -> Iterator[str]:
    """A new topic with one partition and three replicas; all nodes run again afterwards."""
    yield cluster.create_topic()
    for node in NODES:
        cluster.topology.start_node(node)


def leader(cluster: Embedded, topic: str) -> int:
    (found,) = [one for one in cluster.topology.describe().partitions if one.topic == topic]
    return found.leader


def disturbances(cluster: Embedded, topic: str) -> list[Callable[[], None]]:
    """Yields: nothing; the leader moves; its node stops; the node returns, and the leader moves again."""

    def move() -> None:
        cluster.topology.move_leader(topic, 0, NODES[NODES.index(leader(cluster, topic)) - 1])

    def stop() -> None:
        cluster.topology.stop_node(leader(cluster, topic))

    def start() -> None:
        for node in NODES:
            cluster.topology.start_node(node)
        move()

    # aiokafka 0.14.0 does not refresh the leader while it looks up its first offset, so the first step does nothing.
    return [lambda: None, move, stop, start]


def wanted(rounds: int) -> list[bytes]:
    return [b"%d" % number for number in range(rounds * ROUND)]


def values(cluster: Embedded, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def test_confluent_kafka_produces_and_consumes(cluster: Embedded, topic: str):
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    failed: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    def take(more: int) -> None:
        until = len(found) + more
        for _ in range(PATIENCE_S * 10):
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
            if len(found) == until:
                return
        raise AssertionError(f"{until - len(found)} records did not come")

    steps = disturbances(cluster, topic)
    for number, disturb in enumerate(steps):
        for value in wanted(len(steps))[number * ROUND : (number + 1) * ROUND]:
            producer.produce(topic, value, on_delivery=delivered)
        disturb()
        assert producer.flush(PATIENCE_S) == 0
        take(ROUND)
    consumer.close()
    assert not failed
    assert found == values(cluster, topic) == wanted(len(steps))


async def test_aiokafka_produces_and_consumes(cluster: Embedded, topic: str):
    steps = disturbances(cluster, topic)
    async with (
        AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer,
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,  # its last commit at close never ends if the coordinator has moved (0.14.0)
        ) as consumer,
    ):
        found: list[bytes | None] = []
        for number, disturb in enumerate(steps):
            sent = [
                await producer.send(topic, value, partition=0)
                for value in wanted(len(steps))[number * ROUND : (number + 1) * ROUND]
            ]
            disturb()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*sent)
                found += [(await consumer.getone()).value for _ in range(ROUND)]
                await consumer.commit()
    assert found == values(cluster, topic) == wanted(len(steps))


def test_kafka_python_produces_and_consumes(cluster: Embedded, topic: str):
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True, retry_backoff_ms=20)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=20)
    consumer.assign([TopicPartition(topic, 0)])
    found: list[bytes] = []
    try:
        steps = disturbances(cluster, topic)
        for number, disturb in enumerate(steps):
            sent = [
                producer.send(topic, value, partition=0)
                for value in wanted(len(steps))[number * ROUND : (number + 1) * ROUND]
            ]
            disturb()
            for one in sent:
                one.get(PATIENCE_S)
            for _ in range(PATIENCE_S * 10):
                for batches in consumer.poll(100).values():
                    found += [record.value for record in batches]
                if len(found) == (number + 1) * ROUND:
                    break
        assert found == values(cluster, topic) == wanted(len(steps))
    finally:
        with suppress(Exception):
            consumer.close()
        producer.close(PATIENCE_S)
