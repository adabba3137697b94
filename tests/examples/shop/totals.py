"""Totals: the sum of each customer's orders, from all partitions of a group member."""

from __future__ import annotations

from collections import Counter

from shop.orders import BadOrder, decode
from shop.wire import Place, Receiver


class Totals:
    """Adds up the orders that its receiver reads, and commits its position on request."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.cents: Counter[str] = Counter()
        self.seen: list[int] = []
        self.next: dict[Place, int] = {}

    def step(self, seconds: float = 0.05) -> int:
        """Reads the new records, and returns their number. Skips records that are not orders."""
        messages = self.receiver.poll(seconds)
        for message in messages:
            self.next[message.topic, message.partition] = message.offset + 1
            try:
                order = decode(message.value)
            except BadOrder:
                continue
            self.cents[order.customer] += order.cents
            self.seen.append(order.number)
        return len(messages)

    def commit(self) -> None:
        if self.next:
            self.receiver.commit(self.next)
