"""Connections with SASL through the wire: logins, the order of requests, delays, sessions and principals."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.network.connections import EXPIRED, FAILED, NOT_RENEWED, RENEWED, SUCCESSFUL
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.configuring import BROKER, SET, change
from ottla_testing.broker.harness import Broker, Client, produce, records, running
from ottla_testing.each import each

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CONFIGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.secured.plain.sasl.jaas.config": f'{MODULE} required user_ann="one" user_bob="two";',
    "listener.name.secured.sasl.server.max.receive.size": "2000",
}
DELAY_MS = 100
WRONG = "Authentication failed: Invalid username or password"
ANN, BOB = b"\0ann\0one", b"\0bob\0two"
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)
VERSIONS = ApiVersionsRequest(client_software_name="n", client_software_version="1")


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), version)


async def token(client: Client, data: bytes, version: int = 2) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=data), version)


async def logged_in(broker: Broker, data: bytes = ANN) -> Client:
    client = await broker.client(1)
    assert (await handshake(client)).error_code == 0
    response = await token(client, data)
    assert (response.error_code, response.error_message, response.auth_bytes) == (0, "", b"")
    return client


@each("version", [0, 1, 2])
async def test_login_with_a_password(version: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        assert (await client.call(VERSIONS, 3)).error_code == 0
        response = await handshake(client)
        assert (response.error_code, response.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
        response = await token(client, ANN, version)
        assert (response.error_code, response.session_lifetime_ms) == (0, 0)
        assert (await client.call(METADATA, 9)).brokers[0].port == broker.ports[1]
        assert (await client.call(VERSIONS, 3)).error_code == 0
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await token(client, ANN)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        large = produce(records(bytes(5000)))
        await broker.topic("t")
        assert (await client.call(large, 9)).responses[0].partition_responses[0].error_code == 0


@each(("release", "text"), [("1.0", None), ("2.2", None), ("2.3", ""), ("4.3", "")])
async def test_message_without_an_error_is_that_of_the_release(release: str, text: str | None, tmp_path: Path) -> None:
    configs = {name: value for name, value in CONFIGS.items() if not name.endswith("receive.size")}
    async with running(tmp_path, overrides=configs, release=release) as broker:
        client = await broker.client(1)
        await handshake(client)
        assert (await token(client, ANN, 0)).error_message == text


async def test_all_requests_of_a_login_may_arrive_together(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        sent = [
            (VERSIONS, 3),
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=ANN), 2),
        ]
        for request, version in [*sent, (METADATA, 9)]:
            await client.send(request, version)
        for request, version in sent:
            assert (await client.receive())[1].error_code == 0, (request, version)
        assert (await client.receive())[1].brokers


async def test_tokens_without_a_header_after_handshake_v0(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        assert (await handshake(client, version=0)).error_code == 0
        await client.send_bytes(struct.pack(">i", len(ANN)) + ANN)
        assert await client.receive_bytes() == b""
        assert (await client.call(METADATA, 9)).brokers
        other = await broker.client(1)
        assert (await handshake(other, version=0)).error_code == 0
        await other.send_bytes(struct.pack(">i", 8) + b"\0ann\0two")
        await broker.settle()
        broker.clock.advance(DELAY_MS)
        assert await other.is_closed()


@each("data", [b"\0ann\0two", b"\0eve\0one"])
async def test_response_to_a_wrong_password_is_delayed_and_the_connection_closed(data: bytes, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        await handshake(client)
        pending = asyncio.create_task(token(client, data))
        await broker.settle()
        broker.clock.advance(DELAY_MS - 1)
        await broker.settle()
        assert not pending.done()
        broker.clock.advance(1)
        response = await pending
        assert (response.error_code, response.error_message, response.auth_bytes) == (58, WRONG, b"")
        assert await client.is_closed()


async def test_unknown_mechanism_is_refused_with_the_enabled_ones(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        pending = asyncio.create_task(handshake(client, "GSSAPI"))
        await broker.settle()
        assert not pending.done()
        broker.clock.advance(DELAY_MS)
        response = await pending
        assert (response.error_code, response.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-256"])
        assert await client.is_closed()


async def test_nothing_is_served_before_the_login(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        for first, request, version in (
            (None, METADATA, 9),
            (None, SaslAuthenticateRequest(auth_bytes=ANN), 2),
            (VERSIONS, VERSIONS, 3),
            (VERSIONS, METADATA, 9),
        ):
            client = await broker.client(1)
            if first is not None:
                assert (await client.call(first, 3)).error_code == 0
            await client.send(request, version)
            assert await client.is_closed(), request
        client = await broker.client(1)
        await client.send_bytes(b"\0\0\x07\xd1" + bytes(2001))
        assert await client.is_closed(), "larger than sasl.server.max.receive.size"


async def test_refused_api_versions_may_be_repeated(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        bad = ApiVersionsRequest(client_software_name="?", client_software_version="1")
        assert (await client.call(bad, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await client.call(VERSIONS, 3)).error_code == 0
        assert (await handshake(client)).error_code == 0


@each(("request_", "version"), [(VERSIONS, 3), (SaslHandshakeRequest(mechanism="PLAIN"), 1)])
async def test_other_request_in_the_exchange_gets_its_error_and_is_the_last(
    request_: Any, version: int, tmp_path: Path
) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client(1)
        await handshake(client)
        pending = asyncio.create_task(client.call(request_, version))
        await broker.settle()
        assert not pending.done()
        broker.clock.advance(DELAY_MS)
        assert (await pending).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()


async def test_session_ends_and_is_renewed_by_the_same_principal(tmp_path: Path) -> None:
    """KIP-368."""
    configs = CONFIGS | {"connections.max.reauth.ms": "60000"}
    async with running(tmp_path, overrides=configs) as broker:
        metrics = RequestMetrics()
        broker.running.connections.observe(metrics)
        client = await broker.client(1)
        await handshake(client)
        assert (await token(client, ANN)).session_lifetime_ms == 60_000
        assert (await handshake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE, "sooner than a second"
        broker.clock.advance(59_000)
        assert (await handshake(client)).error_code == 0
        assert (await token(client, ANN)).session_lifetime_ms == 60_000
        broker.clock.advance(60_000)
        assert (await client.call(METADATA, 9)).brokers
        broker.clock.advance(1)
        assert (await handshake(client)).error_code == 0, "also after the end"
        pending = asyncio.create_task(token(client, BOB))
        await broker.settle()
        broker.clock.advance(DELAY_MS)
        response = await pending
        text = "Cannot change principals during re-authentication from User.ann: User.bob"
        assert (response.error_code, response.error_message) == (58, text)
        assert await client.is_closed()
        late = await logged_in(broker)
        broker.clock.advance(60_001)
        await late.send(METADATA, 9)
        assert await late.is_closed()
        wrong = await broker.client(1)
        await handshake(wrong)
        pending = asyncio.create_task(token(wrong, b"\0ann\0guess"))
        await broker.settle()
        broker.clock.advance(DELAY_MS)
        assert (await pending).error_code and await wrong.is_closed()
        counts = {SUCCESSFUL: 2, RENEWED: 1, NOT_RENEWED: 1, EXPIRED: 1, FAILED: 1}
        assert metrics.authentications == {(outcome, "SECURED"): count for outcome, count in counts.items()}


async def test_other_mechanism_does_not_renew_a_session(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS | {"connections.max.reauth.ms": "60000"}) as broker:
        client = await logged_in(broker)
        broker.clock.advance(2000)
        assert (await handshake(client, "SCRAM-SHA-256")).error_code == 0
        pending = asyncio.create_task(token(client, b"n,,n=ann,r=abc"))
        await broker.settle()
        broker.clock.advance(DELAY_MS)
        assert (await pending).error_code == 58
        assert await client.is_closed()


@each("name", ["sasl.enabled.mechanisms", "plain.sasl.jaas.config", "sasl.x"])
async def test_settings_of_a_listener_are_fixed_while_it_runs(name: str, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client()
        key = f"listener.name.secured.{name}"
        code, text = await change(client, BROKER, str(broker.state.node_id), (key, SET, "PLAIN"))
        assert code == ErrorCode.INVALID_REQUEST and "existing listener ListenerName(SECURED)" in str(text)
        same = "listener.name.secured.sasl.server.max.receive.size"
        assert await change(client, BROKER, str(broker.state.node_id), (same, SET, "2000")) == (0, None)


async def test_principal_decides_what_is_allowed(tmp_path: Path) -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ann",
    }
    async with running(tmp_path, overrides=CONFIGS | authorizer) as broker:
        await broker.topic("t")
        ann, bob, anyone = await logged_in(broker), await logged_in(broker, BOB), await broker.client()

        async def code(client: Client) -> int:
            response = await client.call(produce(records(b"v")), 9)
            return response.responses[0].partition_responses[0].error_code

        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [await code(client) for client in (ann, bob, anyone)] == [0, refused, refused]
        creation = CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=3,
            principal="User:bob",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=3,
        )
        assert (await ann.call(CreateAclsRequest(creations=[creation]), 3)).results[0].error_code == 0
        assert [await code(client) for client in (ann, bob, anyone)] == [0, 0, refused]


async def test_credentials_that_change_take_effect_with_the_next_login(tmp_path: Path) -> None:
    """The exchange itself is in test_mechanisms.py, and in tests/clients/test_sasl.py with real clients."""
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        client = await broker.client(1)
        await handshake(client, "SCRAM-SHA-256")
        first = (await token(client, b"n,,n=joe,r=abc")).auth_bytes
        wanted = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="joe", mechanism=1, iterations=8192, salt=b"salt", salted_password=bytes(32)
        )
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
        assert (await ann.call(request, 0)).results[0].error_code == 0
        client = await broker.client(1)
        await handshake(client, "SCRAM-SHA-256")
        second = (await token(client, b"n,,n=joe,r=abc")).auth_bytes
        assert first.endswith(b",i=4096") and second.endswith(b",s=c2FsdA==,i=8192")
