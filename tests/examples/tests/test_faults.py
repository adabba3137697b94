"""The shop with faults: errors that clients recover from, errors that they report, and the final records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.checkout import Checkout
from shop.ledger import Ledger
from shop.orders import Order
from shop.totals import Totals
from shop.wire import SendFailed, Wire

Until = Callable[..., None]
Orders = Callable[..., list[Order]]
Connect = Callable[[Any], Wire]


def encoded(orders: list[Order]) -> list[bytes]:
    return [order.encode() for order in orders]


def test_a_checkout_tries_again_what_may_succeed(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Orders
) -> None:
    checkout = Checkout(wire.sender(idempotent=True), ottla_topic)
    with ottla_broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", topic=ottla_topic, times=2) as fault:
        checkout.place(orders(3))
    assert fault.fired == 2
    ottla_broker.assert_produced(ottla_topic, encoded(orders(3)))


def test_a_checkout_reports_what_cannot_succeed(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Orders
) -> None:
    checkout = Checkout(wire.sender(), ottla_topic)
    with (
        ottla_broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=ottla_topic),
        pytest.raises(SendFailed),
    ):
        checkout.place(orders(1))
    assert ottla_broker.records(ottla_topic) == []


def test_lost_response_duplicates_an_order(wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Orders) -> None:
    checkout = Checkout(wire.sender(), ottla_topic)
    with ottla_broker.faults.disconnect("Produce", "after", topic=ottla_topic, times=1) as fault:
        checkout.place(orders(1))
    assert fault.fired == 1
    ottla_broker.assert_produced(ottla_topic, encoded(orders(1) * 2))


def test_lost_response_with_idempotence_keeps_one_order(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Orders
) -> None:
    checkout = Checkout(wire.sender(idempotent=True), ottla_topic)
    with ottla_broker.faults.disconnect("Produce", "after", topic=ottla_topic, times=1) as fault:
        checkout.place(orders(1))
    assert fault.fired == 1
    ottla_broker.assert_produced(ottla_topic, encoded(orders(1)))


def test_totals_go_on_after_an_error(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    for value in encoded(orders(5)):
        ottla_broker.send(ottla_topic, value)
    with ottla_broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=ottla_topic, times=1) as fault:
        totals = Totals(wire.receiver(ottla_topic, group=group))
        until(lambda: len(totals.seen) == 5, totals.step)
    assert fault.fired == 1
    assert totals.seen == [1, 2, 3, 4, 5]


def test_totals_go_on_after_a_cut_connection(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    totals = Totals(wire.receiver(ottla_topic, group=group))
    until(totals.receiver.assigned, totals.step)
    with ottla_broker.faults.disconnect("Fetch", times=1) as fault:
        until(lambda: fault.fired, totals.step)
    for value in encoded(orders(5)):
        ottla_broker.send(ottla_topic, value)
    until(lambda: len(totals.seen) == 5, totals.step)
    assert totals.seen == [1, 2, 3, 4, 5]


def test_a_group_waits_for_its_coordinator(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    ottla_broker.send(ottla_topic, orders(1)[0].encode())
    with ottla_broker.faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=1) as fault:
        totals = Totals(wire.receiver(ottla_topic, group=group))
        until(lambda: totals.seen, totals.step)
    assert fault.fired == 1


def test_a_slow_broker_is_waited_for(wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Orders) -> None:
    with ottla_broker.faults.delay("Produce", 150, topic=ottla_topic) as fault:
        Checkout(wire.sender(), ottla_topic).place(orders(1))
    assert fault.fired == 1
    ottla_broker.assert_produced(ottla_topic, encoded(orders(1)))


def test_a_full_disk_refuses_orders_until_there_is_room(connect: Connect, ottla_factory: Any, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    wire = connect(broker)
    with broker.faults.disk_full(topic=topic), pytest.raises(SendFailed):
        Checkout(wire.sender(timeout_ms=500), topic).place(orders(1))
    Checkout(wire.sender(), topic).place(orders(1, first=2))
    assert encoded(orders(1, first=2))[0] in [record.value for record in broker.records(topic)]


def test_ledger_with_a_lost_commit_response_books_once(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    target = ottla_broker.create_topic()
    for value in encoded(orders(3)):
        ottla_broker.send(ottla_topic, value)
    ledger = Ledger(
        wire.receiver(ottla_topic, group=group), wire.sender(transactional_id=f"ledger-{ottla_topic}"), target
    )
    with ottla_broker.faults.disconnect("EndTxn", "after", times=1) as fault:
        until(lambda: len(ottla_broker.records(target)) == 3, ledger.step)
    assert fault.fired == 1
    ottla_broker.assert_produced(target, [b"1:bob:100", b"2:cem:200", b"3:ann:300"])
    assert ottla_broker.group(group).committed[ottla_topic, 0] == 3
