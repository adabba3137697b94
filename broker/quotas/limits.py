"""Who is held to which limit, for one key of quotas (`producer_byte_rate`, ...).

Owns the precedence of the eight levels at which a user and a client id can be limited; the level that decides also
says who shares a bucket (KIP-55, Kafka's `DefaultQuotaCallback`). Addresses are limited one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

NOBODY = ""
"""In the place of a user or a client id: the quota does not ask for it. No name is empty."""
DEFAULT = None
"""In the place of a name: whoever has no quota of their own."""

Who = tuple[str | None, str | None]
"""User and client id, each a name, DEFAULT or NOBODY."""


class Limit(NamedTuple):
    """Those with the same `bucket` share what is allowed per second."""

    bucket: tuple[str, str]
    rate: float


class ClientLimits:
    """The limits of users and client ids for one key."""

    __slots__ = ("_rates",)

    def __init__(self, rates: Mapping[Who, float]) -> None:
        self._rates = rates

    def find(self, user: str, client_id: str) -> Limit | None:
        """What holds for a client; None for no limit. One without a client id has that of its user."""
        rates = self._rates
        if not rates:
            return None
        if client_id:
            pair = user, client_id
            for who in ((user, client_id), (user, DEFAULT)):
                if (rate := rates.get(who)) is not None:
                    return Limit(pair, rate)
        if (rate := rates.get((user, NOBODY))) is not None:
            return Limit((user, NOBODY), rate)
        if client_id:
            pair = user, client_id
            for who in ((DEFAULT, client_id), (DEFAULT, DEFAULT)):
                if (rate := rates.get(who)) is not None:
                    return Limit(pair, rate)
        if (rate := rates.get((DEFAULT, NOBODY))) is not None:
            return Limit((user, NOBODY), rate)
        if client_id:
            for who in ((NOBODY, client_id), (NOBODY, DEFAULT)):
                if (rate := rates.get(who)) is not None:
                    return Limit((NOBODY, client_id), rate)
        return None


class AddressLimits:
    """The limits of addresses."""

    __slots__ = ("_default", "_rates")

    def __init__(self, rates: Mapping[str | None, float]) -> None:
        self._rates = rates
        self._default = rates.get(DEFAULT)

    def find(self, host: str) -> Limit | None:
        """What holds for an address in its canonical form; None for no limit."""
        host = host.partition("%")[0]  # an address of a link is the same by whichever interface
        rate = self._rates.get(host, self._default)
        return None if rate is None or math.isnan(rate) else Limit((host, NOBODY), float(int(rate)))
