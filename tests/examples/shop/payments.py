"""Payments: every order is charged; orders that cannot be charged go to a dead-letter queue, and the next ones
continue."""

from __future__ import annotations

from collections.abc import Callable

from shop.orders import BadOrder, Order, decode
from shop.wire import Message, Receiver, Sender


class Declined(Exception):
    """The bank declines; a retry may succeed."""


class Payments:
    """Charges the orders that it reads, `attempts` times at most, in turn, and commits after each poll.

    The records of the dead-letter queue have the key, the value and the headers of the order and, as headers, why it is
    there and where it came from.
    """

    def __init__(
        self,
        receiver: Receiver,
        sender: Sender,
        dead_letters: str,
        charge: Callable[[Order], None],
        attempts: int = 3,
    ) -> None:
        self.receiver = receiver
        self.sender = sender
        self.dead_letters = dead_letters
        self.charge = charge
        self.attempts = attempts
        self.paid: list[int] = []

    def step(self, seconds: float = 0.05) -> int:
        """Handles the new records, and returns their number."""
        messages = self.receiver.poll(seconds)
        for message in messages:
            if reason := self.handle(message):
                self.bury(message, reason)
        if messages:
            self.sender.flush()
            self.receiver.commit({(m.topic, m.partition): m.offset + 1 for m in messages})
        return len(messages)

    def handle(self, message: Message) -> str | None:
        """Charges an order; returns why it could not be paid, if so."""
        try:
            order = decode(message.value)
        except BadOrder as error:
            return str(error)
        for _ in range(self.attempts):
            try:
                self.charge(order)
            except Declined as declined:
                reason = f"declined: {declined}"
            else:
                self.paid.append(order.number)
                return None
        return reason

    def bury(self, message: Message, reason: str) -> None:
        place = f"{message.topic}-{message.partition}@{message.offset}"
        headers = (*message.headers, ("reason", reason.encode()), ("from", place.encode()))
        self.sender.send(self.dead_letters, message.value, message.key, headers)
