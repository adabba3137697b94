"""Consumers in group `g` of a broker whose clock advances continuously."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from ottla.client import Consumer
from ottla_testing.broker import harness
from ottla_testing.client.reading import consumer_of
from ottla_testing.patience import PATIENCE_S

QUICK = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1"}


@contextlib.asynccontextmanager
async def running(tmp_path: Path, release: str = "ottla", overrides: dict[str, str] = QUICK) -> AsyncIterator[Any]:
    """Runs a broker whose clock advances continuously: this ends the initial rebalance delay."""
    async with harness.running(tmp_path, release=release, overrides=overrides) as broker:

        async def go_on() -> None:
            while True:
                broker.clock.advance(1)
                await asyncio.sleep(0.002)

        ticking = asyncio.ensure_future(go_on())
        try:
            yield broker
        finally:
            ticking.cancel()


def member_of(broker: Any, *topics: str, **options: Any) -> Consumer:
    """Returns a member of group g that notices rebalances soon."""
    quick: dict[str, Any] = {"group": "g", "heartbeat_interval_ms": 20, "enable_auto_commit": False}
    return consumer_of(broker, *(topics or ("t",)), **{**quick, **options})


async def until(condition: Callable[[], Any]) -> None:
    """Returns when the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def group(broker: Any) -> Any:
    return broker.state.groups.group("g")


def members(broker: Any) -> list[Any]:
    found = group(broker)
    return list(found.members.values()) if found else []
