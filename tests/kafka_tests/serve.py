"""`ottla serve` with what plug-ins in Java of a test do: its principal builder, and its callback handler for PLAIN.

    serve.py FILE PORT serve ...

The file has a line for each principal: the listener, the principal here, and that of the builder, between tabs. At the
port on this machine the handler takes users and passwords (`Logins.java`); an empty one is for none.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.broker.connection_info import ConnectionInfo
from ottla.broker.network import connections
from ottla.broker.security.authorizer import ANONYMOUS
from ottla.broker.security.sasl import session
from ottla.broker.security.sasl.mechanisms import PlainExchange
from ottla.tools.main import main

RULES = {
    (listener, known): built
    for listener, known, built in (line.split("\t") for line in Path(sys.argv.pop(1)).read_text().splitlines())
}
PORT = sys.argv.pop(1)


class Built(ConnectionInfo):
    """A connection whose principal is that of the builder."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.principal = ANONYMOUS  # a constructor does not use the property

    @property
    def principal(self) -> str:  # type: ignore[override]
        return self._built

    @principal.setter
    def principal(self, name: str) -> None:
        self._built = RULES.get((self.listener, name), name)


class Handled(PlainExchange):
    """A login with PLAIN on which the handler decides."""

    def __init__(self, _: Mapping[str, str]) -> None:
        super().__init__({})

    def respond(self, token: bytes, now_ms: int = 0, /) -> bytes:
        _, user, password = token.decode().split("\0")
        with socket.create_connection(("127.0.0.1", int(PORT))) as handler:
            for text in (user, password):
                handler.sendall(len(text.encode()).to_bytes(2, "big") + text.encode())
            self._passwords = {user: password} if handler.recv(1) == b"\1" else {}
        return super().respond(token, now_ms)


connections.ConnectionInfo = Built  # type: ignore[misc]
if PORT:
    session.PlainExchange = Handled  # type: ignore[misc]
sys.exit(main())
