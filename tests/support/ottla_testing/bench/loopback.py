"""The far end of a connection that only receives or sends bytes: the highest rate of this machine's loopback.
    python loopback.py
Listens on a free port, which it prints. The first bytes of a connection are a command of two int64 (big-endian):
(bytes, 0) to receive this many and respond with one byte, or (count, size) to send this many frames, each with its size
before it like a broker's responses.
"""

from __future__ import annotations

import socket
import struct

COMMAND = struct.Struct(">qq")
BUFFER_BYTES = 1 << 20


def take(connection: socket.socket, left: int) -> None:
    buffer = bytearray(BUFFER_BYTES)
    while left > 0:
        got = connection.recv_into(buffer)
        if not got:
            return
        left -= got
    connection.sendall(b"\0")


def give(connection: socket.socket, count: int, size: int) -> None:
    frame = size.to_bytes(4, "big") + bytes(size)
    for _ in range(count):
        connection.sendall(frame)


def serve() -> None:
    """Serves one connection after the other, until the process ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                first, second = COMMAND.unpack(connection.recv(COMMAND.size, socket.MSG_WAITALL))
                if second:
                    give(connection, first, second)
                else:
                    take(connection, first)


if __name__ == "__main__":
    serve()
