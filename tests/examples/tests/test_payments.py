"""Payments: paid orders, orders in the dead-letter queue, and orders after an invalid one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.orders import Order
from shop.payments import Declined, Payments
from shop.wire import Wire

Until = Callable[..., None]
Orders = Callable[..., list[Order]]


class Bank:
    """Charges; declines the n-th calls as configured."""

    def __init__(self, *declined: int) -> None:
        self.declined = declined
        self.calls = 0

    def __call__(self, order: Order) -> None:
        self.calls += 1
        if self.calls in self.declined:
            raise Declined("no cover")


@pytest.fixture
def letters(ottla_broker: Any) -> str:
    """Creates the dead-letter queue."""
    return ottla_broker.create_topic()


@pytest.fixture
def payments(wire: Wire, ottla_topic: str, group: str, letters: str) -> Callable[..., Payments]:
    """`payments(bank)`: the service, reading the test's topic."""
    return lambda bank: Payments(wire.receiver(ottla_topic, group=group), wire.sender(), letters, bank)


def put(broker: Any, topic: str, *orders: Order) -> None:
    for order in orders:
        broker.send(topic, order.encode(), order.key)


def test_good_orders_are_paid(
    payments: Callable[..., Payments], ottla_broker: Any, ottla_topic: str, letters: str, until: Until, orders: Orders
) -> None:
    put(ottla_broker, ottla_topic, *orders(5))
    service = payments(bank := Bank())
    until(lambda: len(service.paid) == 5, service.step)
    assert (service.paid, bank.calls) == ([1, 2, 3, 4, 5], 5)
    assert ottla_broker.records(letters) == []


@pytest.mark.parametrize("client", ["confluent-kafka"], indirect=True)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, b"no value"),
        (b"{broken", b"not JSON"),
        (b"[]", b"not an object"),
        (b'{"number": 1}', b"wrong fields"),
        (b'{"number": 1, "customer": "a", "item": "b", "cents": -1}', b"cents must be a number, 0 or more"),
    ],
    ids=["null", "broken", "list", "fields", "negative"],
)
def test_what_is_no_order_is_a_dead_letter(
    payments: Callable[..., Payments],
    ottla_broker: Any,
    ottla_topic: str,
    letters: str,
    until: Until,
    value: bytes | None,
    reason: bytes,
) -> None:
    ottla_broker.send(ottla_topic, value, b"key", headers=[("trace", b"t")])
    service = payments(Bank())
    until(lambda: ottla_broker.records(letters), service.step)
    (letter,) = ottla_broker.records(letters)
    assert (letter.key, letter.value) == (b"key", value)
    place = f"{ottla_topic}-0@0".encode()
    assert list(letter.headers) == [("trace", b"t"), ("reason", reason), ("from", place)]


def test_a_bad_order_holds_nothing_up(
    payments: Callable[..., Payments], ottla_broker: Any, ottla_topic: str, letters: str, until: Until, orders: Orders
) -> None:
    put(ottla_broker, ottla_topic, *orders(2))
    ottla_broker.send(ottla_topic, b"scribble")
    put(ottla_broker, ottla_topic, *orders(2, first=3))
    service = payments(Bank())
    until(lambda: len(service.paid) == 4, service.step)
    assert service.paid == [1, 2, 3, 4]
    ottla_broker.assert_produced(letters, [b"scribble"])


def test_a_declined_order_is_tried_again(
    payments: Callable[..., Payments], ottla_broker: Any, ottla_topic: str, letters: str, until: Until, orders: Orders
) -> None:
    put(ottla_broker, ottla_topic, *orders(1))
    service = payments(bank := Bank(1, 2))
    until(lambda: service.paid, service.step)
    assert bank.calls == 3
    assert ottla_broker.records(letters) == []


def test_an_order_declined_three_times_is_a_dead_letter(
    payments: Callable[..., Payments], ottla_broker: Any, ottla_topic: str, letters: str, until: Until, orders: Orders
) -> None:
    put(ottla_broker, ottla_topic, *orders(2))
    service = payments(Bank(1, 2, 3))
    until(lambda: service.paid, service.step)
    assert service.paid == [2]
    (letter,) = ottla_broker.records(letters)
    assert dict(letter.headers)["reason"] == b"declined: no cover"


def test_nothing_is_paid_twice_by_the_next_service(
    payments: Callable[..., Payments], ottla_broker: Any, ottla_topic: str, wire: Wire, until: Until, orders: Orders
) -> None:
    put(ottla_broker, ottla_topic, *orders(3))
    first = payments(Bank())
    until(lambda: len(first.paid) == 3, first.step)
    first.receiver.close()
    wire.opened.remove(first.receiver)
    put(ottla_broker, ottla_topic, *orders(1, first=4))
    second = payments(Bank())
    until(lambda: second.paid, second.step)
    assert second.paid == [4]
