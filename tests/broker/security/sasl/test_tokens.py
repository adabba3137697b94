"""Logins by SCRAM with delegation tokens: principals, sessions that end with the token, and what is refused."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

from ottla.broker import Embedded
from ottla.client import Admin
from ottla.client.net.sasl import Login
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security.scram import salted_password
from ottla_testing.broker.delegating import (
    CONFIGS,
    DAY_MS,
    HOUR_MS,
    SECURED,
    authenticated,
    create,
    describe,
    expire,
    logged_in,
    refused,
    renew,
)
from ottla_testing.broker.harness import Broker, Client, produce, records, running
from ottla_testing.each import each

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


def login_of(token: Any, mechanism: str = "SCRAM-SHA-256") -> Login:
    return Login(mechanism, token.token_id, base64.b64encode(token.hmac).decode(), by_token=True)


async def by_token(broker: Broker, login: Login) -> Client:
    client = await broker.client(1)
    assert (await authenticated(client, login)).error_code == 0
    return client


@each("mechanism", MECHANISMS)
async def test_client_is_the_owner_of_its_token(mechanism: str, tmp_path: Path) -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:bob",
    }
    async with running(tmp_path, overrides=CONFIGS | authorizer) as broker:
        await broker.topic("t")
        of_bob, of_ann = [await create(await logged_in(broker, user)) for user in ("bob", "ann")]

        async def code(login: Login) -> int:
            client = await by_token(broker, login)
            response = await client.call(produce(records(b"v")), 9)
            return response.responses[0].partition_responses[0].error_code

        assert await code(login_of(of_bob, mechanism)) == 0
        assert await code(login_of(of_ann, mechanism)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_token_does_not_lead_to_another_token(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        made = await create(await logged_in(broker))
        client = await by_token(broker, login_of(made))
        refusal = await create(client)
        assert (refusal.error_code, refusal.principal_name, refusal.issue_timestamp_ms) == (64, "ann", -1)
        assert await renew(client, made.hmac) == await expire(client, made.hmac) == (64, -1)
        response = await describe(client)
        assert (response.error_code, response.tokens) == (64, [])


async def test_connection_has_its_owner_and_that_it_was_a_token(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made = await create(ann)
        await by_token(broker, login_of(made))
        infos = [one.info for one in broker.running.connections.open]
        assert sorted((info.principal, info.token_authenticated) for info in infos if info.listener == "SECURED") == [
            ("User:ann", False),
            ("User:ann", True),
        ]


async def test_session_ends_with_the_token(tmp_path: Path) -> None:
    """KIP-368: a renewed token renews the session."""
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made = await create(ann, max_lifetime_ms=2 * DAY_MS)
        client, other = await broker.client(1), await broker.client(1)
        for one in (client, other):
            assert (await authenticated(one, login_of(made))).session_lifetime_ms == DAY_MS
        broker.clock.advance(DAY_MS - HOUR_MS)
        assert (await renew(ann, made.hmac))[0] == 0
        assert (await authenticated(client, login_of(made))).session_lifetime_ms == DAY_MS
        broker.clock.advance(HOUR_MS)
        assert (await other.call(METADATA, 9)).brokers
        broker.clock.advance(1)
        await other.send(METADATA, 9)
        assert await other.is_closed()
        assert (await client.call(METADATA, 9)).brokers
        broker.clock.advance(DAY_MS)
        await client.send(METADATA, 9)
        assert await client.is_closed()


async def test_session_is_the_shorter_of_the_config_and_the_token(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS | {"connections.max.reauth.ms": str(HOUR_MS)}) as broker:
        ann = await logged_in(broker)
        for life_ms, session_ms in ((-1, HOUR_MS), (60_000, 60_000)):
            made = await create(ann, max_lifetime_ms=life_ms)
            client = await broker.client(1)
            assert (await authenticated(client, login_of(made))).session_lifetime_ms == session_ms


@each(
    ("release", "longest_ms", "session_ms"),
    [("3.2", 0, 0), ("3.2", HOUR_MS, 5000), ("3.6", 0, 5000), ("3.6", 1000, 1000), ("3.2", 1000, 1000)],
)
async def test_releases_before_3_3_end_sessions_with_their_token_if_the_config_is_set(
    release: str, longest_ms: int, session_ms: int, tmp_path: Path
) -> None:
    """KAFKA-13848."""
    configs = CONFIGS | {"connections.max.reauth.ms": str(longest_ms)}
    async with running(tmp_path, release=release, overrides=configs) as broker:
        made = await create(await logged_in(broker), max_lifetime_ms=5000, version=2)
        client = await broker.client(1)
        assert (await authenticated(client, login_of(made))).session_lifetime_ms == session_ms
        broker.clock.advance(5001)
        await client.send(METADATA, 9)
        if session_ms:
            assert await client.is_closed()
        else:
            assert (await client.receive())[1].brokers
            assert (await authenticated(await broker.client(1), login_of(made))).session_lifetime_ms == 0


async def test_expired_token_that_is_not_removed_yet_allows_no_request(tmp_path: Path) -> None:
    """As in Kafka: the login succeeds, with a session of no length."""
    async with running(tmp_path, overrides=CONFIGS) as broker:
        made = await create(await logged_in(broker), max_lifetime_ms=5000)
        broker.clock.advance(HOUR_MS - 1)
        client = await broker.client(1)
        assert (await authenticated(client, login_of(made))).session_lifetime_ms == 0
        broker.clock.advance(1)
        await client.send(METADATA, 9)
        assert await client.is_closed()
        await refused(broker, await broker.client(1), login_of(made))


async def test_wrong_and_removed_tokens_are_refused_alike(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made, gone = await create(ann), await create(ann)
        await expire(ann, gone.hmac)
        good = login_of(made)
        for login in (
            Login(good.mechanism, good.username, "wrong", by_token=True),
            Login(good.mechanism, "unknown", good.password, by_token=True),
            Login(good.mechanism, good.username, good.password),
            Login(good.mechanism, good.username, made.hmac.hex(), by_token=True),
            login_of(gone),
        ):
            response = await refused(broker, await broker.client(1), login)
            assert response.error_message == INVALID, login


async def test_token_is_of_no_use_without_a_key_or_with_another(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        made = await create(await logged_in(broker))
    for configs in (SECURED, SECURED | {"delegation.token.secret.key": "other"}):
        async with running(tmp_path, overrides=configs) as broker:
            assert len(broker.state.tokens) == 1
            await refused(broker, await broker.client(1), login_of(made))
    async with running(tmp_path, overrides=CONFIGS) as broker:
        await by_token(broker, login_of(made))


async def test_users_and_tokens_do_not_share_names(tmp_path: Path) -> None:
    """The credential of a user is no use with `tokenauth`, also if the user's name is the id of a token."""
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made = await create(ann)
        salted = salted_password("sha256", "own", b"salt", 4096)
        wanted = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=made.token_id, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
        assert (await ann.call(request, 0)).results[0].error_code == 0
        client = await by_token(broker, Login("SCRAM-SHA-256", made.token_id, "own"))
        assert (await create(client)).principal_name == made.token_id
        await by_token(broker, login_of(made))
        login = Login("SCRAM-SHA-256", made.token_id, "own", by_token=True)
        await refused(broker, await broker.client(1), login)


async def test_session_may_be_renewed_by_another_token_of_the_owner_only(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann, bob = await logged_in(broker), await logged_in(broker, "bob")
        first, second, third = await create(ann), await create(ann), await create(bob)
        client = await by_token(broker, login_of(first))
        broker.clock.advance(2000)
        assert (await authenticated(client, login_of(second))).error_code == 0
        broker.clock.advance(2000)
        response = await refused(broker, client, login_of(third))
        text = "Cannot change principals during re-authentication from User.ann: User.bob"
        assert response.error_message == text


async def test_token_that_is_removed_during_a_login(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made = await create(ann)
        client = await by_token(broker, login_of(made))
        await expire(ann, made.hmac)
        assert (await client.call(METADATA, 9)).brokers, "the session lasts"
        broker.clock.advance(2000)
        assert (await client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)).error_code == 0
        await refused(broker, await broker.client(1), login_of(made))


async def test_snapshot_includes_tokens() -> None:
    login: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "p"}
    async with Embedded(configs=CONFIGS) as broker:
        secured = broker.bootstraps["SECURED"]
        async with Admin(secured, security_protocol="SASL_PLAINTEXT", **login) as admin:
            kept = await admin.create_delegation_token()
            snapshot = broker.snapshot()
            gone = await admin.create_delegation_token()
            await admin.expire_delegation_token(kept.hmac)
            assert [one.token_id for one in await admin.describe_delegation_tokens()] == [gone.token_id]
            await asyncio.to_thread(broker.restore, snapshot)
            assert await admin.describe_delegation_tokens() == [kept]
            await asyncio.to_thread(broker.reset)
            assert await admin.describe_delegation_tokens() == []
