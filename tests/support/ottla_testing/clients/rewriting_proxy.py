"""A proxy between clients and a broker that changes requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from ottla_testing.clients.losing_proxy import read_frame


class RewritingProxy:
    """Passes everything on; a request, with its size, is replaced by the result of `rewrite`."""

    def __init__(self, rewrite: Callable[[bytes], bytes]) -> None:
        self.target = 0
        self._rewrite = rewrite
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

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
            for source, to, change in ((client, broker, self._rewrite), (broker, client, bytes)):
                threading.Thread(target=_pump, args=(source, to, change), daemon=True).start()


def _pump(source: socket.socket, to: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with source, source.makefile("rb") as stream:
        try:
            while frame := read_frame(stream):
                to.sendall(change(frame))
            to.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
