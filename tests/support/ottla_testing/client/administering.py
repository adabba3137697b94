"""Shared helpers for the tests of the admin client: brokers of all releases in the test's event loop, and an admin
client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ottla.client import Admin
from ottla.client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ottla_testing.patience import PATIENCE_MS

RELEASES = ("0.9", "0.10.2", "1.1", "2.4", "2.8", "3.9", "4.3", "ottla")
ORDER = tuple("0.9 0.10.2 0.11 1.0 1.1 2.1 2.4 2.6 2.8 3.0 3.8 3.9 4.3 ottla".split())


def since(release: str, first: str) -> bool:
    """Returns whether a release is the given one or newer."""
    return ORDER.index(release) >= ORDER.index(first)


@contextlib.asynccontextmanager
async def administering(broker: Any, **options: Any) -> AsyncIterator[Admin]:
    """A started admin client."""
    options.setdefault("retry_backoff_ms", 5)
    options.setdefault("reconnect_backoff_ms", 5)
    options.setdefault("default_api_timeout_ms", PATIENCE_MS)
    async with Admin(f"127.0.0.1:{broker.ports[0]}", **options) as admin:
        yield admin


@contextlib.asynccontextmanager
async def time_going_on(broker: Any) -> AsyncIterator[None]:
    """Advances the broker's clock continuously: this ends the initial rebalance delay."""

    async def go_on() -> None:
        while True:
            broker.clock.advance(1)
            await asyncio.sleep(0.002)

    ticking = asyncio.ensure_future(go_on())
    try:
        yield
    finally:
        ticking.cancel()


def code(outcome: Any) -> int:
    """Returns the code of an error, 0 for success."""
    if isinstance(outcome, KafkaError):
        return outcome.code
    assert not isinstance(outcome, ClientError)
    return 0


def codes(outcomes: dict[Any, Any]) -> list[int]:
    return [code(outcome) for outcome in outcomes.values()]


def unsupported(outcomes: dict[Any, Any]) -> bool:
    """Returns whether the broker is too old for all items; fails if it is for some only."""
    (response,) = {isinstance(outcome, UnsupportedVersion) for outcome in outcomes.values()}
    return response
