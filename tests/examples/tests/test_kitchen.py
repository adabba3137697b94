"""The kitchen, in tests that have an event loop of their own beside the broker's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from shop.kitchen import Kitchen
from shop.orders import Order

Orders = Callable[..., list[Order]]


@pytest.fixture
def done(ottla_broker: Any, ottla_topic: str, orders: Orders) -> str:
    """The topic of finished orders; there are eight orders for the kitchen."""
    for order in orders(8):
        ottla_broker.send(ottla_topic, order.encode(), order.key)
    return ottla_broker.create_topic()


def test_orders_are_cooked_side_by_side(ottla_broker: Any, ottla_topic: str, done: str) -> None:
    at_once: list[int] = []
    cooking = 0

    async def cook(order: Order) -> None:
        nonlocal cooking
        cooking += 1
        at_once.append(cooking)
        await asyncio.sleep(0.01)
        cooking -= 1

    asyncio.run(Kitchen(ottla_broker.bootstrap, ottla_topic, done, cook).serve(8))
    assert max(at_once) == 4
    ottla_broker.assert_produced(done, [b"%d" % number for number in range(1, 9)], ordered=False)
    assert ottla_broker.group(f"kitchen-of-{ottla_topic}").lag == 0


def test_an_order_that_burns_is_cooked_again(ottla_broker: Any, ottla_topic: str, done: str) -> None:
    burnt: list[int] = []

    async def cook(order: Order) -> None:
        if order.number == 3 and not burnt:
            burnt.append(order.number)
            raise OSError("burnt")

    kitchen = [Kitchen(ottla_broker.bootstrap, ottla_topic, done, cook, stoves=1) for _ in range(2)]
    with pytest.raises(OSError, match="burnt"):
        asyncio.run(kitchen[0].serve(8))
    assert ottla_broker.group(f"kitchen-of-{ottla_topic}").committed == {(ottla_topic, 0): 2}
    asyncio.run(kitchen[1].serve(6))
    assert {record.value for record in ottla_broker.records(done)} == {b"%d" % number for number in range(1, 9)}


def test_the_loop_may_call_the_broker(ottla_broker: Any, ottla_topic: str, done: str) -> None:
    """The broker's methods block the loop, but only briefly."""
    seen: list[int] = []

    async def cook(order: Order) -> None:
        seen.append(len(ottla_broker.records(ottla_topic)))

    asyncio.run(Kitchen(ottla_broker.bootstrap, ottla_topic, done, cook).serve(8))
    assert seen == [8] * 8
