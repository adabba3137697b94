"""Snapshots, and several nodes: a prepared shop that is restored, and leaders that move under its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.checkout import Checkout
from shop.orders import Order
from shop.totals import Totals
from shop.wire import Wire

Until = Callable[..., None]
Orders = Callable[..., list[Order]]
Connect = Callable[[Any], Wire]


def test_a_snapshot_is_there_again(ottla_factory: Any, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    for order in orders(10):
        broker.send(topic, order.encode())
    stocked = broker.snapshot()
    for _ in range(3):
        assert broker.send(topic, b"one more") == 10
        broker.delete_topic(topic)
        broker.restore(stocked)
        broker.assert_produced(topic, [order.encode() for order in orders(10)])


def test_a_reset_broker_has_nothing(ottla_factory: Any) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    bootstrap = broker.bootstrap
    broker.reset()
    assert topic not in {one.name for one in broker.topics()}
    assert broker.bootstrap == bootstrap


def test_a_checkout_goes_on_after_a_restore(connect: Connect, ottla_factory: Any, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    checkout = Checkout(connect(broker).sender(), topic)
    checkout.place(orders(2))
    stocked = broker.snapshot()
    checkout.place(orders(5, first=3))
    broker.restore(stocked)
    checkout.place(orders(1, first=3))
    broker.assert_produced(topic, [order.encode() for order in orders(3)])


def test_a_group_is_back_where_it_was(connect: Connect, ottla_factory: Any, until: Until, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    for order in orders(4):
        broker.send(topic, order.encode())
    wire = connect(broker)
    first = Totals(wire.receiver(topic, group="totals"))
    until(lambda: len(first.seen) == 4, first.step)
    first.receiver.commit({(topic, 0): 2})
    early = broker.snapshot()
    first.receiver.commit({(topic, 0): 4})
    first.receiver.close()
    wire.opened.remove(first.receiver)
    broker.restore(early)
    second = Totals(wire.receiver(topic, group="totals-too"))
    assert broker.group("totals").committed == {(topic, 0): 2}
    until(lambda: len(second.seen) == 4, second.step)


@pytest.mark.ottla(brokers=3)
def test_leaders_move_under_a_checkout(connect: Connect, ottla_factory: Any, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    checkout = Checkout(connect(broker).sender(idempotent=True), topic)
    for number in range(1, 7):
        checkout.place(orders(1, first=number))
        broker.topology.move_leader(topic, 0, number % 3 + 1)
    broker.assert_produced(topic, [order.encode() for order in orders(6)])


@pytest.mark.ottla(brokers=3)
def test_totals_outlive_a_node(connect: Connect, ottla_factory: Any, until: Until, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    totals = Totals(connect(broker).receiver())
    totals.receiver.assign((topic, 0))
    broker.send(topic, orders(1)[0].encode())
    until(lambda: totals.seen == [1], totals.step)
    broker.topology.stop_node(broker.topology.leader(topic))
    broker.send(topic, orders(1, first=2)[0].encode())
    until(lambda: totals.seen == [1, 2], totals.step)
