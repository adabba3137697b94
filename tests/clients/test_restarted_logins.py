"""Clients of each library, with each mechanism over each protocol, that send records while the broker restarts: once
cleanly, once by kill -9. Each record is stored once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from ottla.broker.config.security.words import PROTOCOLS
from ottla.broker.testing.client_settings import client_settings
from ottla.broker.testing.security import STATE, made
from ottla.client import Producer as OttlaProducer
from ottla_testing.clients.idempotent_writers import Progress
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")
RECORDS = 5
"""Before each restart and after the last one."""


def by_confluent(settings: dict[str, Any], topic: str, progress: Progress) -> None:
    producer = Producer({**settings, "enable.idempotence": True, "log_level": 0})
    number = 0
    while not progress.stop.is_set():
        producer.produce(topic, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        progress.acknowledged(number, number)
        number += 1


def by_kafka_python(settings: dict[str, Any], topic: str, progress: Progress) -> None:
    producer = KafkaProducer(reconnect_backoff_max_ms=200, **settings)
    number = 0
    while not progress.stop.is_set():
        progress.acknowledged(number, producer.send(topic, b"%d" % number).get(PATIENCE_S).offset)
        number += 1
    producer.close()


async def sent_by(send: Callable[[str, bytes], Awaitable[Any]], topic: str, progress: Progress) -> None:
    number = 0
    while not progress.stop.is_set():
        progress.acknowledged(number, (await send(topic, b"%d" % number)).offset)
        number += 1


def by_aiokafka(settings: dict[str, Any], topic: str, progress: Progress) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(enable_idempotence=True, **settings) as producer:
            await sent_by(producer.send_and_wait, topic, progress)

    asyncio.run(main())


def by_ottla(settings: dict[str, Any], topic: str, progress: Progress) -> None:
    async def main() -> None:
        async with OttlaProducer.from_config(settings) as producer:
            await sent_by(producer.send_and_wait, topic, progress)

    asyncio.run(main())


LIBRARIES = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ottla": by_ottla,
}


@each("word", [word for word in PROTOCOLS if word != "plaintext"])
def test_each_record_is_stored_once_over_restarts(word: str, tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path, security=word)
    security = made(word, (broker.data_dir / STATE).read_bytes())
    security.folder = str(broker.data_dir)
    sending: dict[str, tuple[Progress, threading.Thread]] = {}
    for library, send in LIBRARIES.items():
        for mechanism in security.mechanisms or (None,):
            progress, topic = Progress(), f"{library}-{mechanism}"
            settings = client_settings(library, broker.address, security, mechanism=mechanism)

            def run(send: Any = send, *arguments: Any) -> None:
                try:
                    send(*arguments)
                except BaseException as error:
                    arguments[-1].failures.append(error)
                    raise

            thread = threading.Thread(target=run, args=(send, settings, topic, progress))
            thread.start()
            sending[topic] = progress, thread
    try:
        for how in ("stop", "kill", None):
            for progress, _ in sending.values():
                progress.wait_for(len(progress.offsets) + RECORDS)
            if how is not None:
                broker.restart(how)
    finally:
        for progress, _ in sending.values():
            progress.stop.set()
        for _, thread in sending.values():
            thread.join(PATIENCE_S)
    for topic, (progress, thread) in sending.items():
        assert not thread.is_alive() and not progress.failures, (topic, progress.failures)
        assert sum(header.record_count for header in broker.stored(topic)) == len(progress.offsets), topic
    broker.close()
