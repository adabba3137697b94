"""Real clients of a broker that syncs each append before its response: three idempotent producers and a group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.clients.four_clients import create_topic
from ottla_testing.clients.idempotent_writers import PRODUCERS, Progress, numbers_in
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]

CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")


@pytest.fixture
def syncing_broker(tmp_path: Path):
    """A broker for this test that syncs each append."""
    running = RunningBroker(tmp_path, log_flush_interval_messages="1", offsets_topic_num_partitions="1")
    yield running
    running.close()


def test_producers_and_groups_work_with_a_broker_that_syncs(
    syncing_broker: RunningBroker, scaled: Callable[[int], int]
) -> None:
    """All at once, each with a topic of its own; a kill in between, and the same again."""
    from confluent_kafka import Consumer, TopicPartition

    address = syncing_broker.address
    topics = {client: create_topic(address, f"by-{client}") for client in CLIENTS}
    written = {client: Progress() for client in CLIENTS}
    threads = [
        threading.Thread(target=PRODUCERS[client], args=(address, topics[client], progress))
        for client, progress in written.items()
    ]
    for thread in threads:
        thread.start()
    try:
        for progress in written.values():
            progress.wait_for(scaled(500))
        syncing_broker.restart("kill")
        for progress in written.values():
            progress.wait_for(len(progress.offsets) + scaled(500))
    finally:
        for progress in written.values():
            progress.stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    for client, progress in written.items():
        assert not progress.failures, progress.failures[0]
        found = numbers_in(syncing_broker, topics[client])
        assert found == list(range(len(found))) and set(progress.offsets) <= set(found), client
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    try:
        for offset in range(1, scaled(20)):
            place = TopicPartition(topics["confluent-kafka"], 0, offset)
            (committed,) = consumer.commit(offsets=[place], asynchronous=False)
            assert committed.error is None
            (found,) = consumer.committed([TopicPartition(topics["confluent-kafka"], 0)], timeout=PATIENCE_S)
            assert found.offset == offset
    finally:
        consumer.close()
    assert syncing_broker.stop() == 0
