"""A proxy between clients and a broker that loses responses: the broker has appended, and the client does not know."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import BinaryIO

PRODUCE = 0


def read_frame(stream: BinaryIO) -> bytes:
    """Reads the next request or response with its size; empty at the end."""
    size = stream.read(4)
    if len(size) < 4:
        return b""
    body = stream.read(struct.unpack(">i", size)[0])
    return size + body


class LosingProxy:
    """Passes everything on, but closes the connection in place of every `every`-th response to a Produce."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.target = 0
        self.lost = 0
        self._responses = 0
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # it has stopped
                client.close()
                continue
            produce_ids: set[bytes] = set()  # correlation ids of the Produce requests in flight
            for source, to, pass_on in ((client, broker, self._request), (broker, client, self._response)):
                threading.Thread(target=self._pump, args=(source, to, pass_on, produce_ids), daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket, pass_on, produce_ids: set[bytes]) -> None:  # type: ignore[no-untyped-def]
        with source, source.makefile("rb") as stream, contextlib.suppress(OSError):
            try:
                while (frame := read_frame(stream)) and pass_on(frame, produce_ids):
                    to.sendall(frame)
            finally:  # also if one side was reset: the other would wait forever
                to.shutdown(socket.SHUT_RDWR)

    def _request(self, frame: bytes, produce_ids: set[bytes]) -> bool:
        if struct.unpack_from(">h", frame, 4)[0] == PRODUCE:
            produce_ids.add(frame[8:12])
        return True

    def _response(self, frame: bytes, produce_ids: set[bytes]) -> bool:
        if frame[4:8] not in produce_ids:
            return True
        produce_ids.discard(frame[4:8])
        with self._lock:
            self._responses += 1
            if self._responses % self.every:
                return True
            self.lost += 1
            return False
