"""The clients that each test of the shop runs with, and waiting for consumers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from shop.orders import Order
from shop.wire import CLIENTS, Wire

WAIT_SECONDS = 20  # a bound, not a wait


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Shows bytes as a few of their characters, so that ids stay readable."""
    return repr(val[:12]).strip("b'\"") if isinstance(val, bytes) else None


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """Each of the clients that the shop runs on."""
    return request.param


@pytest.fixture
def connect(client: str, ottla_factory: Any) -> Iterator[Callable[[Any], Wire]]:
    """`connect(broker)`: the shop's connections to a broker, which are closed before the factory's brokers are."""
    with contextlib.ExitStack() as opened:
        yield lambda broker: opened.enter_context(contextlib.closing(Wire(client, broker.bootstrap)))


@pytest.fixture
def wire(connect: Callable[[Any], Wire], ottla_broker: Any) -> Wire:
    """The shop's connections to the session's broker."""
    return connect(ottla_broker)


@pytest.fixture
def group(ottla_topic: str) -> str:
    """A group's name that no other test uses, for topics are each test's own."""
    return f"group-of-{ottla_topic}"


@pytest.fixture
def until() -> Callable[..., None]:
    """`until(done, *steps)`: takes the steps in turn until `done()`, or fails."""

    def until(done: Callable[[], object], *steps: Callable[[], object]) -> None:
        end = time.monotonic() + WAIT_SECONDS
        while not done():
            assert time.monotonic() < end, "what was waited for did not come"
            for step in steps:
                step()

    return until


@pytest.fixture
def orders() -> Callable[..., list[Order]]:
    """`orders(n)`: that many orders of three customers, numbered from 1."""

    def orders(count: int, first: int = 1) -> list[Order]:
        return [
            Order(number, ("ann", "bob", "cem")[number % 3], "bread", 100 * number)
            for number in range(first, first + count)
        ]

    return orders
