"""Three clients with short timeouts: each has a producer that sends one record at a time, and a consumer.

`producing(client, address, ...)` and `consuming(client, address, ...)` are context managers. A client's exceptions are
not changed; other errors of librdkafka are raised as its KafkaException.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as PyTopicPartition

from ottla_testing.patience import PATIENCE_MS

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka")
BACKOFF_MS = 20


class Read(NamedTuple):
    """One record as returned by a consumer."""

    partition: int
    offset: int
    timestamp_ms: int
    value: bytes


class Sending(ABC):
    """A producer."""

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        """Returns the offset when the record is acknowledged, or raises the client's exception."""


class Reading(ABC):
    """A consumer; of one assigned partition from the beginning, or of a topic in a group."""

    @abstractmethod
    def poll(self, seconds: float) -> list[Read]:
        """Returns the records of a number of seconds, or raises the client's exception."""

    def read(self, count: int) -> list[Read]:
        """Returns `count` records, or fewer after the timeout.

        In long polls: kafka-python (3.0.12) never completes a join in which a poll ended.
        """
        found: list[Read] = []
        end = time.monotonic() + PATIENCE_MS / 1000
        while len(found) < count and (left := end - time.monotonic()) > 0:
            found += self.poll(left)
        return found

    def commit(self) -> None:
        """Commits the position, synchronously."""
        raise AssertionError("not this one")


class PySending(Sending):
    def __init__(self, address: str, idempotent: bool, patience_ms: int, more: dict[str, Any]) -> None:
        self.patience_ms = patience_ms
        self.producer = KafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=idempotent,
            request_timeout_ms=more.pop("request_timeout_ms", patience_ms),
            delivery_timeout_ms=patience_ms,
            max_block_ms=PATIENCE_MS,
            **backoff(),
            **more,
        )

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        return self.producer.send(topic, value, partition=partition).get((self.patience_ms + 5000) / 1000).offset

    def close(self) -> None:
        self.producer.close(0.2)


class ConfluentSending(Sending):
    def __init__(self, address: str, idempotent: bool, patience_ms: int, more: dict[str, Any]) -> None:
        settings = {"message.timeout.ms": patience_ms, "enable.idempotence": idempotent, "linger.ms": 0}
        self.producer = Producer({**librdkafka(address), **settings, **dotted(more)})

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        outcome: list[tuple[KafkaError | None, Any]] = []
        self.producer.produce(topic, value, partition=partition, on_delivery=lambda *result: outcome.append(result))
        while not outcome:
            self.producer.poll(1)
        ((error, message),) = outcome
        if error is not None:
            raise KafkaException(error)
        return message.offset()

    def close(self) -> None:
        if len(self.producer):
            self.producer.purge()
            self.producer.flush(1)


class AioSending(Sending):
    def __init__(self, address: str, idempotent: bool, patience_ms: int, more: dict[str, Any]) -> None:
        self.runner = asyncio.Runner()
        try:
            self.runner.run(self._start(address, idempotent, patience_ms, more))
        except BaseException:
            self.runner.close()
            raise

    async def _start(self, address: str, idempotent: bool, patience_ms: int, more: dict[str, Any]) -> None:
        self.producer = AIOKafkaProducer(
            bootstrap_servers=address,
            enable_idempotence=idempotent,
            acks="all",
            request_timeout_ms=more.pop("request_timeout_ms", patience_ms),
            retry_backoff_ms=BACKOFF_MS,
            **more,
        )
        try:
            await self.producer.start()
        except BaseException:
            await self.producer.stop()
            raise

    def send(self, topic: str, value: bytes, partition: int = 0) -> int:
        async def send() -> int:
            return (await self.producer.send_and_wait(topic, value, partition=partition)).offset

        return self.runner.run(send())

    def close(self) -> None:
        try:
            self.runner.run(self.producer.stop())
        finally:
            self.runner.close()


class PyReading(Reading):
    def __init__(self, address: str, topic: str, group: str | None, more: dict[str, Any]) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **backoff(),
            **more,
        )
        self.group = group
        if group:
            self.consumer.subscribe([topic])
        else:
            self.consumer.assign([PyTopicPartition(topic, 0)])

    def poll(self, seconds: float) -> list[Read]:
        found = self.consumer.poll(int(seconds * 1000)).values()
        return [Read(r.partition, r.offset, r.timestamp, r.value) for records in found for r in records]

    def commit(self) -> None:
        self.consumer.commit()

    def close(self) -> None:
        self.consumer.close()


class ConfluentReading(Reading):
    def __init__(self, address: str, topic: str, group: str | None, more: dict[str, Any]) -> None:
        settings: dict[str, Any] = {
            "group.id": group or "nobody",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": BACKOFF_MS,
        }
        self.consumer = Consumer({**librdkafka(address), **settings, **dotted(more)})
        self.held: Any = None
        if group:
            self.consumer.subscribe([topic])
        else:
            self.consumer.assign([TopicPartition(topic, 0, 0)])

    def poll(self, seconds: float) -> list[Read]:
        found: list[Read] = []
        while (m := self._next(0 if found else seconds)) is not None:
            if error := m.error():
                if found:  # these first
                    self.held = m
                    return found
                raise KafkaException(error)
            found.append(Read(m.partition() or 0, m.offset() or 0, m.timestamp()[1], m.value() or b""))  # type: ignore[arg-type]
        return found

    def _next(self, seconds: float) -> Any:
        """Returns the next message at once: consume() would wait for more."""
        held, self.held = self.held, None
        return self.consumer.poll(seconds) if held is None else held

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class AioReading(Reading):
    def __init__(self, address: str, topic: str, group: str | None, more: dict[str, Any]) -> None:
        self.runner = asyncio.Runner()
        try:
            self.runner.run(self._start(address, topic, group, more))
        except BaseException:
            self.runner.close()
            raise

    async def _start(self, address: str, topic: str, group: str | None, more: dict[str, Any]) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            retry_backoff_ms=BACKOFF_MS,
            **more,
        )
        if group:
            self.consumer.subscribe([topic])
        else:
            self.consumer.assign([AioTopicPartition(topic, 0)])
        try:
            await self.consumer.start()
        except BaseException:
            await self.consumer.stop()
            raise

    def poll(self, seconds: float) -> list[Read]:
        found = self.runner.run(self.consumer.getmany(timeout_ms=int(seconds * 1000))).values()
        return [Read(r.partition, r.offset, r.timestamp, r.value or b"") for records in found for r in records]

    def commit(self) -> None:
        self.runner.run(self.consumer.commit())

    def close(self) -> None:
        try:
            self.runner.run(self.consumer.stop())
        finally:
            self.runner.close()


def backoff() -> dict[str, Any]:
    """Returns the backoff options by kafka-python's names."""
    return {"retry_backoff_ms": BACKOFF_MS, "reconnect_backoff_ms": BACKOFF_MS, "reconnect_backoff_max_ms": 100}


def librdkafka(address: str) -> dict[str, Any]:
    times = {"retry.backoff.ms": BACKOFF_MS, "reconnect.backoff.ms": BACKOFF_MS, "reconnect.backoff.max.ms": 100}
    fast = {"topic.metadata.refresh.fast.interval.ms": BACKOFF_MS, "topic.metadata.refresh.interval.ms": 300}
    return {"bootstrap.servers": address, "log_level": 0, **times, **fast, "socket.timeout.ms": 10_000}


def dotted(more: dict[str, Any]) -> dict[str, Any]:
    return {name if name.endswith("_cb") else name.replace("_", "."): value for name, value in more.items()}


SENDING: dict[str, Callable[..., Any]] = {
    "kafka-python": PySending,
    "confluent-kafka": ConfluentSending,
    "aiokafka": AioSending,
}
READING: dict[str, Callable[..., Any]] = {
    "kafka-python": PyReading,
    "confluent-kafka": ConfluentReading,
    "aiokafka": AioReading,
}


@contextmanager
def producing(
    client: str, address: str, *, idempotent: bool = False, patience_ms: int = PATIENCE_MS, **more: Any
) -> Iterator[Sending]:
    """A producer that gives up after `patience_ms`; `more` are the client's own settings, with _ in place of dots."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        producer = SENDING[client](address, idempotent, patience_ms, more)
        try:
            yield producer
        finally:
            producer.close()


@contextmanager
def consuming(client: str, address: str, topic: str, group: str | None = None, **more: Any) -> Iterator[Reading]:
    """A consumer of partition 0 from its beginning, or of the topic as a group member; no automatic commits."""
    consumer = READING[client](address, topic, group, more)
    try:
        yield consumer
    finally:
        consumer.close()


def code_of(error: BaseException) -> int | None:
    """Returns Kafka's code of an error, or librdkafka's own below zero."""
    if isinstance(error, KafkaException):
        return error.args[0].code()
    return getattr(error, "errno", None)
