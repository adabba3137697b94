"""Checkout: puts orders on a topic."""

from __future__ import annotations

from collections.abc import Iterable

from shop.orders import Order
from shop.wire import Header, Sender


class Checkout:
    """Sends orders, each under its customer's key, and cancels them with tombstones."""

    def __init__(self, sender: Sender, topic: str) -> None:
        self.sender = sender
        self.topic = topic

    def place(self, orders: Iterable[Order], trace: str | None = None) -> list[int]:
        """Sends orders, and returns their offsets when all are acknowledged. Raises SendFailed."""
        headers: list[Header] = [("schema", b"order/1")]
        if trace is not None:
            headers.append(("trace", trace.encode()))
        for order in orders:
            self.sender.send(self.topic, order.encode(), order.key, headers)
        return self.sender.flush()

    def forget(self, customer: str) -> int:
        """Returns a tombstone for a customer: a compacted topic drops the customer's orders."""
        self.sender.send(self.topic, None, customer.encode())
        return self.sender.flush()[0]
