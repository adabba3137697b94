"""The totals of a topic: positions, groups, rebalances, and orders written with any client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop.checkout import Checkout
from shop.orders import Order
from shop.totals import Totals
from shop.wire import CLIENTS, Wire

Until = Callable[..., None]
Orders = Callable[..., list[Order]]


def stock(broker: Any, topic: str, orders: list[Order], partitions: int = 1) -> None:
    """Puts orders on a topic without a client, on its partitions in turn."""
    for order in orders:
        broker.send(topic, order.encode(), order.key, partition=order.number % partitions)


def read_all(until: Until, totals: Totals, count: int) -> Totals:
    until(lambda: len(totals.seen) >= count, totals.step)
    return totals


def test_totals_add_up(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(6))
    totals = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 6)
    assert totals.cents == {"ann": 900, "bob": 500, "cem": 700}
    assert totals.seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.ottla(partitions=4)
def test_totals_read_all_partitions(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(40), partitions=4)
    totals = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 40)
    assert sorted(totals.seen) == list(range(1, 41))
    assert totals.next == {(ottla_topic, partition): 10 for partition in range(4)}


def test_everything_of_a_record_arrives(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until
) -> None:
    ottla_broker.send(ottla_topic, b"value", b"key", headers=[("a", b"1"), ("a", b"2")])
    receiver = wire.receiver(ottla_topic, group=group)
    found: list[Any] = []
    until(lambda: found, lambda: found.extend(receiver.poll()))
    (expected,) = ottla_broker.records(ottla_topic)
    (message,) = found
    assert (message.topic, message.partition, message.offset) == (ottla_topic, 0, 0)
    assert (message.key, message.value, message.timestamp_ms) == (b"key", b"value", expected.timestamp_ms)
    assert message.headers == (("a", b"1"), ("a", b"2"))


def test_null_values_and_keys_arrive_as_none(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until
) -> None:
    ottla_broker.send(ottla_topic, None, b"key")
    ottla_broker.send(ottla_topic, b"value")
    receiver = wire.receiver(ottla_topic, group=group)
    found: list[Any] = []
    until(lambda: len(found) == 2, lambda: found.extend(receiver.poll()))
    assert [(m.key, m.value) for m in found] == [(b"key", None), (None, b"value")]


def test_a_new_group_may_start_at_the_end(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(3))
    totals = Totals(wire.receiver(ottla_topic, group=group, start="latest"))
    numbers = iter(range(4, 10_000))
    # Its first position is wherever the end is by then: orders are sent until one is seen.
    until(lambda: totals.seen, lambda: stock(ottla_broker, ottla_topic, orders(1, next(numbers))), totals.step)
    assert totals.seen[0] >= 4


def test_a_group_goes_on_where_it_committed(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(3))
    first = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 3)
    first.commit()
    first.receiver.close()
    wire.opened.remove(first.receiver)
    stock(ottla_broker, ottla_topic, orders(2, first=4))
    assert read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 2).seen == [4, 5]


def test_a_group_that_did_not_commit_reads_again(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(3))
    first = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 3)
    first.receiver.close()
    wire.opened.remove(first.receiver)
    assert read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 3).seen == [1, 2, 3]


def test_a_commit_is_seen_by_the_group_and_by_the_broker(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(5))
    totals = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 5)
    assert totals.receiver.committed((ottla_topic, 0)) is None
    totals.receiver.commit({(ottla_topic, 0): 3})
    assert totals.receiver.committed((ottla_topic, 0)) == 3
    assert ottla_broker.group(group).committed[ottla_topic, 0] == 3
    assert ottla_broker.group(group).lag == 2


def test_the_broker_knows_a_group_from_its_first_to_its_last_member(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until
) -> None:
    receiver = wire.receiver(ottla_topic, group=group)
    until(receiver.assigned, receiver.poll)
    assert ottla_broker.group(group).state == "Stable"
    assert len(ottla_broker.group(group).members) == 1
    receiver.close()
    wire.opened.remove(receiver)
    until(lambda: ottla_broker.group(group).state == "Empty")


def test_two_groups_read_the_same(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(3))
    for name in (group, f"{group}-too"):
        assert read_all(until, Totals(wire.receiver(ottla_topic, group=name)), 3).seen == [1, 2, 3]


@pytest.mark.ottla(partitions=2)
def test_two_members_share_the_partitions(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    one, other = (Totals(wire.receiver(ottla_topic, group=group)) for _ in range(2))
    until(lambda: one.receiver.assigned() and other.receiver.assigned(), one.step, other.step)
    stock(ottla_broker, ottla_topic, orders(10), partitions=2)
    until(lambda: len(one.seen) + len(other.seen) == 10, one.step, other.step)
    assert sorted(one.seen + other.seen) == list(range(1, 11))
    assert {number % 2 for number in one.seen}.isdisjoint(number % 2 for number in other.seen)


@pytest.mark.ottla(partitions=2)
def test_a_member_takes_over_from_one_that_leaves(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    one, other = (Totals(wire.receiver(ottla_topic, group=group)) for _ in range(2))
    until(lambda: one.receiver.assigned() and other.receiver.assigned(), one.step, other.step)
    one.receiver.close()
    wire.opened.remove(one.receiver)
    until(lambda: len(other.receiver.assigned()) == 2, other.step)
    stock(ottla_broker, ottla_topic, orders(4), partitions=2)
    assert sorted(read_all(until, other, 4).seen) == [1, 2, 3, 4]


def test_a_static_member_comes_back_under_its_name(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(2))
    first = read_all(until, Totals(wire.receiver(ottla_topic, group=group, instance="till-1")), 2)
    first.commit()
    first.receiver.close()
    wire.opened.remove(first.receiver)
    stock(ottla_broker, ottla_topic, orders(1, first=3))
    assert read_all(until, Totals(wire.receiver(ottla_topic, group=group, instance="till-1")), 1).seen == [3]


def test_orders_can_be_read_again(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(4))
    totals = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 4)
    totals.receiver.seek((ottla_topic, 0), 2)
    assert read_all(until, totals, 6).seen == [1, 2, 3, 4, 3, 4]


def test_a_day_can_be_found_by_its_time(wire: Wire, ottla_topic: str) -> None:
    sender = wire.sender()
    for day in range(3):
        sender.send(ottla_topic, b"%d" % day, timestamp_ms=1_700_000_000_000 + day * 86_400_000)
    sender.flush()
    receiver = wire.receiver()
    receiver.assign((ottla_topic, 0))
    assert receiver.offset_at((ottla_topic, 0), 1_700_000_000_001) == 1
    assert receiver.offset_at((ottla_topic, 0), 1_700_000_000_000 + 9 * 86_400_000) is None


@pytest.mark.ottla(partitions=3)
def test_one_partition_can_be_read_without_a_group(
    wire: Wire, ottla_broker: Any, ottla_topic: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(9), partitions=3)
    totals = Totals(wire.receiver())
    totals.receiver.assign((ottla_topic, 1))
    assert read_all(until, totals, 3).seen == [1, 4, 7]
    assert totals.receiver.ends((ottla_topic, 1)) == (0, 3)


@pytest.mark.ottla(partitions=2)
def test_a_paused_partition_is_quiet(
    wire: Wire, ottla_broker: Any, ottla_topic: str, until: Until, orders: Orders
) -> None:
    totals = Totals(wire.receiver())
    totals.receiver.assign((ottla_topic, 0), (ottla_topic, 1))
    totals.step()
    totals.receiver.pause((ottla_topic, 0))
    stock(ottla_broker, ottla_topic, orders(6), partitions=2)
    assert read_all(until, totals, 3).seen == [1, 3, 5]
    totals.receiver.resume((ottla_topic, 0))
    assert read_all(until, totals, 6).seen[3:] == [2, 4, 6]


def test_records_that_are_deleted_are_not_read(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    stock(ottla_broker, ottla_topic, orders(4))
    wire.admin().delete_records((ottla_topic, 0), 3)
    totals = read_all(until, Totals(wire.receiver(ottla_topic, group=group)), 1)
    assert totals.seen == [4]


def test_totals_read_two_topics(
    wire: Wire, ottla_broker: Any, ottla_topic: str, group: str, until: Until, orders: Orders
) -> None:
    second = ottla_broker.create_topic()
    stock(ottla_broker, ottla_topic, orders(2))
    stock(ottla_broker, second, orders(2, first=3))
    totals = read_all(until, Totals(wire.receiver(ottla_topic, second, group=group)), 4)
    assert sorted(totals.seen) == [1, 2, 3, 4]


@pytest.mark.parametrize("writer", CLIENTS)
def test_orders_of_any_client_are_read_by_any(
    wire: Wire, ottla_broker: Any, ottla_topic: str, until: Until, orders: Orders, writer: str
) -> None:
    till = Wire(writer, ottla_broker.bootstrap)
    Checkout(till.sender(compression="lz4"), ottla_topic).place(orders(5), trace="x")
    till.close()
    totals = Totals(wire.receiver())
    totals.receiver.assign((ottla_topic, 0))
    assert read_all(until, totals, 5).seen == [1, 2, 3, 4, 5]
