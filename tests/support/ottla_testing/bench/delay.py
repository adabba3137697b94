"""A proxy process for a broker that delays all bytes in both directions, like a long connection.
    python delay.py LISTEN_PORT TARGET_PORT MILLISECONDS_PER_DIRECTION
Does not limit the bandwidth: each piece is delayed separately.
"""

from __future__ import annotations

import asyncio
import sys


class Side(asyncio.Protocol):
    """One side of a connection; `other` is where its bytes go."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.waiting: list[bytes] = []  # received before the other side was connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        for data in self.waiting:
            transport.write(data)
        self.waiting.clear()

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self.waiting.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            asyncio.get_running_loop().call_later(self.seconds, self.other.write, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def serve(listen: int, target: int, seconds: float) -> None:
    """Serves until the process ends."""
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[object]] = set()

    def accept() -> Side:
        client, broker = Side(seconds), Side(seconds)
        client.other, broker.other = broker, client
        task = loop.create_task(loop.create_connection(lambda: broker, "127.0.0.1", target))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return client

    server = await loop.create_server(accept, "127.0.0.1", listen)
    print("open", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1e3))
