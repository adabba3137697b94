"""Delegation tokens over the wire: a broker that issues them, and clients that log in by password or by token."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ottla.client.net.sasl import Login
from ottla.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla_testing.broker.harness import Broker, Client

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
KEY = "key of the secrets"
SECURED = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.secured.plain.sasl.jaas.config": f'{MODULE} required user_ann="p" user_bob="p" user_cat="p";',
}
CONFIGS = SECURED | {"delegation.token.secret.key": KEY}
FAILURE_MS = 100
"""The delay of the response to a failed authentication."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def logged_in(broker: Broker, user: str = "ann") -> Client:
    """Returns a client that has logged in with its password."""
    client = await broker.client(1)
    assert (await authenticated(client, Login("PLAIN", user, "p"), 0)).error_code == 0
    return client


async def authenticated(client: Client, login: Login, version: int = 2) -> Any:
    """Returns the last response of a login: an error, or that of a complete exchange."""
    response = await client.call(SaslHandshakeRequest(mechanism=login.mechanism), 1)
    assert response.error_code == 0
    tokens = login.tokens()
    sent = next(tokens)
    while True:
        response = await client.call(SaslAuthenticateRequest(auth_bytes=sent), version)
        if response.error_code:
            return response
        try:
            sent = tokens.send(bytes(response.auth_bytes))
        except StopIteration:
            return response


async def refused(broker: Broker, client: Client, login: Login) -> Any:
    """Returns the response to a login that fails, after its delay; the connection is closed."""
    pending = asyncio.create_task(authenticated(client, login))
    while not pending.done():
        await broker.settle()
        broker.clock.advance(FAILURE_MS)
    response = await pending
    assert response.error_code == 58 and await client.is_closed()
    return response


async def create(
    client: Client,
    *renewers: str,
    owner: str = "",
    max_lifetime_ms: int = -1,
    version: int = 3,
) -> Any:
    """Creates a token; principals are "Type:name"."""
    kind, _, name = owner.partition(":")
    request = CreateDelegationTokenRequest(
        owner_principal_type=kind,
        owner_principal_name=name,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in renewers)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    return await client.call(request, version)


async def renew(client: Client, secret: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    """Returns (code, expiry)."""
    response = await client.call(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), version)
    return response.error_code, response.expiry_timestamp_ms


async def expire(client: Client, secret: bytes, period_ms: int = -1, version: int = 2) -> tuple[int, int]:
    """Returns (code, expiry)."""
    response = await client.call(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), version)
    return response.error_code, response.expiry_timestamp_ms


async def describe(client: Client, owners: Sequence[str] | None = None, version: int = 3) -> Any:
    """Returns the response for these principals."""
    wanted = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, _, name in (owner.partition(":") for owner in owners)
        ]
    return await client.call(DescribeDelegationTokenRequest(owners=wanted), version)


async def described(client: Client, owners: Sequence[str] | None = None) -> list[str]:
    """Returns the ids of the tokens, in their order."""
    response = await describe(client, owners)
    assert response.error_code == 0
    return [token.token_id for token in response.tokens]
