"""One broker for each test process, brokers that a test may stop and kill, new topics."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    # kafka-python causes a warning during its import, attributed to the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin
    import kafka.net.inet

from ottla.broker import Embedded
from ottla_testing.clients.running_broker import RunningBroker

NUMBERS = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """The shared broker of this process: tests use topics and groups of their own."""
    running = RunningBroker(tmp_path_factory.mktemp("broker"))
    yield running
    running.close()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker for one test, which may stop and kill it."""
    running = RunningBroker(tmp_path)
    yield running
    running.close()


@pytest.fixture(scope="session")
def shared_embedded() -> Iterator[Embedded]:
    """The shared broker within this process; tests use `embedded`."""
    with Embedded() as running:
        yield running


@pytest.fixture
def embedded(shared_embedded: Embedded) -> Iterator[Embedded]:
    """A broker within this process whose faults end with the test: tests use topics and groups of their own."""
    yield shared_embedded
    shared_embedded.faults.clear()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or group that no other test of this process uses."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return f"{words[:60]}-{next(NUMBERS)}"


@pytest.fixture
def topic(name: str, broker: RunningBroker, create: Callable[..., str]) -> str:
    """A topic of one partition."""
    return create(broker.address, name)


@pytest.fixture(scope="session")
def create() -> Callable[..., str]:
    """`create(address, topic, partitions=1, **configs)` creates a topic, with _ in place of dots in config names."""
    from ottla_testing.clients.four_clients import create_topic

    return create_topic


@pytest.fixture
def close_what_kafka_python_leaves_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """kafka-python 3.0.12 does not close a socket whose connection was refused, as happens while a broker is down; nor
    does `ssl` one that was reset before its handshake."""
    factory: Any = kafka.net.inet.KafkaNetSocket
    opened: list[socket.socket] = []
    make = factory.socket

    def remember(*arguments: Any) -> socket.socket:
        opened.append(make(*arguments))
        return opened[-1]

    class Remembered(ssl.SSLSocket):
        def __new__(cls, *arguments: Any, **more: Any) -> Any:
            opened.append(super().__new__(cls, *arguments, **more))
            return opened[-1]

    monkeypatch.setattr(factory, "socket", remember)
    monkeypatch.setattr(ssl.SSLContext, "sslsocket_class", Remembered)
    yield
    for one in opened:
        one.close()


@pytest.fixture
def example_broker(tmp_path: Path) -> Iterator[str]:
    """The address of a broker process for one example of the documentation."""
    command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0", "--data-dir", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
    assert process.returncode == 0
