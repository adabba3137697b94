"""The admin client and delegation tokens, against many releases; logins of our own clients with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.admin import DelegationToken
from ottla.client.net.errors import ConfigError, KafkaError, UnsupportedVersion
from ottla.client.net.options import ClientOptions, read_options
from ottla.client.net.sasl import Login
from ottla_testing.broker.delegating import CONFIGS, DAY_MS
from ottla_testing.broker.harness import Broker, running
from ottla_testing.client.administering import RELEASES, administering, since
from ottla_testing.each import each

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECURED = {"security.protocol": "SASL_PLAINTEXT"}
LATER = {"log.message.timestamp.after.max.ms": "9223372036854775807"}  # the clock of the broker stands still


def admin_of(broker: Broker, user: str = "ann") -> Admin:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": "p"}
    return Admin.from_config({"bootstrap.servers": f"127.0.0.1:{broker.ports[1]}", **SECURED, **login})


def by_token(broker: Broker, token: DelegationToken, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    jaas = f'{SCRAM} required username="{token.token_id}" password="{token.password}" tokenauth="true";'
    address = f"127.0.0.1:{broker.ports[1]}"
    return {"bootstrap.servers": address, **SECURED, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


async def test_tokens_are_created_renewed_expired_and_described(tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3", overrides=CONFIGS) as broker, admin_of(broker) as admin:
        now_ms = broker.clock.now_ms()
        one = await admin.create_delegation_token(["User:bob", "User:cat"])
        assert (one.owner, one.requester, one.renewers) == ("User:ann", "User:ann", ("User:bob", "User:cat"))
        assert (one.issue_ms, one.expiry_ms, one.max_ms) == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
        two = await admin.create_delegation_token(owner="User:bob", max_lifetime_ms=60_000)
        assert (two.owner, two.requester, two.renewers, two.max_ms) == ("User:bob", "User:ann", (), now_ms + 60_000)
        assert await admin.describe_delegation_tokens() == [one, two]
        assert await admin.describe_delegation_tokens(["User:cat"]) == [one]
        assert await admin.describe_delegation_tokens([]) == []
        assert await admin.renew_delegation_token(one.hmac, 5000) == now_ms + 5000
        assert await admin.expire_delegation_token(one.hmac, 6000) == now_ms + 6000
        assert await admin.expire_delegation_token(one.hmac) == now_ms
        assert await admin.describe_delegation_tokens() == [two]
        with pytest.raises(KafkaError, match="DELEGATION_TOKEN_OWNER_MISMATCH"):
            await admin.renew_delegation_token(two.hmac)
        with pytest.raises(KafkaError, match="DELEGATION_TOKEN_NOT_FOUND"):
            await admin.expire_delegation_token(one.hmac)
        with pytest.raises(KafkaError, match="INVALID_PRINCIPAL_TYPE"):
            await admin.create_delegation_token(["Group:x"])
        assert two.password not in repr(two) and repr(two.hmac) not in repr(two)


@each("release", RELEASES, strided=True)
async def test_tokens_without_a_login_are_refused(release: str, tmp_path: Path) -> None:
    is_served = since(release, "1.1") and release not in ("3.3", "3.4", "3.5")
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        expected: type[Exception] = KafkaError if is_served else UnsupportedVersion
        match = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" if is_served else "DelegationToken"
        for call in (
            admin.create_delegation_token(),
            admin.renew_delegation_token(b"x"),
            admin.expire_delegation_token(b"x"),
            admin.describe_delegation_tokens(),
        ):
            with pytest.raises(expected, match=match):
                await call


async def test_releases_before_3_6_have_no_owner_and_no_requester(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8", overrides=CONFIGS) as broker, admin_of(broker) as admin:
        made = await admin.create_delegation_token(["User:bob"])
        assert (made.owner, made.requester) == ("User:ann", None)
        assert await admin.describe_delegation_tokens(["User:bob"]) == [made]
        with pytest.raises(UnsupportedVersion, match="CreateDelegationToken v2 has no owner"):
            await admin.create_delegation_token(owner="User:bob")


@each("principal", ["ann", ":ann", ""])
async def test_malformed_principals_are_refused(principal: str) -> None:
    admin = Admin()
    for call in (
        admin.create_delegation_token([principal]),
        admin.create_delegation_token(owner=principal),
        admin.describe_delegation_tokens([principal]),
    ):
        with pytest.raises(ConfigError, match="principalType:principalName"):
            await call


# Logins


async def test_producer_and_consumer_log_in_with_a_token(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS | LATER) as broker:
        async with admin_of(broker) as admin:
            token = await admin.create_delegation_token()
        options = by_token(broker, token)
        async with Producer.from_config(options) as producer:
            await producer.send_and_wait("t", b"one")
        reading = options | {"auto.offset.reset": "earliest"}
        async with Consumer.from_config(reading, assign=[("t", 0)]) as consumer:
            assert (await consumer.getone()).value == b"one"
        async with Admin.from_config(options) as admin:
            with pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
                await admin.create_delegation_token()


@each("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_wrong_secret_is_an_error_at_once(mechanism: str, tmp_path: Path) -> None:
    configs = CONFIGS | {"connection.failed.authentication.delay.ms": "0"}
    async with running(tmp_path, overrides=configs) as broker:
        async with admin_of(broker) as admin:
            token = await admin.create_delegation_token()
            await admin.expire_delegation_token(token.hmac)
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
            async with Admin.from_config(by_token(broker, token, mechanism)):
                pass


@each(
    ("text", "expected"), [('tokenauth="true"', True), ("tokenauth=TRUE", True), ("tokenauth=no", False), ("", False)]
)
def test_option_of_the_login_module(text: str, expected: bool) -> None:
    jaas = f"{SCRAM} required username=u password=p {text};"
    options = {**SECURED, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    assert read_options(ClientOptions, options).login == Login("SCRAM-SHA-256", "u", "p", expected)


def test_first_token_of_a_login_has_the_extension() -> None:
    first = next(Login("SCRAM-SHA-256", "id", "secret", by_token=True).tokens())
    assert first.startswith(b"n,,n=id,r=") and first.endswith(b",tokenauth=true")
    assert b"tokenauth" not in next(Login("SCRAM-SHA-256", "id", "secret").tokens())
