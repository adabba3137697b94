"""Calls of `Admin` on delegation tokens (KIP-48, KIP-373): create, renew, expire, describe.

Brokers refuse them on a connection without a login, and on one that has logged in with a token.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ...protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from ...protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, UnsupportedVersion
from .calls import Calls, failure, of_one

OWNERS_SINCE = 3
DEFAULT_MS = -1
"""The configured lifetime or period of the broker."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are "Type:name"; times are in ms since 1970. Before Kafka 3.3 the requester is unknown.

    A client logs in by SCRAM with the id as its name, and the option `tokenauth="true"` of its login module.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str | None
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def password(self) -> str:
        """The password of a login: `hmac` in Base64."""
        return base64.b64encode(self.hmac).decode()


class TokenCalls:
    """The token calls of `Admin`."""

    _calls: Calls

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = DEFAULT_MS,
        timeout_s: float | None = None,
    ) -> DelegationToken:
        """Issues a token for the client's principal, or for another `owner` (Kafka 3.3); renewers may renew and expire
        it, as the owner may. Raises ClientError, and ConfigError for a malformed principal."""
        cls = CreateDelegationTokenRequest
        others = tuple(renewers)
        wanted = [
            cls.CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_principal, others)
        ]
        owner_type, owner_name = ("", "") if owner is None else _principal(owner)

        async def send(connection: Connection, keys: list[str]) -> dict[str, DelegationToken | ClientError]:
            version = connection.version_of(cls)
            if owner is not None and version < OWNERS_SINCE:
                raise UnsupportedVersion(f"the broker's CreateDelegationToken v{version} has no owner")
            request = cls(
                owner_principal_type=owner_type,
                owner_principal_name=owner_name,
                renewers=wanted,
                max_lifetime_ms=max_lifetime_ms,
            )
            response = await connection.request(request, version)
            made = DelegationToken(
                response.token_id,
                bytes(response.hmac),
                f"{response.principal_type}:{response.principal_name}",
                _requester(response, version),
                others,
                response.issue_timestamp_ms,
                response.expiry_timestamp_ms,
                response.max_timestamp_ms,
            )
            return dict.fromkeys(keys, failure(response.error_code) or made)

        return of_one(await self._calls.at_controller(["token"], send, timeout_s))

    async def renew_delegation_token(
        self, hmac: bytes, period_ms: int = DEFAULT_MS, *, timeout_s: float | None = None
    ) -> int:
        """Moves the expiry of a token to `period_ms` from now; returns the new one in ms since 1970. Raises
        ClientError."""
        return await self._changed(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), timeout_s)

    async def expire_delegation_token(
        self, hmac: bytes, period_ms: int = DEFAULT_MS, *, timeout_s: float | None = None
    ) -> int:
        """Moves the expiry of a token to `period_ms` from now, and with a negative period removes the token; returns
        the new expiry in ms since 1970. Raises ClientError."""
        return await self._changed(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), timeout_s)

    async def _changed(self, request: object, timeout_s: float | None) -> int:
        async def send(connection: Connection, keys: list[str]) -> dict[str, int | ClientError]:
            response = await connection.request(request)
            return dict.fromkeys(keys, failure(response.error_code) or response.expiry_timestamp_ms)

        return of_one(await self._calls.at_controller(["token"], send, timeout_s))

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> list[DelegationToken]:
        """Returns the tokens that one of the principals owns, has requested or may renew, by default those of all; of
        them, those that the client may see. Raises ClientError."""
        cls = DescribeDelegationTokenRequest
        wanted = None
        if owners is not None:
            make = cls.DescribeDelegationTokenOwner
            names = map(_principal, dict.fromkeys(owners))
            wanted = [make(principal_type=kind, principal_name=name) for kind, name in names]

        async def send(connection: Connection, keys: list[str]) -> dict[str, list[DelegationToken] | ClientError]:
            version = connection.version_of(cls)
            response = await connection.request(cls(owners=wanted), version)
            found = [_described(one, version) for one in response.tokens]
            return dict.fromkeys(keys, failure(response.error_code) or found)

        return of_one(await self._calls.at_any(["tokens"], send, timeout_s))


def _principal(text: str) -> tuple[str, str]:
    """Returns type and name of a principal. Raises ConfigError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon:
        raise ConfigError(f"expected a string in format principalType:principalName but got {text}")
    return kind, name


def _requester(value: Any, version: int) -> str | None:
    if version < OWNERS_SINCE:
        return None
    return f"{value.token_requester_principal_type}:{value.token_requester_principal_name}"


def _described(token: Any, version: int) -> DelegationToken:
    return DelegationToken(
        token.token_id,
        bytes(token.hmac),
        f"{token.principal_type}:{token.principal_name}",
        _requester(token, version),
        tuple(f"{one.principal_type}:{one.principal_name}" for one in token.renewers),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
    )
