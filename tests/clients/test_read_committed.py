"""`read_committed` consumers of real clients, with directories with transactions written by Apache Kafka: they get the
same records as Kafka's own consumer.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing import GOLDEN
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

DIRECTORIES = GOLDEN / "directories"
RELEASES = ("2.8.2", "3.9.1", "4.3.1")
Reader = Callable[[str, str, int, int], list[int]]


def confluent(address: str, topic: str, start: int, end: int) -> list[int]:
    config: dict[str, Any] = {"bootstrap.servers": address, "group.id": "nobody", "enable.auto.commit": False}
    consumer = Consumer({**config, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "its end is not reached"
            if (error := message.error()) is None:
                found.append(message.offset() or 0)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            assert message.offset() == end
            return found
    finally:
        consumer.close()


async def _aiokafka(address: str, topic: str, start: int, end: int) -> list[int]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", enable_auto_commit=False, fetch_max_wait_ms=50
    )
    await consumer.start()
    try:
        place = AioTopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, start)
        assert await consumer.end_offsets([place]) == {place: end}
        found: list[int] = []
        async with asyncio.timeout(PATIENCE_S):
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    found += [record.offset for record in records]
        for records in (await consumer.getmany(timeout_ms=100)).values():  # nothing comes after it
            found += [record.offset for record in records]
        return found
    finally:
        await consumer.stop()


def aiokafka(address: str, topic: str, start: int, end: int) -> list[int]:
    return asyncio.run(_aiokafka(address, topic, start, end))


def kafka_python(address: str, topic: str, start: int, end: int) -> list[int]:
    consumer = KafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", enable_auto_commit=False, fetch_max_wait_ms=50
    )
    try:
        place = PyTopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, start)
        assert consumer.end_offsets([place]) == {place: end}
        found: list[int] = []
        for _ in range(PATIENCE_S * 10):
            for records in consumer.poll(100).values():
                found += [record.offset for record in records]
            if (consumer.position(place) or 0) >= end:
                break
        for records in consumer.poll(100).values():
            found += [record.offset for record in records]
        return found
    finally:
        consumer.close()


@pytest.fixture(scope="module", params=RELEASES)
def adopted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(release, address) of a broker on the directory of that release."""
    folder = tmp_path_factory.mktemp("adopted")
    shutil.copytree(DIRECTORIES / request.param, folder / "data")
    broker = RunningBroker(folder)
    yield request.param, broker.address
    broker.close()


@pytest.mark.parametrize("read", [confluent, aiokafka, kafka_python])
def test_exactly_the_committed_records_are_read(adopted: tuple[str, str], read: Reader) -> None:
    release, address = adopted
    wanted = json.loads((DIRECTORIES / f"{release}.json").read_text())
    topics = [topic for topic in wanted if "transaction" in topic]
    assert len(topics) == 3
    for topic in topics:
        result = wanted[topic]
        found = read(address, topic, result["log_start_offset"], result["last_stable_offset"])
        assert found == result["committed"], topic
        assert len(found) < len(result["records"]) or topic.startswith("compacted")
