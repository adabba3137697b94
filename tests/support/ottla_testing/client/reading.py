"""Shared helpers for the tests of the consumer: brokers of all releases in the test's event loop, logs with records."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.client import Consumer, ConsumerRecord
from ottla.protocol.records.batch import Record
from ottla_testing.patience import PATIENCE_S

RELEASES = ("0.8.2", "0.9", "0.10.2", "0.11", "2.8", "3.9", "4.3", "ottla")
NOW_MS = 1_700_000_000_000


def consumer_of(broker: Any, *topics: str, **options: Any) -> Consumer:
    """A started consumer of that broker, from the log start on."""
    if topics:
        options["topics"] = topics
    options.setdefault("offset_reset", "earliest")
    options.setdefault("retry_backoff_ms", 5)
    options.setdefault("reconnect_backoff_ms", 5)
    return Consumer(f"127.0.0.1:{broker.ports[0]}", **options)


def write(broker: Any, *values: bytes | None, topic: str = "t", partition: int = 0, codec: int = 0) -> int:
    """Appends one batch in the topic's own format, and wakes waiting fetches; returns its first offset."""
    owner = broker.state.topics.partition(topic, partition)
    start = owner.log.log_end_offset
    records = [Record(n, NOW_MS + n, b"k%d" % n, value) for n, value in enumerate(values)]
    owner.log.append_records(records, now_ms=NOW_MS, codec=codec)
    owner.wake()
    return start


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Reads `count` records, one by one."""
    async with asyncio.timeout(PATIENCE_S):
        return [await consumer.getone() for _ in range(count)]


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    return [record.value for record in await read(consumer, count)]
