"""Recordings in memory and of a process, and the events that they record."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ottla.broker.recording.exchange import Buffer, Exchange
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.patience import PATIENCE_S

FOLDER = Path("/recorded")
FORMATS = ["jsonl", "pcapng"]
SECRET = b"geheim"


def memory(**more: Any) -> Any:
    return running(FOLDER, files=MemoryFiles(lambda: 0), **more)


def facts(exchange: Exchange) -> tuple[Any, ...]:
    """Returns the facts that both formats have without loss."""
    return (
        *(exchange.number, exchange.peer.number, exchange.api_key, exchange.api_version, exchange.correlation_id),
        *(exchange.client_id, exchange.request, exchange.response, exchange.ending, exchange.time_ms),
        *(exchange.request_bytes, exchange.response_bytes, exchange.fault, exchange.reason),
        *(exchange.software_name, exchange.software_version, exchange.peer.client_port, exchange.peer.listener),
    )


class Sink:
    """The events to compare a recording with."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def opened(self, peer: Any) -> None: ...

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        self.exchanges.append(exchange)

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None: ...

    def closed(self, peer: Any) -> None: ...


async def settled(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not done():
            await asyncio.sleep(0.002)


async def calls(broker: Broker, count: int, size: int) -> None:
    client = await broker.client()
    for _ in range(count):
        await client.call(produce(records(os.urandom(size))), 9)
