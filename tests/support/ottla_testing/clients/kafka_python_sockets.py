"""Sockets of kafka-python with a name of their own, so that pyproject.toml can exempt what it leaves unclosed.

kafka-python 3.0 drops its socket where a connection is refused, or where the client is closed while it connects. The
socket is collected within some later test, which would fail.
"""

from __future__ import annotations

import socket

from kafka.net.inet import KafkaNetSocket


class KafkaPythonSocket(socket.socket):
    """A socket that kafka-python opened."""


def _open(_self: KafkaNetSocket, family: int, kind: int, protocol: int) -> socket.socket:
    return KafkaPythonSocket(family, kind, protocol)


def install() -> None:
    """Makes each connection of kafka-python in this process use `KafkaPythonSocket`."""
    KafkaNetSocket.socket = _open  # type: ignore[method-assign]
