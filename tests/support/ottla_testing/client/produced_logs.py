"""Shared helpers for the tests of the producer: brokers in this event loop, the producer with their clock, and reading
of logs.

Reuses the harness of the broker's tests: a clock that stands still, so that timestamps are known.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ottla.client.producer.producer import Producer
from ottla.protocol.records import formats
from ottla.protocol.records.batch import BatchHeader, Record
from ottla_testing.broker.harness import Broker, running

__all__ = ["Broker", "headers_of", "producing", "records_of", "running"]


@contextlib.asynccontextmanager
async def producing(broker: Broker, **options: Any) -> AsyncIterator[Producer]:
    """A started producer."""
    options.setdefault("now_ms", broker.clock.now_ms)
    options.setdefault("retry_backoff_ms", 5)
    producer = Producer(f"127.0.0.1:{broker.ports[0]}", **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


def stored(broker: Broker, topic: str, partition: int = 0) -> list[tuple[BatchHeader, list[Record]]]:
    """Yields each batch of a partition with its records."""
    log = broker.log(topic, partition)
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 24).records)
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            found.append((header, list(formats.records(data, position))))
            offset = found[-1][1][-1].offset + 1
    return found


def headers_of(broker: Broker, topic: str, partition: int = 0) -> list[BatchHeader]:
    return [header for header, _ in stored(broker, topic, partition)]


def records_of(broker: Broker, topic: str, partition: int = 0) -> list[Record]:
    return [record for _, records in stored(broker, topic, partition) for record in records]


def idempotent(broker: Broker, topic: str) -> bool:
    """Returns whether the batches in the log have a producer id; fails if only some have."""
    (response,) = {header.producer_id >= 0 for header in headers_of(broker, topic)}
    return response


Overrides = Mapping[str, str]
