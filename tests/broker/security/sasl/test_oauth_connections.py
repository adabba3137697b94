"""OAUTHBEARER through the wire: the exchange, sessions that end with the token, and the rotation of keys."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.serve_options import StartupError
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security.oauthbearer import LOGIN_MODULE, client_first, unsecured_token
from ottla_testing.broker.harness import Broker, Client, running
from ottla_testing.each import each
from ottla_testing.protocol.tokens import Pages, key_set, public, signer

CONFIGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "listener.name.secured.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="one";'
    ),
}
PREFIX = "listener.name.secured.oauthbearer."
SIGNED = CONFIGS | {
    f"{PREFIX}sasl.server.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    ),
    f"{PREFIX}sasl.oauthbearer.expected.audience": "kafka",
    f"{PREFIX}sasl.oauthbearer.expected.issuer": "test",
    f"{PREFIX}sasl.oauthbearer.clock.skew.seconds": "0",
}
URL = f"{PREFIX}sasl.oauthbearer.jwks.endpoint.url"
DELAY_MS = 100
INVALID = '{"status":"invalid_token"}'
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)


def claims(broker: Broker, lifetime_s: float = 60, **more: Any) -> dict[str, Any]:
    now_s = broker.clock.now_ms() / 1000
    return {"sub": "ann", "iat": now_s, "exp": now_s + lifetime_s, "aud": "kafka", "iss": "test", **more}


async def handshake(client: Client, version: int = 1) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), version)


async def token(client: Client, data: bytes, version: int = 2) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=data), version)


async def bearer(client: Client, value: str) -> Any:
    assert (await handshake(client)).error_code == 0
    return await token(client, client_first(value))


async def refusal(broker: Broker, client: Client, data: bytes = b"\x01") -> tuple[int, str]:
    """Sends the last token of an exchange, and waits for the delayed error after which the connection is closed."""
    pending = asyncio.create_task(token(client, data))
    await broker.settle()
    assert not pending.done()
    broker.clock.advance(DELAY_MS)
    response = await pending
    assert await client.is_closed()
    return response.error_code, response.error_message


async def test_session_ends_with_the_token(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        response = await bearer(client, unsecured_token(claims(broker, 60)))
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 60_000)
        broker.clock.advance(60_000)
        assert (await client.call(METADATA, 9)).brokers
        broker.clock.advance(1)
        await client.send(METADATA, 9)
        assert await client.is_closed()


@each(("limit_ms", "lifetime_s", "expected"), [(30_000, 60, 30_000), (60_000, 30, 30_000), (0, 30.5, 30_500)])
async def test_shorter_of_token_and_limit_ends_the_session(
    limit_ms: int, lifetime_s: float, expected: int, tmp_path: Path
) -> None:
    """KIP-368."""
    async with running(tmp_path, overrides=CONFIGS | {f"{PREFIX}connections.max.reauth.ms": str(limit_ms)}) as broker:
        client = await broker.client(1)
        response = await bearer(client, unsecured_token(claims(broker, lifetime_s)))
        assert response.session_lifetime_ms == expected


async def test_session_is_renewed_with_a_new_token_of_the_same_name(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        await bearer(client, unsecured_token(claims(broker, 60)))
        broker.clock.advance(50_000)
        assert (await bearer(client, unsecured_token(claims(broker, 90)))).session_lifetime_ms == 90_000
        broker.clock.advance(89_000)
        assert (await client.call(METADATA, 9)).brokers
        assert (await handshake(client)).error_code == 0
        first = client_first(unsecured_token(claims(broker, sub="bob")))
        code, text = await refusal(broker, client, first)
        assert code == 58 and text == "Cannot change principals during re-authentication from User.ann: User.bob"


async def test_expired_token_does_not_renew(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        old = unsecured_token(claims(broker, 60))
        await bearer(client, old)
        broker.clock.advance(60_000)
        response = await bearer(client, old)
        assert (response.error_code, bytes(response.auth_bytes).decode()) == (0, INVALID)
        assert await refusal(broker, client) == (58, INVALID)


async def test_token_within_the_skew_gives_a_session_that_is_over(tmp_path: Path) -> None:
    jaas = {f"{PREFIX}sasl.jaas.config": f'{LOGIN_MODULE} required unsecuredValidatorAllowableClockSkewMs="5000";'}
    async with running(tmp_path, overrides=CONFIGS | jaas) as broker:
        client = await broker.client(1)
        old = unsecured_token(claims(broker, 1))
        broker.clock.advance(2000)
        response = await bearer(client, old)
        assert (response.error_code, response.session_lifetime_ms) == (0, 0)
        broker.clock.advance(1)
        await client.send(METADATA, 9)
        assert await client.is_closed()


async def test_refused_token_gets_the_error_before_the_connection_is_closed(tmp_path: Path) -> None:
    jaas = {f"{PREFIX}sasl.jaas.config": f'{LOGIN_MODULE} required unsecuredValidatorRequiredScope="a b";'}
    async with running(tmp_path, overrides=CONFIGS | jaas) as broker:
        for value, expected in (
            ("x.y.z", INVALID),
            (unsecured_token(claims(broker)), '{"status":"insufficient_scope", "scope":"[a, b]"}'),
        ):
            client = await broker.client(1)
            response = await bearer(client, value)
            assert (response.error_code, response.error_message, response.session_lifetime_ms) == (0, "", 0)
            assert bytes(response.auth_bytes).decode() == expected
            assert await refusal(broker, client) == (58, expected)


async def test_malformed_message_has_the_text_of_all_mechanisms(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        await handshake(client)
        code, text = await refusal(broker, client, b"n,,\x01auth=Basic x\x01\x01")
        expected = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        assert (code, text) == (58, f"{expected}OAUTHBEARER")


async def test_tokens_without_a_header_after_handshake_v0(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        assert (await handshake(client, 0)).error_code == 0
        for data, reply in ((client_first("x.y.z"), INVALID), (client_first(unsecured_token(claims(broker))), "")):
            await client.send_bytes(struct.pack(">i", len(data)) + data)
            assert (await client.receive_bytes()).decode() == reply
        assert (await client.call(METADATA, 9)).brokers


async def test_signed_tokens_of_a_file(tmp_path: Path) -> None:
    mine = signer("ES256")
    (tmp_path / "keys").write_bytes(key_set(public(mine)))
    async with running(tmp_path / "data", overrides=SIGNED | {URL: f"file:{tmp_path}/keys"}) as broker:
        client = await broker.client(1)
        response = await bearer(client, mine.token(claims(broker, 60)))
        assert (response.error_code, response.auth_bytes) == (
            0,
            b"",
        ) and 59_000 <= response.session_lifetime_ms <= 60_000
        for value in (
            unsecured_token(claims(broker)),
            signer("ES256", 2).token(claims(broker)),
            mine.token(claims(broker, iss="other")),
        ):
            client = await broker.client(1)
            assert bytes((await bearer(client, value)).auth_bytes).decode() == INVALID
            assert await refusal(broker, client) == (58, INVALID)


async def test_time_is_that_of_the_broker(tmp_path: Path) -> None:
    """The broker's clock stands in 2023; the token is valid then alone."""
    mine = signer("ES256")
    (tmp_path / "keys").write_bytes(key_set(public(mine)))
    async with running(tmp_path / "data", overrides=SIGNED | {URL: f"file:{tmp_path}/keys"}) as broker:
        value = mine.token(claims(broker, 10))
        assert not (await bearer(await broker.client(1), value)).auth_bytes
        broker.clock.advance(11_000)
        assert (await bearer(await broker.client(1), value)).auth_bytes


async def test_new_key_of_a_url_is_found_by_its_id(tmp_path: Path) -> None:
    """Kafka refuses the first token of a new key, and fetches the set."""
    one, two = signer("ES256"), signer("ES256", 2)
    served = [key_set(public(one, "one"))]
    with Pages(lambda request: (200, {}, served[-1])) as pages:
        async with running(tmp_path, overrides=SIGNED | {URL: f"{pages.url}/keys"}) as broker:
            assert len(pages.requests) == 1, "before the first connection"
            assert not (await bearer(await broker.client(1), one.token(claims(broker), "one"))).auth_bytes
            served.append(key_set(public(two, "two")))
            value = two.token(claims(broker), "two")
            assert (await bearer(await broker.client(1), value)).auth_bytes
            while (await bearer(client := await broker.client(1), value)).auth_bytes:
                client.close()
                await asyncio.sleep(0.01)
            assert len(pages.requests) == 2
            assert (await bearer(await broker.client(1), one.token(claims(broker), "one"))).auth_bytes


@each("page", [(500, {}, b""), (200, {}, b"{}"), (200, {}, b"x")])
async def test_broker_does_not_start_without_the_keys(page: Any, tmp_path: Path) -> None:
    problem = r"listener SECURED: sasl\.oauthbearer\.jwks\.endpoint\.url: "
    with Pages(lambda request: page) as pages, pytest.raises(StartupError, match=problem) as raised:
        async with running(tmp_path, overrides=SIGNED | {URL: pages.url}):
            pass
    assert "\n" not in str(raised.value)
    with pytest.raises(StartupError, match="cannot read /no/file: No such file"):
        async with running(tmp_path, overrides=SIGNED | {URL: "file:/no/file"}):
            pass
