"""Helpers of quota tests: a client with exact charges, and its throttle time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ottla.protocol.records import batch, legacy
from ottla_testing.broker.harness import Broker, Client, frame, records, running
from ottla_testing.broker.quota_cases import set_quotas

HELD: dict[str, str | None] = {"client-id": "held"}
EVERY_CLIENT: dict[str, str | None] = {"client-id": None}
LOOP_ITERATIONS = 20
MB = 1_000_000


def size_of(request: Any, version: int) -> int:
    """Returns the size that a request is charged for."""
    return len(frame(request, version, 1)) - 4


def data_of(version: int, size: int) -> bytes:
    """Returns a record set for a version of Produce."""
    if version >= 3:
        return bytes(records(bytes(size)))
    made = [batch.Record(0, 1_700_000_000_000, None, bytes(size), ())]
    return bytes(legacy.build(made, magic=1 if version == 2 else 0))


def wait_after(size: int, rate: float, window_ms: int = 10_000) -> int:
    return round(max(0.0, (size / (window_ms / 1000) - rate) / rate * window_ms))


async def is_heard(broker: Broker, client: Client) -> bool:
    """Returns whether the broker responds to a request now; otherwise it stays pending."""
    response = asyncio.ensure_future(client.receive())
    await broker.settle()
    for _ in range(LOOP_ITERATIONS):
        await asyncio.sleep(0)
    if response.done():
        return True
    response.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await response
    return False


class Held(Client):
    """A client with its own client id."""

    async def send(self, request: Any, version: int, client_id: str | None = "held") -> int:
        return await super().send(request, version, client_id)

    async def call(self, request: Any, version: int, client_id: str | None = "held") -> Any:
        return await super().call(request, version, client_id)


async def held(broker: Broker) -> Held:
    client = await Held.connect(broker.ports[0])
    broker._clients.append(client)
    assert isinstance(client, Held)
    return client


@contextlib.asynccontextmanager
async def limited(tmp_path: Path, **quotas: float) -> AsyncIterator[tuple[Broker, Held]]:
    """Runs a broker with topic t, quotas for one client id, and a client with that id."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        await set_quotas(await broker.client(), HELD, **quotas)
        yield broker, await held(broker)


def percent_timer(broker: Broker, ms: int) -> None:
    """Returns a timer that advances by this much per reading: the time of a handler step, and of building a
    response.
    """
    assert broker.state.quotas.throttle is not None
    broker.state.quotas.throttle.timer = itertools.count(1, ms * 1_000_000).__next__
