"""The shop over days, in milliseconds: tests set the broker's clock."""

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
DAY_MS = 86_400_000


def test_orders_are_kept_for_seven_days(connect: Connect, ottla_factory: Any, until: Until, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic(configs={"retention.ms": 7 * DAY_MS, "segment.ms": DAY_MS})
    wire = connect(broker)
    Checkout(wire.sender(), topic).place(orders(2))
    broker.clock.advance(6 * DAY_MS)
    broker.send(topic, orders(1, first=3)[0].encode())
    assert len(broker.records(topic)) == 3
    broker.clock.advance(2 * DAY_MS)
    totals = Totals(wire.receiver())
    totals.receiver.assign((topic, 0))
    until(lambda: totals.seen, totals.step)
    assert totals.seen == [3]


@pytest.mark.ottla(broker_configs={"log.message.timestamp.type": "LogAppendTime"})
def test_the_broker_s_time_is_that_of_its_clock(connect: Connect, ottla_factory: Any, orders: Orders) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    checkout = Checkout(connect(broker).sender(), topic)
    checkout.place(orders(1))
    broker.clock.freeze()
    broker.clock.advance(DAY_MS)
    now_ms = broker.clock.now_ms
    checkout.place(orders(1, first=2))
    first, second = broker.records(topic)
    assert second.timestamp_ms == now_ms
    assert DAY_MS <= second.timestamp_ms - first.timestamp_ms < DAY_MS + 60_000


def test_a_member_that_is_silent_for_too_long_has_to_join_again(
    connect: Connect, ottla_factory: Any, until: Until
) -> None:
    broker = ottla_factory()
    topic = broker.create_topic()
    receiver = connect(broker).receiver(topic, group="totals")
    until(receiver.assigned, receiver.poll)
    (member,) = broker.group("totals").members
    broker.clock.advance(60_000, keep_members=True)
    assert [one.member_id for one in broker.group("totals").members] == [member.member_id]
    broker.clock.advance(60_000)
    joined: Callable[[], list[str]] = lambda: [one.member_id for one in broker.group("totals").members]  # noqa: E731
    until(lambda: joined() not in ([], [member.member_id]), receiver.poll)
