"""Finds the limit that applies to a client, for one quota key (`producer_byte_rate`, ...).

Owns the precedence of the eight kinds of entities with a user or a client id. The kind that applies also decides which
clients share a limit (KIP-55, Kafka's `DefaultQuotaCallback`). Address limits are separate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...protocol.named import NamedTuple

ABSENT = ""
"""In place of a user or a client id: the entity does not contain it. A real name is never empty."""
DEFAULT = None
"""In place of a name: the default entity, for all clients without a quota of their own."""

ClientEntity = tuple[str | None, str | None]
"""Entity with a user and a client id, each a name, DEFAULT or ABSENT."""


class Limit(NamedTuple):
    """A limit per second; clients with the same `bucket` share it."""

    bucket: tuple[str, str]
    rate: float


class ClientLimits:
    """The limits of users and client ids for one quota key."""

    __slots__ = ("_rates",)

    def __init__(self, rates: Mapping[ClientEntity, float]) -> None:
        self._rates = rates

    def find(self, user: str, client_id: str) -> Limit | None:
        """Returns the limit of a client, or None. A client without a client id has the limit of its user."""
        rates = self._rates
        if not rates:
            return None
        for of_user, user_bucket in ((user, user), (DEFAULT, user), (ABSENT, ABSENT)):
            if client_id:
                for of_client in (client_id, DEFAULT):
                    if (rate := rates.get((of_user, of_client))) is not None:
                        return Limit((user_bucket, client_id), rate)
            if (rate := rates.get((of_user, ABSENT))) is not None:  # no entity lacks both
                return Limit((user_bucket, ABSENT), rate)
        return None


class AddressLimits:
    __slots__ = ("_default", "_rates")

    def __init__(self, rates: Mapping[str | None, float]) -> None:
        self._rates = rates
        self._default = rates.get(DEFAULT)

    def find(self, host: str) -> Limit | None:
        """Returns the limit of an address in canonical form, or None."""
        host = host.partition("%")[0]  # a link-local address has the same limit on every interface
        rate = self._rates.get(host, self._default)
        return None if rate is None or math.isnan(rate) else Limit((host, ABSENT), float(int(rate)))
