"""An order and its encoding: a line of JSON; the customer is the record's key."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


class BadOrder(ValueError):
    """A record is not an order; the reason in one line."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order: what is bought and for how much, in cents."""

    number: int
    customer: str
    item: str
    cents: int

    @property
    def key(self) -> bytes:
        """The customer: a customer's orders share a partition, and so keep their order."""
        return self.customer.encode()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True).encode()


def decode(value: bytes | None) -> Order:
    """Returns the order in a record's value. Raises BadOrder."""
    if value is None:
        raise BadOrder("no value")
    try:
        fields = json.loads(value)
    except ValueError as error:
        raise BadOrder("not JSON") from error
    if not isinstance(fields, dict):
        raise BadOrder("not an object")
    try:
        order = Order(**fields)
    except TypeError as error:
        raise BadOrder("wrong fields") from error
    if not isinstance(order.cents, int) or order.cents < 0:
        raise BadOrder("cents must be a number, 0 or more")
    return order
