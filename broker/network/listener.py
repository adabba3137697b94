"""The sockets at which clients arrive: bound once, and ours until the broker ends, whether they listen or not.

Owns ports and what the system is told of them. What is accepted is `connections.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config.serve_options import WILDCARDS, Listener, StartupError, format_address

if TYPE_CHECKING:
    from ..config.values import Config


class SocketSettings(NamedTuple):
    """How listening sockets are made: how many connections may wait to be accepted, and the system's buffers of each
    connection, in bytes; None leaves them to the system."""

    backlog: int = 1024
    send_bytes: int | None = None
    receive_bytes: int | None = None

    @classmethod
    def from_config(cls, config: Config) -> SocketSettings:
        """As configs say. Kafka's defaults, which are smaller than the system's, count where they are asked for."""

        def asked(name: str) -> int | None:
            return config[name] if config.fact(name) and config.is_set(name) and config[name] >= 0 else None

        return cls(
            asked("socket.listen.backlog.size") or cls().backlog,
            asked("socket.send.buffer.bytes"),
            asked("socket.receive.buffer.bytes"),
        )


class Door:
    """One listener of one node: a socket that always has the port, and listens or does not.

    `is_refusing` and `is_stopped` are the two reasons there may be for not listening.
    """

    __slots__ = ("_is_listening", "_settings", "is_refusing", "is_stopped", "listener", "node_id", "server", "sock")

    def __init__(self, node_id: int, listener: Listener, settings: SocketSettings) -> None:
        """Listens at once. Raises StartupError."""
        self.node_id = node_id
        self.listener = listener
        self.sock = bind(listener, settings)
        self._settings = settings
        self.server: asyncio.Server | None = None
        self.is_refusing = False
        self.is_stopped = False
        self._is_listening = True

    def update(self, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Listens, or does not. Raises OSError."""
        listens = not self.is_refusing and not self.is_stopped
        if listens and self.server is None:
            self.sock.listen(self._settings.backlog)
            self._is_listening = True
            # Both do their work without a wait when they are given a socket.
            self.server = server = _at_once(loop.create_server(factory, sock=self.sock, start_serving=False))
            _at_once(server.start_serving())
        elif not listens and self._is_listening:
            address = self.sock.getsockname()
            family = self.sock.family
            both = family == socket.AF_INET6 and not self.sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            self.close()  # who waits to be accepted is reset
            self._is_listening = False
            # A port that nobody listens on refuses; one that is bound is nobody else's.
            self.sock = _bound(family, address, self._settings, both, listens=False)

    def close(self) -> None:
        """Closes the socket, and what accepts from it."""
        if self.server is not None:
            self.server.close()
            self.server = None
        else:
            self.sock.close()


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns, if it does that before its first wait; that wait is left out."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    return None


def bind(listener: Listener, settings: SocketSettings) -> socket.socket:
    """A socket that listens; who connects waits until it is served. An empty host is every interface, IPv6 and IPv4.
    Raises StartupError."""
    try:
        if listener.host in ("", "::"):
            with contextlib.suppress(OSError):
                return _bound(socket.AF_INET6, ("::", listener.port), settings, both=True)
        host = "0.0.0.0" if listener.host in WILDCARDS else listener.host
        found = socket.getaddrinfo(host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return _bound(family, address, settings)
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            reason += ": another program has that port; choose another one, or port 0 for any free one"
        raise StartupError(f"cannot listen on {format_address(listener.host, listener.port)}: {reason}") from error


def _bound(
    family: int, address: tuple[Any, ...], settings: SocketSettings, both: bool = False, listens: bool = True
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Accepted sockets have what their listening one has.
        for option, size in ((socket.SO_SNDBUF, settings.send_bytes), (socket.SO_RCVBUF, settings.receive_bytes)):
            if size is not None:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.setblocking(False)
        sock.bind(address)
        # Listening shows a port that is in use, before anything on disk is touched. Who connects now waits.
        if listens:
            sock.listen(settings.backlog)
    except OSError:
        sock.close()
        raise
    return sock
