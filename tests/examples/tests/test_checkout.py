"""The records that checkout writes to a topic, as the broker has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from shop.checkout import Checkout
from shop.orders import Order
from shop.wire import Header, SendFailed, Wire

ORDER = Order(7, "ann", "bread", 250)


def test_an_order_is_one_record_under_its_customer(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    assert Checkout(wire.sender(), ottla_topic).place([ORDER]) == [0]
    ottla_broker.assert_produced(ottla_topic, [(b"ann", ORDER.encode())])


@pytest.mark.ottla(partitions=4)
def test_a_customer_stays_in_one_partition_and_in_order(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Callable[..., list[Order]]
) -> None:
    Checkout(wire.sender(), ottla_topic).place(orders(30))
    places: dict[bytes, set[int]] = {}
    numbers: dict[bytes, list[int]] = {}
    for record in ottla_broker.records(ottla_topic):
        places.setdefault(record.key, set()).add(record.partition)
        numbers.setdefault(record.key, []).append(json.loads(record.value)["number"])
    assert sorted(places) == [b"ann", b"bob", b"cem"]
    assert all(len(found) == 1 for found in places.values())
    assert all(found == sorted(found) and len(found) == 10 for found in numbers.values())


@pytest.mark.ottla(partitions=3)
def test_a_partition_can_be_chosen(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    sender = wire.sender()
    for partition in (2, 0, 2):
        sender.send(ottla_topic, b"%d" % partition, b"the same key", partition=partition)
    assert sender.flush() == [0, 0, 1]
    assert [(r.partition, r.value) for r in ottla_broker.records(ottla_topic)] == [(0, b"0"), (2, b"2"), (2, b"2")]


@pytest.mark.parametrize(
    "headers",
    [
        [("n", b"1"), ("n", b"2"), ("N", b"3")],
        [("empty", b""), ("bytes", bytes(range(256)))],
    ],
    ids=["repeated", "binary"],
)
def test_headers_arrive_as_they_are(wire: Wire, ottla_broker: Any, ottla_topic: str, headers: list[Header]) -> None:
    sender = wire.sender()
    sender.send(ottla_topic, b"v", headers=headers)
    sender.flush()
    (record,) = ottla_broker.records(ottla_topic)
    assert list(record.headers) == headers


def test_an_order_carries_its_schema_and_its_trace(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    Checkout(wire.sender(), ottla_topic).place([ORDER], trace="t-1")
    (record,) = ottla_broker.records(ottla_topic)
    assert dict(record.headers) == {"schema": b"order/1", "trace": b"t-1"}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_orders_are_the_same_orders(
    wire: Wire, ottla_broker: Any, ottla_topic: str, compression: str, orders: Callable[..., list[Order]]
) -> None:
    placed = orders(100)
    Checkout(wire.sender(compression=compression, linger_ms=5), ottla_topic).place(placed)
    ottla_broker.assert_produced(ottla_topic, [order.encode() for order in placed])


@pytest.mark.ottla(configs={"compression.type": "zstd"})
def test_the_topic_may_compress_what_clients_do_not(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Callable[..., list[Order]]
) -> None:
    placed = orders(20)
    Checkout(wire.sender(), ottla_topic).place(placed)
    ottla_broker.assert_produced(ottla_topic, [order.encode() for order in placed])


@pytest.mark.parametrize("value", [b"", bytes(range(256))], ids=["empty", "binary"])
def test_values_arrive_byte_for_byte(wire: Wire, ottla_broker: Any, ottla_topic: str, value: bytes) -> None:
    sender = wire.sender()
    sender.send(ottla_topic, value, value)
    sender.flush()
    ottla_broker.assert_produced(ottla_topic, [(value, value)])


@pytest.mark.ottla(configs={"cleanup.policy": "compact"})
def test_a_forgotten_customer_is_a_tombstone(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    checkout = Checkout(wire.sender(), ottla_topic)
    checkout.place([ORDER])
    assert checkout.forget("ann") == 1
    ottla_broker.assert_produced(ottla_topic, [(b"ann", ORDER.encode()), (b"ann", None)])


@pytest.mark.ottla(configs={"cleanup.policy": "compact"})
def test_a_compacted_topic_wants_keys(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    sender = wire.sender(timeout_ms=2000)
    with pytest.raises(SendFailed):
        sender.send(ottla_topic, b"whose?")
        sender.flush()
    assert ottla_broker.records(ottla_topic) == []


def test_a_large_order_arrives_whole(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    order = Order(1, "ann", "bread, " * 120_000, 1)
    Checkout(wire.sender(), ottla_topic).place([order])
    ottla_broker.assert_produced(ottla_topic, [order.encode()])


@pytest.mark.ottla(configs={"max.message.bytes": "2000"})
def test_an_order_that_the_topic_finds_too_large_is_refused(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    checkout = Checkout(wire.sender(), ottla_topic)
    with pytest.raises(SendFailed):
        checkout.place([Order(1, "ann", "bread, " * 1000, 1)])
    checkout.place([ORDER])
    ottla_broker.assert_produced(ottla_topic, [ORDER.encode()])


@pytest.mark.ottla(configs={"max.message.bytes": "5000000"})
def test_topics_may_allow_more_than_a_megabyte(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    order = Order(1, "ann", "bread, " * 400_000, 1)
    Checkout(wire.sender(max_request_bytes=5_000_000), ottla_topic).place([order])
    ottla_broker.assert_produced(ottla_topic, [order.encode()])


@pytest.mark.parametrize("acks", [0, 1])
def test_orders_arrive_whatever_is_acknowledged(
    wire: Wire, ottla_broker: Any, ottla_topic: str, acks: int, until: Callable[..., None]
) -> None:
    sender = wire.sender(acks=acks)
    for number in range(5):
        sender.send(ottla_topic, b"%d" % number)
    sender.flush()
    until(lambda: len(ottla_broker.records(ottla_topic)) == 5)
    ottla_broker.assert_produced(ottla_topic, [b"0", b"1", b"2", b"3", b"4"])


def test_two_checkouts_share_a_topic(
    wire: Wire, ottla_broker: Any, ottla_topic: str, orders: Callable[..., list[Order]]
) -> None:
    one, other = (Checkout(wire.sender(idempotent=True), ottla_topic) for _ in range(2))
    one.place(orders(10))
    other.place(orders(10, first=11))
    ottla_broker.assert_produced(ottla_topic, [order.encode() for order in orders(20)])


def test_the_time_is_that_of_the_checkout(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    sender = wire.sender()
    sender.send(ottla_topic, b"v", timestamp_ms=1_700_000_000_123)
    sender.flush()
    assert [r.timestamp_ms for r in ottla_broker.records(ottla_topic)] == [1_700_000_000_123]


@pytest.mark.ottla(configs={"message.timestamp.type": "LogAppendTime"})
def test_the_time_may_be_that_of_the_broker(wire: Wire, ottla_broker: Any, ottla_topic: str) -> None:
    sender = wire.sender()
    sender.send(ottla_topic, b"v", timestamp_ms=1_500_000_000_000)
    sender.flush()
    (record,) = ottla_broker.records(ottla_topic)
    assert record.timestamp_ms > 1_700_000_000_000
