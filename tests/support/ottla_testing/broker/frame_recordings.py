"""Recordings of sessions of raw frames, made in this process, and their replay and comparison."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ottla.broker.recording.exchange import Buffer, Exchange, Peer
from ottla.broker.releases.profiles import profile
from ottla.tools.replay.comparison import Comparing, Comparison, Pair, Why
from ottla.tools.replay.expected_differences import ExpectedDifferences
from ottla.tools.replay.player import Player, PlayOptions, play
from ottla_testing.broker import harness
from ottla_testing.patience import PATIENCE_S

Session = Callable[[harness.Broker], Awaitable[object]]


class Kept:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        self.exchanges.append(exchange)

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        pass

    def opened(self, peer: Peer) -> None:
        pass

    def closed(self, peer: Peer) -> None:
        pass


async def recorded(folder: Path, session: Session, **more: Any) -> list[Exchange]:
    """Records a session of requests to a fresh broker with a topic t of two partitions."""
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
) -> tuple[Player, Comparison]:
    """Replays a recording to a broker, and compares the responses."""
    done = await play(exchanges, ("127.0.0.1", port), PlayOptions(patience_s=patience_s, translate=translate))
    pairs = [Pair(step.exchange, step.played, step.not_sent, step.expected) for step in done.steps]
    expected = None if releases is None else ExpectedDifferences(profile(releases[0]), profile(releases[1]))
    return done, Comparing(pairs, nodes=done.nodes, expected=expected).run()


def unexplained(found: Comparison) -> list[tuple[str, str, Any, Any]]:
    """Returns (API, path, left, right) of differences without an explanation."""
    return [(one.api, one.path, one.left, one.right) for one in found.findings if one.why is Why.UNEXPLAINED]


@asynccontextmanager
async def in_front_of(port: int, change: Callable[[int, bytes], Awaitable[bytes | None]]) -> AsyncIterator[int]:
    """Runs a proxy and yields its port. `change` gets the API key and the response's frame, and returns the frame to
    send; None closes the connection. Clients are given the broker's own address."""

    tasks: set[Any] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        up, down = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                size = await reader.readexactly(4)
                request = await reader.readexactly(int.from_bytes(size, "big"))
                down.write(size + request)
                response = await up.readexactly(int.from_bytes(await up.readexactly(4), "big"))
                changed = await change(int.from_bytes(request[:2], "big"), response)
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
