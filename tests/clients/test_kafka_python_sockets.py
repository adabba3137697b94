"""A socket that kafka-python drops fails no later test; any other one does."""

from __future__ import annotations

import gc
import socket
import warnings
from types import SimpleNamespace

import pytest
from kafka.net.inet import KafkaNetSocket


def opened_and_dropped(cls: type) -> None:
    """Begins to connect, as kafka-python does, and is closed before the connection is made."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", server.getsockname())

        class Waiting:
            def __await__(self):  # type: ignore[no-untyped-def]
                yield

        connecting = cls().connect(SimpleNamespace(wait_write=lambda *_, **__: Waiting()), address)
        connecting.send(None)
        connecting.close()
        gc.collect()


def test_socket_of_kafka_python_is_exempt() -> None:
    opened_and_dropped(KafkaNetSocket)  # an unraisable warning would fail this test
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        opened_and_dropped(KafkaNetSocket)
    assert ["KafkaPythonSocket" in str(warning.message) for warning in found] == [True]


def test_other_sockets_are_not() -> None:
    class Other(KafkaNetSocket):
        SCHEMES = ()

        def socket(self, family: int = 0, sock_type: int = 0, proto: int = 0) -> socket.socket:
            return socket.socket(family, sock_type, proto)

    with pytest.MonkeyPatch.context() as patch:
        seen = []
        patch.setattr("sys.unraisablehook", lambda unraisable: seen.append(str(unraisable.exc_value)))
        opened_and_dropped(Other)
    assert [text.startswith("unclosed <socket.socket") for text in seen] == [True]
