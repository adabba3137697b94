"""GSSAPI on the side of the broker: the exchange step by step, and logins through the wire. The library is a fake;
`make interop` has a real KDC and real clients."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.security.kerberos import KerberosSettings
from ottla.broker.network.server import StartupError
from ottla.broker.security.sasl.kerberos import GssapiExchange, KeytabAcceptor
from ottla.broker.security.sasl.mechanisms import Dropped, SaslError, Unnamed
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security.kerberos import CHOICE, LOGIN_MODULE, OFFER
from ottla_testing.broker.harness import Client, running
from ottla_testing.each import each
from ottla_testing.fake_gssapi import GSSError, Kerberos, wrapped

KEY = b"k"
ANN = b"ticket|ann@R.TEST|kafka/localhost@R.TEST|0|" + KEY
SETTINGS = KerberosSettings("kafka/localhost@R.TEST", "/keytab")
CONFIGS = {
    "listeners": "SECURED://127.0.0.1:0",
    "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
    "listener.name.secured.gssapi.sasl.jaas.config": (
        f'{LOGIN_MODULE} required useKeyTab=true storeKey=true keyTab="/keytab" principal="kafka/localhost@R.TEST";'
    ),
    "sasl.kerberos.service.name": "kafka",
    "connection.failed.authentication.delay.ms": "0",
}
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)
METADATA_OF_0_9 = MetadataRequest(topics=[])
CONFIGS_OF_0_9 = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": CONFIGS["listener.name.secured.gssapi.sasl.jaas.config"],
    "sasl.kerberos.service.name": "kafka",
}
VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> Kerberos:
    world = Kerberos()
    monkeypatch.setitem(sys.modules, "gssapi", world.module)
    return world


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("OTTLA_FUZZ_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_FUZZ_SEED={chosen}")
    return chosen


def exchange() -> GssapiExchange:
    return KeytabAcceptor(SETTINGS).exchange()


# The exchange


@each("authzid", [b"", b"ann@R.TEST", b"kafka@localhost", b"bob@R.TEST", b"\xff"])
def test_client_is_the_principal_of_its_ticket_whatever_the_authorization_id(
    kerberos: Kerberos, authzid: bytes
) -> None:
    """As in Kafka: kafka-python and aiokafka send the name of the service there."""
    kerberos.seen.clear()
    theirs = exchange()
    assert theirs.respond(ANN) == wrapped(KEY, OFFER) and OFFER == b"\1\1\0\0"
    assert not theirs.is_complete
    assert theirs.respond(wrapped(KEY, CHOICE + authzid)) is None
    assert theirs.is_complete and theirs.user == "ann" and theirs.expires_ms is None


def test_client_that_requires_proof_sends_an_empty_token_before_the_offer(kerberos: Kerberos) -> None:
    theirs = exchange()
    assert theirs.respond(ANN.replace(b"|0|", b"|1|")) == b"proof" + KEY
    assert theirs.respond(b"") == wrapped(KEY, OFFER)
    assert theirs.respond(wrapped(KEY, CHOICE)) is None and theirs.user == "ann"
    other = exchange()
    other.respond(ANN.replace(b"|0|k", b"|1|l"))
    with pytest.raises(SaslError):
        other.respond(b"x")
    assert kerberos.stores == [{"rcache": "dfl:", "keytab": "/keytab"}] * 2


@each(
    ("tokens", "kind", "reason"),
    [
        ([b""], SaslError, "A token was invalid"),
        ([b"x" * 500_000], SaslError, "A token was invalid"),
        ([ANN[1:]], SaslError, "A token was invalid"),
        ([ANN.replace(b"kafka/localhost", b"kafka/other")], SaslError, "Cannot decrypt ticket for kafka/other@R.TEST"),
        ([ANN.replace(b"kafka/", b"http/")], SaslError, "Cannot decrypt ticket for http/localhost@R.TEST"),
        ([ANN, b""], SaslError, "integrity"),
        ([ANN, wrapped(b"other", CHOICE)], SaslError, "integrity"),
        ([ANN, wrapped(KEY, CHOICE)[:-1]], SaslError, "integrity"),
        ([ANN, wrapped(KEY, b"")], Dropped, "the client's choice has 0 bytes, not 4"),
        ([ANN, wrapped(KEY, b"\1\0\0")], Dropped, "the client's choice has 3 bytes, not 4"),
        ([ANN, wrapped(KEY, b"\2\0\0\0")], SaslError, "the client chose the unsupported protection 2"),
        ([ANN, wrapped(KEY, b"\0\0\0\0")], SaslError, "the client chose the unsupported protection 0"),
        ([ANN.replace(b"@R.TEST|k", b"@OTHER|k"), wrapped(KEY, CHOICE)], Unnamed, "applies to ann@OTHER"),
    ],
)
def test_token_that_does_not_fit_is_refused(
    kerberos: Kerberos, tokens: list[bytes], kind: type[Exception], reason: str
) -> None:
    kerberos.seen.clear()
    theirs = exchange()
    for token in tokens[:-1]:
        theirs.respond(token)
    with pytest.raises(kind) as raised:
        theirs.respond(tokens[-1])
    assert reason in (getattr(raised.value, "reason", "") or str(raised.value))
    assert not theirs.is_complete
    if kind is SaslError:
        assert str(raised.value) == "", "the client gets Kafka's text"


def test_text_of_the_library_is_one_short_line(kerberos: Kerberos) -> None:
    kerberos.fails_with = GSSError("one\ntwo" * 1000, 37)
    with pytest.raises(SaslError) as raised:
        exchange().respond(ANN)
    assert raised.value.reason.startswith("Kerberos: one?two") and len(raised.value.reason) < 300


def test_token_is_accepted_once(kerberos: Kerberos) -> None:
    exchange().respond(ANN)
    with pytest.raises(SaslError) as raised:
        exchange().respond(ANN)
    assert raised.value.reason == "Kerberos: Request is a replay"


def test_damaged_tokens_are_refused(kerberos: Kerberos, seed: int, scaled: Callable[[int], int]) -> None:
    chooser = random.Random(seed)
    for _ in range(scaled(5000)):
        kerberos.seen.clear()
        theirs = exchange()
        sent = [damaged(token, chooser) for token in (ANN, wrapped(KEY, CHOICE))]
        try:
            for token in sent:
                theirs.respond(token)
        except (SaslError, Dropped, Unnamed):
            pass
        key = sent[0].split(b"|")[-1]
        is_right = len(sent[1]) >= 12 and sent[1][8] & 1 == 1 and wrapped(key, sent[1][8:]) == sent[1]
        assert is_right or not theirs.is_complete
        assert theirs.is_complete or sent != [ANN, wrapped(KEY, CHOICE)]


def damaged(token: bytes, chooser: random.Random) -> bytes:
    if chooser.random() < 0.3:
        return token
    at = chooser.randrange(len(token))
    return token[:at] + chooser.randbytes(chooser.randrange(3)) + token[at + chooser.randrange(3) :]


async def test_keytab_without_the_principal_is_an_error_before_data_are_opened(
    kerberos: Kerberos, tmp_path: Path
) -> None:
    kerberos.keytabs = {}
    with pytest.raises(StartupError) as raised:
        async with running(tmp_path / "data", overrides=CONFIGS):
            pass
    text = "the Kerberos principal kafka/localhost@R.TEST: No key table entry found for kafka/localhost@R.TEST"
    assert str(raised.value) == f"listener SECURED: {text}"
    assert not list(tmp_path.glob("data/*"))


# Through the wire


async def handshake(client: Client, version: int = 1) -> int:
    return (await client.call(SaslHandshakeRequest(mechanism="GSSAPI"), version)).error_code


async def token(client: Client, data: bytes) -> Any:
    return await client.call(SaslAuthenticateRequest(auth_bytes=data), 2)


def ticket(user: bytes, number: int) -> bytes:
    return b"ticket|%b|kafka/localhost@R.TEST|0|%d" % (user, number)


async def logged_in(client: Client, user: bytes = b"ann@R.TEST", number: int = 1) -> Any:
    """Returns the last response of a login whose ticket has the key `number`."""
    assert await handshake(client) == 0
    assert (await token(client, ticket(user, number))).auth_bytes == wrapped(b"%d" % number, OFFER)
    return await token(client, wrapped(b"%d" % number, CHOICE))


@pytest.mark.usefixtures("kerberos")
async def test_login_and_renewal(tmp_path: Path) -> None:
    """The session's length is that of the config alone: Kafka's broker does not know the end of a ticket."""
    async with running(tmp_path, overrides=CONFIGS | {"connections.max.reauth.ms": "60000"}) as broker:
        client = await broker.client()
        response = await logged_in(client)
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 60_000)
        assert (await client.call(METADATA, 9)).brokers
        assert {one.info.principal for one in broker.running.connections.open} == {"User:ann"}
        broker.clock.advance(59_000)
        assert (await logged_in(client, number=2)).session_lifetime_ms == 60_000
        broker.clock.advance(59_000)
        response = await logged_in(client, b"bob@R.TEST", 3)
        text = "Cannot change principals during re-authentication from User.ann: User.bob"
        assert (response.error_code, response.error_message) == (58, text)
        assert await client.is_closed()


@pytest.mark.usefixtures("kerberos")
async def test_last_token_has_no_response_after_handshake_v0(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client()
        assert await handshake(client, 0) == 0
        first, last = ticket(b"ann@R.TEST", 1), wrapped(b"1", CHOICE)
        await client.send_bytes(struct.pack(">i", len(first)) + first)
        assert await client.receive_bytes() == wrapped(b"1", OFFER)
        await client.send_bytes(struct.pack(">i", len(last)) + last)
        assert (await client.call(METADATA, 9)).brokers, "the next bytes are those of the next response"


FIRST_BYTES = b"\x60\x82"
"""Those of a token of GSSAPI, which are no API key."""


@pytest.mark.usefixtures("kerberos")
@each("release, number", [("0.9", 1), ("2.8", 2), ("3.9", 3)])
async def test_clients_of_0_9_send_tokens_without_a_handshake(
    release: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GssapiExchange, "respond", without_first_bytes(GssapiExchange.respond))
    async with running(tmp_path, release=release, overrides=CONFIGS_OF_0_9) as broker:
        client = await broker.client()
        first, last = FIRST_BYTES + ticket(b"ann@R.TEST", number), wrapped(b"%d" % number, CHOICE)
        await client.send_bytes(struct.pack(">i", len(first)) + first)
        assert await client.receive_bytes() == wrapped(b"%d" % number, OFFER)
        await client.send_bytes(struct.pack(">i", len(last)) + last)
        assert (await client.call(METADATA_OF_0_9, 0)).brokers
        assert {one.info.principal for one in broker.running.connections.open} == {"User:ann"}


def without_first_bytes(respond: Callable[..., Any]) -> Callable[..., Any]:
    """The fake library knows no such bytes."""

    def wrapper(self: GssapiExchange, data: bytes, now_ms: int = 0) -> Any:
        return respond(self, data.removeprefix(FIRST_BYTES), now_ms)

    return wrapper


@pytest.mark.usefixtures("kerberos")
@each("release, configs", [("4.0", {}), ("3.9", {"sasl.enabled.mechanisms": "SCRAM-SHA-256"})])
async def test_others_are_disconnected_at_a_token_without_a_handshake(
    release: str, configs: dict[str, str], tmp_path: Path
) -> None:
    async with running(tmp_path, release=release, overrides=CONFIGS | configs) as broker:
        client = await broker.client()
        first = FIRST_BYTES + ticket(b"ann@R.TEST", 1)
        await client.send_bytes(struct.pack(">i", len(first)) + first)
        assert await client.is_closed()


@pytest.mark.usefixtures("kerberos")
@each("opened", [VERSIONS, b"", struct.pack(">hhih", 3, 0, 1, -1)])
async def test_token_takes_the_place_of_the_first_request_only(opened: bytes, tmp_path: Path) -> None:
    """Not after ApiVersions, and a request other than those of a login is none of GSSAPI's tokens."""
    async with running(tmp_path, release="3.9", overrides=CONFIGS) as broker:
        client = await broker.client()
        if opened:
            await client.send_bytes(struct.pack(">i", len(opened)) + opened)
            if opened == VERSIONS:
                assert await client.receive_bytes()
        guess = FIRST_BYTES + b"guess of a ticket"
        await client.send_bytes(struct.pack(">i", len(guess)) + guess)
        assert await client.is_closed()


@pytest.mark.usefixtures("kerberos")
async def test_refused_ticket_has_the_text_of_all_mechanisms(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client()
        assert await handshake(client) == 0
        response = await token(client, b"guess")
        text = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
        assert (response.error_code, response.error_message, response.auth_bytes) == (58, text, b"")
        assert await client.is_closed()


@pytest.mark.usefixtures("kerberos")
async def test_choice_that_is_too_short_closes_the_connection_without_a_response(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        client = await broker.client()
        assert await handshake(client) == 0
        await token(client, ticket(b"ann@R.TEST", 1))
        await client.send(SaslAuthenticateRequest(auth_bytes=wrapped(b"1", b"\1")), 2)
        assert await client.is_closed()


@pytest.mark.usefixtures("kerberos")
async def test_principal_without_a_user_is_authenticated_and_serves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS | {"connections.max.reauth.ms": "60000"}) as broker:
        client = await broker.client()
        response = await logged_in(client, b"ann@OTHER")
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 60_000)
        assert await client.is_closed()
        again = await broker.client()
        assert (await logged_in(again, number=2)).error_code == 0
        broker.clock.advance(2000)
        assert await handshake(again) == 0
        assert (await token(again, ticket(b"ann@OTHER", 3))).error_code == 0
        await again.send(SaslAuthenticateRequest(auth_bytes=wrapped(b"3", CHOICE)), 2)
        assert await again.is_closed()


@pytest.mark.usefixtures("kerberos")
async def test_rules_make_the_user_of_a_service(tmp_path: Path) -> None:
    rules = {"listener.name.secured.sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](app-.*)s/-.*//U,DEFAULT"}
    async with running(tmp_path, overrides=CONFIGS | rules) as broker:
        for number, (principal, user) in enumerate(
            ((b"app/host@R.TEST", "User:APP"), (b"web/host@R.TEST", "User:web"), (b"ann@R.TEST", "User:ann"))
        ):
            client = await broker.client()
            assert (await logged_in(client, principal, number)).error_code == 0
            assert {one.info.principal for one in broker.running.connections.open} >= {user}
            await asyncio.sleep(0)
