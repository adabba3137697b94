"""Logins of the client: tokens, the order of requests, renewals, refusals; and with our broker over sockets."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.security.sasl.mechanisms import PlainExchange, ScramExchange
from ottla.broker.security.scram import HASHES, Credential, Mechanism, decoy
from ottla.broker.security.tokens import DelegationTokens
from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.types import ScramMechanism, ScramUpsertion
from ottla.client.net.cluster import Cluster
from ottla.client.net.errors import ConfigError, ConnectionLost, KafkaError, UnsupportedVersion
from ottla.client.net.options import ClientOptions, read_options
from ottla.client.net.sasl import BY_PASSWORD, Login
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security import scram
from ottla_testing.broker import harness
from ottla_testing.client.scripted import ScriptedBroker, ScriptedNetwork, metadata
from ottla_testing.each import each

SECURED = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
ANN: dict[str, Any] = SECURED | {"sasl_username": "ann", "sasl_password": "one"}
MODERN: dict[type, str] = {MetadataRequest: "0-13", SaslHandshakeRequest: "0-1", SaslAuthenticateRequest: "0-2"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


WITHOUT_QUOTES = f"{MODULE} required username=ann password=never shown;"


class Stored:
    def __init__(self, user: str, made: Credential, mechanism: Mechanism) -> None:
        self.users = {user: {mechanism: made}}

    def find(self, user: str, mechanism: Mechanism) -> Credential | None:
        return self.users.get(user, {}).get(mechanism)

    def decoy(self, user: str, mechanism: Mechanism) -> Credential:
        models = [one[mechanism] for one in self.users.values() if mechanism in one]
        return decoy(b"secret", user, HASHES[mechanism], models)


# Tokens


@each("mechanism", list(Mechanism))
@each("user", ["ann", "a,b=c"])
def test_exchange_of_both_sides(mechanism: Mechanism, user: str) -> None:
    name = mechanism.name.replace("_", "-")
    salted = scram.salted_password(scram.HASHES[name], "päss", b"salt", 4096)
    stored = Stored(user, Credential.made(mechanism, b"salt", salted, 4096), mechanism)
    no_tokens = DelegationTokens(None, None, bytes, rules="removable")  # type: ignore[arg-type]
    theirs = ScramExchange(mechanism, stored, no_tokens)  # type: ignore[arg-type]
    tokens = Login(name, user, "päss").tokens()
    final = tokens.send(theirs.respond(next(tokens)))
    with pytest.raises(StopIteration):
        tokens.send(theirs.respond(final))
    assert theirs.user == user and theirs.is_complete
    plain = PlainExchange({user: "päss"})
    assert plain.respond(next(Login("PLAIN", user, "päss").tokens())) == b"" and plain.user == user


@each(
    ("first", "last", "text"),
    [
        ("", "", "malformed"),
        ("r=other,s=c2FsdA==,i=4096", "", "malformed"),
        ("r={nonce},s=c2FsdA==,i=4096", "", "malformed"),
        ("r={nonce}x,s=c2FsdA=,i=4096", "", "malformed"),
        ("r={nonce}x,s=c2FsdA==,i=many", "", "malformed"),
        ("r={nonce}x,s=c2FsdA==,i=0", "", "has 0 iterations"),
        ("r={nonce}x,s=c2FsdA==,i=2000000000", "", "has 2000000000 iterations"),
        ("r={nonce}x,s=c2FsdA==,i=4096", "v=AAAA", "the broker does not know the password"),
        ("r={nonce}x,s=c2FsdA==,i=4096", "e=other-error", "the broker does not know the password"),
    ],
)
def test_broker_that_does_not_know_the_password_is_refused(first: str, last: str, text: str) -> None:
    tokens = Login("SCRAM-SHA-256", "ann", "one").tokens()
    nonce = next(tokens).decode().partition("r=")[2]
    with pytest.raises(ValueError, match=text):
        tokens.send(first.replace("{nonce}", nonce).encode())
        tokens.send(last.encode())


# Options


@each(
    ("config", "text"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "SASL needs sasl.username and sasl.pass"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"},
            "sasl.jaas.config: Login module control flag not specified",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": WITHOUT_QUOTES},
            "sasl.jaas.config: Value not specified for key in JAAS config$",
        ),
    ],
)
def test_wrong_options_are_refused(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(ClientOptions, config)


def test_names_of_all_libraries_are_known() -> None:
    java = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{MODULE} required username="u" password="p";'}
    librdkafka = {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    python = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"}
    for names in (java, librdkafka, python):
        options = read_options(ClientOptions, {"security.protocol": "SASL_PLAINTEXT", **names})
        assert options.login == Login("PLAIN", "u", "p")
        assert "'p'" not in repr(options) and "password" not in repr(options.login)
    assert read_options(ClientOptions, librdkafka).login is None, "security.protocol is PLAINTEXT"


# The order of requests


def secured(network: ScriptedNetwork, lifetime_ms: int = 0, code: int = 0, handshakes: str = "0-1") -> ScriptedBroker:
    broker = network.broker(versions={**MODERN, SaslHandshakeRequest: handshakes})
    broker.does[SaslHandshakeRequest] = lambda request, version, link: SaslHandshakeResponse(
        error_code=0, mechanisms=["PLAIN"]
    )
    broker.does[SaslAuthenticateRequest] = lambda request, version, link: SaslAuthenticateResponse(
        error_code=code, error_message="no" if code else None, auth_bytes=b"", session_lifetime_ms=lifetime_ms
    )
    broker.does[MetadataRequest] = lambda request, version, link: metadata({1: ("one", 9092)}, {"t": {0: 1}})
    return broker


def cluster_of(**options: Any) -> Cluster:
    return Cluster(ClientOptions(bootstrap="one", **options), rng=random.Random(1))


def heard(broker: ScriptedBroker) -> list[str]:
    return [type(one.request).__name__.removesuffix("Request") for one in broker.heard]


def test_each_connection_logs_in_first() -> None:
    network = ScriptedNetwork()
    broker = secured(network)

    async def main() -> None:
        cluster = cluster_of(**ANN)
        await cluster.start()
        await cluster.connection(1)
        await cluster.close()

    network.run(main())
    login = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"]
    assert heard(broker) == [*login, "Metadata", *login]
    assert broker.requests_of(SaslAuthenticateRequest)[0].request.auth_bytes == b"\0ann\0one"
    assert broker.requests_of(SaslHandshakeRequest)[0].version == 1


def test_session_is_renewed_and_requests_wait_meanwhile() -> None:
    """KIP-368: at 85 to 95 % of the lifetime, on the same connection."""
    network = ScriptedNetwork()
    broker = secured(network, lifetime_ms=10_000)

    async def main() -> None:
        cluster = cluster_of(**ANN)
        await cluster.start()
        connection = await cluster.connection(1)
        for _ in range(60):  # some are sent between the handshake and the end of a renewal
            response, other = await asyncio.gather(*(connection.request(versions()) for _ in range(2)))
            assert response.error_code == other.error_code == 0
            await asyncio.sleep(0.5)
        assert not connection.is_closed
        await cluster.close()

    def versions() -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name="n", client_software_version="1")

    network.run(main())
    on_data = [one for one in broker.heard if one.link is broker.links[1]]
    times = [one.at_s for one in on_data if type(one.request) is SaslHandshakeRequest]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 3 and all(8.5 <= gap <= 9.5 for gap in gaps)
    for before, after in pairwise(on_data):
        if type(before.request) is SaslHandshakeRequest:
            assert type(after.request) is SaslAuthenticateRequest, "nothing may come in between"


def test_renewal_waits_until_throttled_requests_are_written() -> None:
    network = ScriptedNetwork()
    broker = secured(network, lifetime_ms=10_000)
    throttled = broker.does[ApiVersionsRequest]

    def throttle(request: Any, version: int, link: Any) -> Any:
        response = throttled(request, version, link)
        response.throttle_time_ms = 3000 if version == 3 and len(broker.heard) > 7 else 0
        return response

    async def main() -> None:
        cluster = cluster_of(**ANN)
        await cluster.start()
        connection = await cluster.connection(1)
        broker.does[ApiVersionsRequest] = throttle
        await asyncio.sleep(8)
        for _ in range(5):
            request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
            assert (await connection.request(request, 3)).error_code == 0
        assert not connection.is_closed
        await cluster.close()

    network.run(main())
    assert heard(broker)[7:].count("SaslHandshake") > 0


def test_refused_renewal_ends_the_connection() -> None:
    refusal = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
    network = ScriptedNetwork()
    broker = secured(network, lifetime_ms=10_000)

    async def main() -> None:
        cluster = cluster_of(**ANN)
        await cluster.start()
        connection = await cluster.connection(1)
        broker.does[SaslAuthenticateRequest] = lambda request, version, link: refusal
        await asyncio.sleep(10)
        assert connection.is_closed
        with pytest.raises(ConnectionLost, match=r"not authenticated again: SASL_AUTHENTICATION_FAILED \(58\): no"):
            await connection.request(ApiVersionsRequest(client_software_name="n", client_software_version="1"), 3)
        await cluster.close()

    network.run(main())


@each(
    ("code", "handshakes", "error", "text"),
    [
        (58, "0-1", KafkaError, r"SASL_AUTHENTICATION_FAILED \(58\): no"),
        (0, "0-0", UnsupportedVersion, "older than Kafka 1.0"),
    ],
)
def test_refused_login_is_an_error_at_once(code: int, handshakes: str, error: type[Exception], text: str) -> None:
    network = ScriptedNetwork()
    secured(network, code=code, handshakes=handshakes)

    async def main() -> None:
        cluster = cluster_of(**ANN)
        with pytest.raises(error if code else ConnectionLost, match=text):
            await cluster.start()
        await cluster.close()

    network.run(main())


# Over real sockets


CONFIGS = {
    "listeners": "SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(BY_PASSWORD),
    "listener.name.secured.plain.sasl.jaas.config": f'{MODULE} required user_ann="one";',
    "connection.failed.authentication.delay.ms": "0",
    "log.message.timestamp.after.max.ms": "9223372036854775807",  # the clock of the broker stands still
}


async def test_clients_log_in_by_each_mechanism(tmp_path: Path) -> None:
    async with harness.running(tmp_path, overrides=CONFIGS) as broker:
        address = f"127.0.0.1:{broker.ports[0]}"
        async with Admin(address, **ANN) as admin:
            for number in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                wanted = ScramUpsertion("joe", number, "two")
                assert await admin.alter_user_scram_credentials([wanted]) == {"joe": None}
        joe = {"sasl_username": "joe", "sasl_password": "two", "security_protocol": "SASL_PLAINTEXT"}
        for number, mechanism in enumerate(BY_PASSWORD):
            login: dict[str, Any] = ANN if mechanism == "PLAIN" else {**joe, "sasl_mechanism": mechanism}
            async with Producer(address, **login) as producer:
                assert (await producer.send_and_wait("t", mechanism.encode())).offset == number
            options: dict[str, Any] = {**login, "auto_offset_reset": "earliest"}
            async with Consumer(address, assign=[("t", 0)], **options) as consumer:
                assert (await consumer.getone()).value == b"PLAIN"
            wrong: dict[str, Any] = {**login, "sasl_password": "guess"}
            with pytest.raises(KafkaError) as raised:
                async with Admin(address, **wrong):
                    pass
            assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
