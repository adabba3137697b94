"""A proxy between clients and a broker whose connections can be cut, refused or stalled.
It runs in its own thread. `target` may change while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from ottla_testing.patience import PATIENCE_S

CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """Listens on `port`, by default a free one."""

    def __init__(self, port: int = 0) -> None:
        self.target = 0
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._refuses = False
        self._flows = {way: asyncio.Event() for way in ("requests", "answers")}
        for event in self._flows.values():
            event.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", port))
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _call(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_S)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # the broker is down
            writer.transport.abort()
            return
        pair = (writer, to_broker)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pump(reader, to_broker, "requests"),
                self._pump(from_broker, writer, "answers"),
            )
        finally:
            self._pairs.discard(pair)

    async def _pump(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await self._flows[way].wait()
                to.write(data)
                await to.drain()
        to.close()

    # -- thread-safe methods

    def cut(self, *, clients_only: bool = False) -> None:
        """Cuts all connections at once, or only the clients' side: then the broker still gets the held data."""

        async def cut() -> None:
            self.cuts += len(self._pairs)
            for pair in list(self._pairs):
                for writer in pair[:1] if clients_only else pair:
                    writer.transport.abort()

        self._call(cut())

    def refuse(self, refuses: bool) -> None:
        """Refuses new connections, or accepts them again."""
        self._refuses = refuses

    def hold(self, way: str) -> None:
        """Holds `requests` or `answers` back until `release`; `cut` discards them."""

        async def hold() -> None:
            self._flows[way].clear()

        self._call(hold())

    def release(self) -> None:
        async def release() -> None:
            for event in self._flows.values():
                event.set()

        self._call(release())

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            for pair in list(self._pairs):
                for writer in pair:
                    writer.transport.abort()
            await asyncio.sleep(0.05)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        self._call(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
