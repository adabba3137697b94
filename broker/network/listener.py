"""Listener sockets. They are bound once, and keep their ports until the broker ends, whether they listen or not.

Owns the ports and the socket options. Accepted connections are `connections.py`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...protocol.named import NamedTuple
from ..config.serve_options import WILDCARDS, Listener, StartupError, format_address

if TYPE_CHECKING:
    from ..config.values import Config


class SocketSettings(NamedTuple):
    """Options of listener sockets: the accept backlog, and the send and receive buffers of each connection in bytes,
    None for the system's default.
    """

    backlog: int = 1024
    send_bytes: int | None = None
    receive_bytes: int | None = None

    @classmethod
    def from_config(cls, config: Config) -> SocketSettings:
        """Returns the options of the configs that were set. Kafka's defaults are ignored: they are smaller than the
        system's.
        """

        def value(name: str) -> int | None:
            return config[name] if config.is_set(name) and config[name] >= 0 else None

        return cls(
            value("socket.listen.backlog.size") or cls().backlog,
            value("socket.send.buffer.bytes"),
            value("socket.receive.buffer.bytes"),
        )


class ListenerSocket:
    """The socket of one listener of one node. It always has its port, and listens or not.

    It does not listen while it `is_refusing` (on command) or `is_stopped` (its node is stopped).
    """

    __slots__ = ("_is_listening", "_settings", "is_refusing", "is_stopped", "listener", "node_id", "server", "sock")

    def __init__(self, node_id: int, listener: Listener, settings: SocketSettings) -> None:
        """Binds and listens. Raises StartupError."""
        self.node_id = node_id
        self.listener = listener
        self.sock = bind(listener, settings)
        self._settings = settings
        self.server: asyncio.Server | None = None
        self.is_refusing = False
        self.is_stopped = False
        self._is_listening = True

    def update(self, loop: asyncio.AbstractEventLoop, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Starts or stops listening, as the two flags require. Raises OSError."""
        listens = not self.is_refusing and not self.is_stopped
        if listens and self.server is None:
            self.sock.listen(self._settings.backlog)
            self._is_listening = True
            # Given a socket, both finish without a wait.
            self.server = server = _at_once(loop.create_server(factory, sock=self.sock, start_serving=False))
            _at_once(server.start_serving())
        elif not listens and self._is_listening:
            address = self.sock.getsockname()
            family = self.sock.family
            both = family == socket.AF_INET6 and not self.sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            self.close()  # connections in the accept queue are reset
            self._is_listening = False
            # A bound socket that does not listen refuses connections, and keeps the port from other programs.
            self.sock = _bound(family, address, self._settings, both, listens=False)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()
            self.server = None
        else:
            self.sock.close()


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Returns the result of a coroutine that returns before its first wait, else None without waiting."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    finally:
        coroutine.close()
    return None


def bind(listener: Listener, settings: SocketSettings) -> socket.socket:
    """Returns a listening socket; connections wait in its queue until the broker serves them. An empty host means all
    interfaces, IPv6 and IPv4. Raises StartupError.
    """
    try:
        if listener.host in ("", "::"):
            with contextlib.suppress(OSError):
                return _bound(socket.AF_INET6, ("::", listener.port), settings, both=True)
        host = "0.0.0.0" if listener.host in WILDCARDS else listener.host
        # Bytes, as text would be encoded with idna, which takes 2 ms to import.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
        # Accepted sockets inherit these options.
        for option, size in ((socket.SO_SNDBUF, settings.send_bytes), (socket.SO_RCVBUF, settings.receive_bytes)):
            if size is not None:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        sock.setblocking(False)
        sock.bind(address)
        # Listening fails for a port in use before anything on disk changes. Clients that connect now wait.
        if listens:
            sock.listen(settings.backlog)
    except OSError:
        sock.close()
        raise
    return sock
