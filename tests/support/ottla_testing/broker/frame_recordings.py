"""Recordings of sessions of raw frames, made in this process, and how they are played and compared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.recording.exchange import Exchange, Peer
from ottla.broker.releases.profiles import profile
from ottla.tools.replay.comparison import Comparison, Pair, Why, compare
from ottla.tools.replay.expected_differences import Foretelling
from ottla.tools.replay.player import Playing, PlayOptions, play
from ottla_testing.broker import harness
from ottla_testing.patience import PATIENCE_S

Session = Callable[[harness.Broker], Awaitable[object]]


class Kept:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def begun(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)

    def ended(self, exchange: Exchange) -> None:
        pass

    def opened(self, peer: Peer) -> None:
        pass

    def closed(self, peer: Peer) -> None:
        pass


async def recorded(folder: Path, session: Session, **more: Any) -> list[Exchange]:
    """What a session asked a fresh broker, which has a topic t of two partitions."""
    kept = Kept()
    async with harness.running(folder, **more) as broker:
        await broker.topic("t", 2)
        broker.running.connections.listen(kept)
        await session(broker)
    return kept.exchanges


async def played(
    exchanges: Sequence[Exchange],
    port: int,
    *,
    releases: tuple[str, str] | None = None,
    patience_s: float = PATIENCE_S,
    translate: bool = False,
) -> tuple[Playing, Comparison]:
    """Played to a broker, and compared."""
    done = await play(exchanges, ("127.0.0.1", port), PlayOptions(patience_s=patience_s, translate=translate))
    pairs = [Pair(step.exchange, step.played, step.not_sent, step.foretold) for step in done.steps]
    foretelling = None if releases is None else Foretelling(profile(releases[0]), profile(releases[1]))
    return done, compare(pairs, nodes=done.nodes, foretelling=foretelling)


def unexplained(found: Comparison) -> list[tuple[str, str, Any, Any]]:
    """(API, path, left, right) of what has no explanation."""
    return [(one.api, one.path, one.left, one.right) for one in found.findings if one.why is Why.UNEXPLAINED]


@asynccontextmanager
async def in_front_of(port: int, change: Callable[[int, bytes], Awaitable[bytes | None]]) -> AsyncIterator[int]:
    """A proxy before a broker, its port: `change` gets the API key and the answer's frame, and what it gives is
    answered instead; None closes the connection. The broker's own address is what clients are told."""

    tasks: set[Any] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        up, down = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(int.from_bytes(size, "big"))
                down.write(size + request)
                answer = await up.readexactly(int.from_bytes(await up.readexactly(4), "big"))
                changed = await change(int.from_bytes(request[:2], "big"), answer)
                if changed is None:
                    return
                writer.write(len(changed).to_bytes(4, "big") + changed)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            down.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
