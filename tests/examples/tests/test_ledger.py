"""The exactly-once ledger: commits, aborts, deaths in the middle, and ledgers that were taken over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.ledger import Ledger
from shop.orders import Order
from shop.wire import Fenced, SendFailed, Wire

Until = Callable[..., None]
Orders = Callable[..., list[Order]]


class Died(Exception):
    """The process has died."""


@pytest.fixture
def entries(ottla_broker: Any) -> str:
    """Creates the ledger's topic."""
    return ottla_broker.create_topic()


def put(broker: Any, topic: str, orders: list[Order]) -> list[bytes]:
    """Places orders; returns the expected entries of the ledger."""
    for order in orders:
        broker.send(topic, order.encode(), order.key)
    return [f"{order.number}:{order.customer}:{order.cents}".encode() for order in orders]


def open_ledger(wire: Wire, topic: str, *targets: str, **more: Any) -> Ledger:
    receiver = wire.receiver(topic, group=f"ledger-of-{topic}", committed_only=True)
    return Ledger(receiver, wire.sender(transactional_id=f"ledger-{topic}"), *targets, **more)


def seen(wire: Wire, topic: str, count: int, until: Until, committed_only: bool) -> list[bytes | None]:
    """Returns the entries that a reader of the topic gets, once there are enough."""
    reader = wire.receiver(committed_only=committed_only)
    reader.assign((topic, 0))
    found: list[bytes | None] = []
    until(lambda: len(found) >= count, lambda: found.extend(m.value for m in reader.poll()))
    return found


def test_each_order_has_one_entry(
    wire: Wire, ottla_broker: Any, ottla_topic: str, entries: str, until: Until, orders: Orders
) -> None:
    expected = put(ottla_broker, ottla_topic, orders(10))
    ledger = open_ledger(wire, ottla_topic, entries)
    until(lambda: len(ottla_broker.records(entries)) == 10, ledger.step)
    ottla_broker.assert_produced(entries, expected)
    assert ottla_broker.group(f"ledger-of-{ottla_topic}").committed[ottla_topic, 0] == 10


def test_readers_of_committed_records_see_no_aborted_entry(
    wire: Wire, ottla_broker: Any, entries: str, until: Until
) -> None:
    sender = wire.sender(transactional_id=f"till-{entries}")
    sender.begin()
    sender.send(entries, b"never")
    sender.flush()
    sender.abort()
    sender.begin()
    sender.send(entries, b"booked")
    sender.flush()
    sender.commit()
    assert seen(wire, entries, 1, until, committed_only=True) == [b"booked"]
    ottla_broker.assert_produced(entries, [b"booked"])


def test_readers_of_everything_see_aborted_entries(wire: Wire, entries: str, until: Until) -> None:
    sender = wire.sender(transactional_id=f"till-{entries}")
    sender.begin()
    sender.send(entries, b"never")
    sender.flush()
    sender.abort()
    assert seen(wire, entries, 1, until, committed_only=False) == [b"never"]


def test_an_open_transaction_is_not_there_yet(wire: Wire, ottla_broker: Any, entries: str) -> None:
    sender = wire.sender(transactional_id=f"till-{entries}")
    sender.begin()
    sender.send(entries, b"in the making")
    sender.flush()
    assert ottla_broker.records(entries) == []
    sender.commit()
    ottla_broker.assert_produced(entries, [b"in the making"])


def test_two_topics_are_booked_together_or_not_at_all(
    wire: Wire, ottla_broker: Any, ottla_topic: str, entries: str, until: Until, orders: Orders
) -> None:
    copy = ottla_broker.create_topic()
    expected = put(ottla_broker, ottla_topic, orders(5))
    ledger = open_ledger(wire, ottla_topic, entries, copy)
    until(lambda: len(ottla_broker.records(entries)) == 5, ledger.step)
    ottla_broker.assert_produced(entries, expected)
    ottla_broker.assert_produced(copy, expected)


def test_a_ledger_that_dies_before_it_commits_books_nothing_twice(
    wire: Wire, ottla_broker: Any, ottla_topic: str, entries: str, until: Until, orders: Orders
) -> None:
    expected = put(ottla_broker, ottla_topic, orders(4))

    def die() -> None:
        raise Died

    first = open_ledger(wire, ottla_topic, entries, before_commit=die)
    with pytest.raises(Died):
        until(lambda: False, first.step)
    first.receiver.close()
    wire.opened.remove(first.receiver)
    assert ottla_broker.records(entries) == []
    second = open_ledger(wire, ottla_topic, entries)
    until(lambda: len(ottla_broker.records(entries)) == 4, second.step)
    ottla_broker.assert_produced(entries, expected)


def test_a_ledger_that_was_taken_over_is_fenced(wire: Wire, ottla_broker: Any, entries: str) -> None:
    old = wire.sender(transactional_id=f"till-{entries}")
    old.begin()
    old.send(entries, b"of the old one")
    old.flush()
    new = wire.sender(transactional_id=f"till-{entries}")
    with pytest.raises((Fenced, SendFailed)):
        old.send(entries, b"too late")
        old.flush()
        old.commit()
    new.begin()
    new.send(entries, b"of the new one")
    new.flush()
    new.commit()
    ottla_broker.assert_produced(entries, [b"of the new one"])
