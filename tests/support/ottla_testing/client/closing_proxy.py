"""A proxy between a client and a broker in the test's event loop, which closes the connection at a given request.

It closes before the request is passed on (it is never processed), or after that (its response is lost). While the
broker is away connections are refused. `requested` are the API keys of the requests, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable

BEFORE, AFTER = "before", "after"


class ClosingProxy:
    """`target` is the broker's port, 0 while there is none."""

    def __init__(self) -> None:
        self.target = 0
        self.requested: list[int] = []
        self.cuts = 0
        self._shut_on: tuple[int, str, Callable[[], None] | None] | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        """Starts listening; returns the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def shut_on(self, api_key: int, where: str, then: Callable[[], None] | None = None) -> None:
        """Ends the connection at the next request of that API; `then` is called just after that."""
        self._shut_on = api_key, where, then

    @property
    def is_waiting(self) -> bool:
        """Returns whether that request has not come yet."""
        return self._shut_on is not None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target or 1)
        except OSError:
            writer.transport.abort()
            return
        lost = asyncio.Event()  # responses are lost from here on
        back = asyncio.create_task(self._pump_responses(from_broker, writer, lost))
        try:
            with contextlib.suppress(asyncio.CancelledError):  # of `close`; the stream would log it
                await self._requests(reader, to_broker, lost)
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            writer.transport.abort()
            to_broker.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(size, "big"))
                (api_key,) = struct.unpack_from(">h", body)
                self.requested.append(api_key)
                shut = self._shut_on
                if shut is None or shut[0] != api_key:
                    writer.write(size + body)
                    await writer.drain()
                    continue
                self._shut_on = None
                self.cuts += 1
                if shut[1] == AFTER:
                    lost.set()
                    writer.write(size + body)
                    await writer.drain()
                    await asyncio.sleep(0.02)  # the broker is in this event loop, and needs some iterations of it
                if shut[2] is not None:
                    shut[2]()
                return

    async def _pump_responses(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if lost.is_set():
                    continue
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
