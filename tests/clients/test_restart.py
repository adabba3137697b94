"""Acknowledged records survive a restart, clean or by kill -9, and idempotent producers write no duplicates."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla_testing.clients.four_clients import READERS, WRITERS
from ottla_testing.clients.idempotent_writers import PRODUCERS, Progress, numbers_in
from ottla_testing.clients.mixed_records import difference, mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("client", PRODUCERS)
def test_idempotent_producer_continues_over_restarts_without_duplicates(
    client: str, how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """Three restarts during writes: no acknowledged record is lost, duplicated or reordered."""
    topic = create(own_broker.address, "t")
    progress = Progress()
    thread = threading.Thread(target=PRODUCERS[client], args=(own_broker.address, topic, progress))
    thread.start()
    try:
        for _ in range(3):
            progress.wait_for(len(progress.offsets) + scaled(1000))
            own_broker.restart(how)
        progress.wait_for(len(progress.offsets) + scaled(1000))
    finally:
        progress.stop.set()
        thread.join(PATIENCE_S)
    assert not progress.failures, progress.failures[0]
    found = numbers_in(own_broker, topic)
    assert {number: found.index(number) for number in list(progress.offsets)[::97]} == dict(
        list(progress.offsets.items())[::97]
    )
    assert found == list(range(len(found)))
    assert set(progress.offsets) <= set(found)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_acknowledged_records_survive_a_restart(
    how: str, own_broker: RunningBroker, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """Written by each client with another codec; twice, since recovered records are recovered again."""
    topics: dict[str, list] = {}
    for client, codec in zip(WRITERS, ("gzip", "zstd", "lz4", "snappy"), strict=False):
        plain = mixed(scaled(1500), plain=True, null_values=False)
        topic = create(own_broker.address, f"{client}-{codec}", segment_bytes=1 << 20)
        WRITERS[client](own_broker.address, topic, plain, codec)
        topics[topic] = plain
    for _ in range(2):
        own_broker.restart(how)
        for topic, sent in topics.items():
            found = READERS["confluent-kafka"](own_broker.address, topic, len(sent))
            assert difference([m._replace(headers=()) for m in sent], [m._replace(headers=()) for m in found]) is None
    for topic in topics:  # and writing continues after it
        WRITERS["confluent-kafka"](own_broker.address, topic, mixed(10, plain=True))
        assert len(READERS["kafka-python"](own_broker.address, topic, len(topics[topic]) + 10)) >= len(topics[topic])
