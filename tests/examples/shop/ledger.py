"""The ledger: an entry for each order, exactly once, however often the process dies on the way."""

from __future__ import annotations

from collections.abc import Callable

from shop.orders import decode
from shop.wire import Message, Receiver, Sender


def entry(message: Message) -> bytes:
    """Returns the ledger's entry for an order."""
    order = decode(message.value)
    return f"{order.number}:{order.customer}:{order.cents}".encode()


class Ledger:
    """Copies orders to the ledger's topics; entries and how far it has read are one transaction.

    `before_commit` is called when all is sent and nothing is committed: what it raises aborts the transaction, and the
    orders are read again by the next ledger of the group.
    """

    def __init__(
        self, receiver: Receiver, sender: Sender, *targets: str, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        self.receiver = receiver
        self.sender = sender
        self.targets = targets
        self.before_commit = before_commit

    def step(self, seconds: float = 0.05) -> int:
        """Books the new orders, and returns their number. Raises Fenced when another ledger has taken over."""
        messages = self.receiver.poll(seconds)
        if not messages:
            return 0
        self.sender.begin()
        try:
            for message in messages:
                for target in self.targets:
                    self.sender.send(target, entry(message), message.key, partition=message.partition)
            self.sender.flush()
            self.before_commit()
        except Exception:
            self.sender.abort()
            raise
        self.sender.commit({(m.topic, m.partition): m.offset + 1 for m in messages}, self.receiver)
        return len(messages)
