"""Brokers with several data directories whose partitions move between them (KIP-113)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from ottla.broker.clock import ManualClock
from ottla.broker.config.values import ConfigSource
from ottla.broker.network import server
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.records import batch
from ottla.storage.check.directory import Verification
from ottla.storage.io.files import DiskFiles, Files
from ottla_testing.broker.harness import Broker, fetch, only, options, produce, values
from ottla_testing.broker.replica_cases import codes, moving
from ottla_testing.patience import PATIENCE_S

SMALL = {"segment.bytes": "1024", "index.interval.bytes": "100", "retention.ms": "-1"}
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@contextlib.asynccontextmanager
async def running(
    *folders: Path, files: Files | None = None, overrides: Mapping[str, str] | None = None, brokers: int = 1
) -> AsyncIterator[Broker]:
    clock = ManualClock()
    requested = options(folders, overrides, "3.9", brokers)  # a profile that allows small segments
    started = await server.start(requested, asyncio.get_running_loop(), clock, files=files or DiskFiles())
    broker = Broker(started, clock)
    try:
        yield broker
    finally:
        await broker.stop()


def numbered(sequence: int, *found: bytes, producer_id: int = 7, epoch: int = 0) -> bytearray:
    """A batch of an idempotent producer."""
    made = [batch.Record(index, 1000 + index, None, value, ()) for index, value in enumerate(found)]
    return batch.build(made, batch.BatchFields(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


async def sent(broker: Broker, first: int, count: int, topic: str = "t") -> None:
    """Sends one record per batch until there are this many bytes; returns the number of records."""
    client = await broker.client()
    for number in range(first, first + count):
        response = only(await client.call(produce(numbered(number, b"%050d" % number), topic), 9))
        assert (response.error_code, response.base_offset) == (0, number)
    client.close()


async def read(broker: Broker, topic: str = "t") -> list[int]:
    client, found = await broker.client(), []
    while True:
        response = only(await client.call(fetch((topic, 0, len(found)), max_wait_ms=0), 11))
        assert response.error_code == 0
        here = values(response.records)
        if not here:
            client.close()
            return found
        found += [int(value or b"") for value in here]


def other(broker: Broker, folders: tuple[Path, Path], topic: str = "t") -> Path:
    """The directory without the partition."""
    here = Path(broker.log(topic).directory).parent
    return next(folder for folder in folders if folder != here)


async def request_move(broker: Broker, folder: Path, topic: str = "t", index: int = 0) -> int:
    client = await broker.client()
    response = await client.call(moving((str(folder), topic, index)), 2)
    client.close()
    return codes(response)[topic, index]


async def described(broker: Broker) -> dict[str, list[tuple[int, bool]]]:
    """(lag, is a copy) of t-0 in each directory."""
    client = await broker.client()
    response = await client.call(DescribeLogDirsRequest(topics=None), 4)
    client.close()
    return {
        Path(one.log_dir).name: [
            (p.offset_lag, p.is_future_key) for topic in one.topics if topic.name == "t" for p in topic.partitions
        ]
        for one in response.results
    }


def faults(*folders: Path) -> list[str]:
    """The findings of `verify` in closed directories."""
    found = [(folder.name, finding) for folder in folders for finding in Verification(folder).findings()]
    return [f"{name}: {finding}" for name, finding in found if finding.wrong]


async def finished(broker: Broker) -> None:
    """Waits until no partition moves."""
    async with asyncio.timeout(PATIENCE_S):
        while broker.state.logs.moving:
            await asyncio.sleep(0.002)


async def slow(broker: Broker, rate: int = 1) -> None:
    """Sets the copy rate in bytes per second; the clock stands still."""
    broker.state.config.set_dynamic(RATE, str(rate), ConfigSource.DYNAMIC_DEFAULT_BROKER)


async def begun(broker: Broker, folder: Path) -> None:
    """A move to a folder that has copied a little and waits for the rate."""
    await slow(broker, 100)
    assert await request_move(broker, folder) == 0
    await broker.state.settle()
    ((lag, is_future),) = (await described(broker))[folder.name]
    assert lag > 0 and is_future
