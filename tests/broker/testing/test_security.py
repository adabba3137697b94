"""The security of a broker in one word: its certificates, users and files, and the settings for clients."""

from __future__ import annotations

import asyncio
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from ottla.broker import AsyncEmbedded, Embedded
from ottla.broker.config.security.words import PROTOCOLS
from ottla.broker.errors import ConfigError
from ottla.broker.metrics.client_ledger import FILE_NAME, read
from ottla.broker.releases.profiles import profile
from ottla.broker.security.scram import Mechanism
from ottla.broker.testing.client_settings import LIBRARIES, client_settings, properties
from ottla.broker.testing.embedded import OperationError
from ottla.broker.testing.security import STATE, Security, made
from ottla.client import Consumer, KafkaError, Producer
from ottla.protocol.internal_records.metadata_records import UserScramCredentialRecord
from ottla.protocol.security.oauthbearer import json_object, sections
from ottla.storage.format.file_names import SECURITY_FILES
from ottla.storage.io.files import DiskFiles
from ottla_testing.each import each

SASL = ["sasl_plaintext", "sasl_ssl"]
TOKENS = ["oauth_plaintext", "oauth_ssl"]
TLS = ["ssl", "mtls", "sasl_ssl", "oauth_ssl"]
LIFETIME_S = 10
BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9093"
NEWEST = profile("4.4")


def written(word: str, folder: Path, **more: Any) -> Security:
    security = made(word)
    security.write(str(folder), **more)
    return security


@each("word", list(PROTOCOLS))
def test_files_are_private_and_have_what_clients_need(word: str, tmp_path: Path) -> None:
    security = written(word, tmp_path, with_state=True)
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"security.json"} == {
        *(("security-ca.pem", "security-truststore.p12") if word in TLS else ()),
        *(f"security-{user}.{kind}" for user in security.identities for kind in ("pem", "p12")),
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert names <= SECURITY_FILES  # which a reset and a restore leave where they are
    shown = repr(security)
    secrets = [*security.users.values(), *filter(None, [security.store_password])]
    secrets += [one.key for one in security.identities.values()]
    assert all(secret not in shown for secret in secrets)


@each("word", list(PROTOCOLS))
def test_settings_of_all_libraries_agree(word: str, tmp_path: Path) -> None:
    security = written(word, tmp_path)
    found = {name: client_settings(name, BOOTSTRAP, security) for name in LIBRARIES}
    protocol = PROTOCOLS[word]
    assert found["confluent-kafka"]["security.protocol"].upper() == found["java"]["security.protocol"] == protocol
    assert found["kafka-python"]["security_protocol"] == found["aiokafka"]["security_protocol"] == protocol
    assert ("sasl" in found["kafkajs"]) == ("mechanism" in found["values"]) == (word in SASL + TOKENS)
    assert ("ssl" in found["kafkajs"]) == ("ca_file" in found["values"]) == (word in TLS)
    assert ("ssl.keystore.key" in found["java"]) == (word == "mtls")
    assert found["kcat"][:2] == ["-b", BOOTSTRAP] and found["kafkajs"]["brokers"] == BOOTSTRAP.split(",")
    pairs = {f"{name}={value}" for name, value in found["confluent-kafka"].items() if name != "bootstrap.servers"}
    if word not in TOKENS:
        assert set(found["kcat"][3::2]) == pairs
    context: Any = found["aiokafka"].get("ssl_context")
    assert (context is not None) == (word in TLS)
    if context is not None:
        assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname
    if word in SASL:
        assert found["values"]["password"] == security.users["admin"] == found["kafka-python"]["sasl_plain_password"]
        assert security.users["admin"] in found["java"]["sasl.jaas.config"]
    files = [value for name, value in found["java-pkcs12"].items() if name.endswith(".location")]
    assert len(files) == {"ssl": 1, "sasl_ssl": 1, "oauth_ssl": 1, "mtls": 2}.get(word, 0)
    assert all(Path(file).suffix == ".p12" and Path(file).exists() for file in files)
    if word != "plaintext":
        other = client_settings("values", BOOTSTRAP, security, "user") if security.known else {}
        assert not other or other != found["values"]


@each("word", TOKENS)
def test_settings_with_tokens_have_no_passwords(word: str, tmp_path: Path) -> None:
    security = written(word, tmp_path)
    for name in LIBRARIES:
        text = str(client_settings(name, BOOTSTRAP, security, "user"))
        assert "OAUTHBEARER" in text.upper() and ".password" not in text.replace("truststore.password", ""), name
    clock_ms = 5_000_000_000_123
    security.now_ms = lambda: clock_ms
    token, ends_s = client_settings("ottla", BOOTSTRAP, security, "user")["sasl.oauth.token.provider"]()
    assert token == security.token("user") and ends_s == 0
    assert json_object(sections(token)[1]) == {"sub": "user", "iat": 5_000_000_000, "exp": 5_000_003_600.123}
    token, ends_s = client_settings("confluent-kafka", BOOTSTRAP, security)["oauth_cb"]("")
    assert token == security.token("admin") and ends_s < clock_ms / 1000  # the end is by librdkafka's own clock
    for name in ("kafka-python", "aiokafka"):
        made_of = client_settings(name, BOOTSTRAP, security)["sasl_oauth_token_provider"]
        token = made_of.token() if name == "kafka-python" else asyncio.run(made_of.token())
        assert token == security.token("admin") and made_of.extensions() == {}
    for lasting in (
        client_settings("values", BOOTSTRAP, security)["token"],
        client_settings("kafkajs", BOOTSTRAP, security)["sasl"]["value"],
    ):
        assert json_object(sections(lasting)[1])["exp"] > 5_000_000_000 + 300_000_000
    for name, text in (
        ("java", 'unsecuredLoginStringClaim_sub="admin" unsecuredLoginLifetimeSeconds="60"'),
        ("kcat", "principal=admin lifeSeconds=60"),
    ):
        assert text in str(client_settings(name, BOOTSTRAP, security, token_lifetime_s=60))
    for name in ("values", "ottla"):
        found = client_settings(name, BOOTSTRAP, security, token_lifetime_s=60)
        token = found.get("token") or found["sasl.oauth.token.provider"]()[0]
        assert json_object(sections(token)[1])["exp"] == 5_000_000_060.123
    with pytest.raises(ValueError, match="token_lifetime_s must be a number of seconds from 1 on, not 0"):
        client_settings("java", BOOTSTRAP, security, token_lifetime_s=0)


def test_lifetime_is_for_tokens_alone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="security of this broker is sasl_plaintext, which has no tokens"):
        client_settings("java", BOOTSTRAP, written("sasl_plaintext", tmp_path), token_lifetime_s=60)
    with Embedded(security="oauth_plaintext") as broker, pytest.raises(TypeError, match="token_lifetime_s"):
        broker.client_settings("java", token_lifetime_s=True)


def test_token_has_the_claims_that_a_test_gives() -> None:
    broker = Embedded(security="oauth_plaintext")
    with broker:
        broker.clock.freeze()
        broker.clock.set(2_000_000_000_500)
        token = broker.oauth_token("ann", 60, scope=["a", "b"])
        claims = {"sub": "ann", "iat": 2_000_000_000, "exp": 2_000_000_060.5, "scope": ["a", "b"]}
        assert json_object(sections(token)[1]) == claims
        assert json_object(sections(broker.oauth_token(exp=1))[1])["exp"] == 1
    with pytest.raises(TypeError, match="user"):
        broker.oauth_token(5)  # pyright: ignore[reportArgumentType]


async def test_session_ends_with_its_token_and_a_new_token_continues() -> None:
    """The clock moves beyond the end of tokens while a producer and a consumer are connected."""
    async with AsyncEmbedded(security="oauth_plaintext", configs={"auto.create.topics.enable": "false"}) as broker:
        topic = await broker.create_topic("orders")
        settings = broker.client_settings("ottla", "user", token_lifetime_s=LIFETIME_S)
        reading = {**settings, "group.id": "readers", "auto.offset.reset": "earliest"}
        async with (
            Producer.from_config(settings) as producer,
            Consumer.from_config(reading, topics=[topic]) as consumer,
        ):
            values = [str(number).encode() for number in range(6)]
            for number, value in enumerate(values):
                if number in (2, 4):
                    mark = await broker.requests.mark()
                    await broker.clock.advance(LIFETIME_S * 1000 + 1)
                await producer.send_and_wait(topic, value)
                assert (await consumer.getone()).value == value
                if number in (2, 4):
                    logins = await broker.requests(api="SaslAuthenticate", since=mark)
                    # A connection that was about to log in when the clock moved has a token that is over by then.
                    assert any(not one.errors for one in logins)
        assert [one.value for one in await broker.records(topic)] == values


async def test_provider_is_called_again_after_a_refused_token() -> None:
    """The provider returns the text alone, which is fresh by the client's own clock."""
    async with AsyncEmbedded(security="oauth_plaintext") as broker:
        given: list[str] = []

        def provide() -> str:
            given.append(broker.oauth_token("user", 60))
            return given[-1]

        settings = {**broker.client_settings("ottla"), "sasl.oauth.token.provider": provide}
        async with Producer.from_config(settings) as producer:
            await producer.send_and_wait("orders", b"bread")
            await broker.clock.advance(60_001)
            await producer.send_and_wait("orders", b"milk")
        assert len(given) == 2 and given[0] != given[1]
        assert [one.value for one in await broker.records("orders")] == [b"bread", b"milk"]


async def test_token_that_has_expired_is_refused() -> None:
    async with AsyncEmbedded(security="oauth_plaintext") as broker:
        token = broker.oauth_token("user", 60)
        settings = {**broker.client_settings("ottla"), "sasl.oauth.token.provider": lambda: (token, 0)}
        async with Producer.from_config(settings) as producer:
            await producer.send_and_wait("orders", b"bread")
        await broker.clock.advance(60_000)
        with pytest.raises(KafkaError, match=r"invalid_token"):
            async with Producer.from_config(settings) as producer:
                await producer.send_and_wait("orders", b"bread")


@each("word", ["sasl_plaintext", "oauth_plaintext", "mtls"])
async def test_clients_are_recorded_with_their_principals(word: str, tmp_path: Path) -> None:
    async with AsyncEmbedded(security=word, data_dir=tmp_path / word) as broker:
        async with Producer.from_config(broker.client_settings("ottla")) as producer:
            await producer.send_and_wait("orders", b"bread")
        made_by = {one.principal for one in await broker.requests(api="Produce")}
    found = read(DiskFiles(), str(tmp_path / word / FILE_NAME)).clients.values()
    assert len(made_by) == 1 and {name for one in found for name in one.principals} == made_by


@each("word", SASL)
async def test_login_that_fails_once(word: str) -> None:
    """As docs/guides/secure-tests.md has it."""
    async with AsyncEmbedded(security=word) as broker:
        settings = broker.client_settings("ottla")
        await broker.faults.error("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED", times=1)
        with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
            async with Producer.from_config(settings) as producer:
                await producer.send_and_wait("orders", b"bread")
        async with Producer.from_config(settings) as producer:
            await producer.send_and_wait("orders", b"milk")
        assert [one.value for one in await broker.records("orders")] == [b"milk"]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    security = written("sasl_plaintext", tmp_path)
    for arguments, text in (
        (("librdkafka",), "for one of confluent-kafka, "),
        (
            ("java", "joe"),
            "there is no user 'joe': the security of this broker is sasl_plaintext, and its users are admin",
        ),
        (("java", "user", "GSSAPI"), "no mechanism 'GSSAPI'.*its mechanisms are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ):
        library, user, mechanism = (*arguments, None, None)[:3]
        with pytest.raises(ValueError, match=text):
            client_settings(str(library), BOOTSTRAP, security, user, mechanism)
    for word in ("plaintext", "ssl"):
        with pytest.raises(ValueError, match="it has no users"):
            client_settings("java", BOOTSTRAP, written(word, tmp_path), "admin")
        with pytest.raises(ValueError, match="it has no logins"):
            client_settings("java", BOOTSTRAP, written(word, tmp_path), None, "PLAIN")
    with pytest.raises(
        ConfigError,
        match="security is one of plaintext, ssl, mtls, sasl_plaintext, sasl_ssl, oauth_plaintext, oauth_ssl, not 't",
    ):
        Embedded(security="tls")


def test_certificate_has_the_names_of_the_listeners() -> None:
    security = made("ssl")
    configs = security.configs(
        ["SSL://broker.example:9092", "B://[::]:1", "C://10.0.0.7:2"], ["SSL://outside.example:9"], NEWEST
    )
    certificate = x509.load_pem_x509_certificate(configs["ssl.keystore.certificate.chain"].encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts, addresses = names.get_values_for_type(x509.DNSName), names.get_values_for_type(x509.IPAddress)
    assert {"localhost", "broker.example", "outside.example"} <= set(hosts)
    assert {"127.0.0.1", "::1", "10.0.0.7"} <= set(map(str, addresses))
    assert "BEGIN PRIVATE KEY" in configs["ssl.keystore.key"]  # Java reads no other form
    assert configs["listener.security.protocol.map"] == "SSL:SSL,B:SSL,C:SSL"


def test_stores_in_pkcs12_are_opened_with_their_password(tmp_path: Path) -> None:
    security = written("mtls", tmp_path)
    password = security.store_password.encode()
    trusted = pkcs12.load_pkcs12((tmp_path / "security-truststore.p12").read_bytes(), password)
    assert [one.certificate.subject for one in trusted.additional_certs] and trusted.key is None
    own = pkcs12.load_pkcs12((tmp_path / "security-user.p12").read_bytes(), password)
    assert own.key is not None and own.cert is not None
    assert own.cert.certificate.subject.rfc4514_string().startswith("CN=user,")


def test_state_continues(tmp_path: Path) -> None:
    first = written("mtls", tmp_path, with_state=True)
    again = made("mtls", (tmp_path / STATE).read_bytes())
    assert (again.authority, again.identities, again.store_password) == (
        first.authority, first.identities, first.store_password
    )  # fmt: skip
    other = made("sasl_ssl", (tmp_path / STATE).read_bytes())
    assert other.authority == first.authority and set(other.users) == {"admin", "user"}
    assert made("sasl_ssl").users != made("sasl_ssl").users
    for damaged in (b"", b"{", b"[]", b'{"users": 1}', b'{"users": {}, "store_password": "", "identities": {"a": 1}}'):
        with pytest.raises(ConfigError, match=r"security.json is damaged: remove it"):
            made("ssl", damaged)


def test_properties_keep_backslashes_and_lines() -> None:
    assert properties({"a": "C:\\x", "b": 1, "c": "two\nlines\n"}) == "a=C:\\\\x\nb=1\nc=two\\nlines\\n\n"


@each("release", ["0.8.2", "0.9"])
def test_release_without_mechanisms_is_refused(release: str) -> None:
    with pytest.raises(ConfigError, match=r"security sasl_plaintext needs release 0\.10\.0 or newer"):
        Embedded(release=release, security="sasl_plaintext")


@each("release", ["0.10.0", "2.0", "3.3", "4.4"])
@each("word", list(PROTOCOLS))
def test_each_security_is_that_of_each_release(release: str, word: str) -> None:
    with Embedded(release=release, security=word) as broker:
        state: Any = broker._thread.operations
        assert set(state.running.state.scram.users) == set(broker.users)
        assert bool(broker.users) == (word in SASL)
        assert broker.options.listeners[0].protocol == PROTOCOLS[word]


def test_explicit_configs_win() -> None:
    broker = Embedded(security="sasl_plaintext", configs={"super.users": "User:root"})
    assert broker.options.config["super.users"] == "User:root"
    assert [str(one)[:17] for one in broker.options.listeners] == ["SASL_PLAINTEXT://"]


def test_embedded_keeps_its_users_through_a_reset_and_a_restart() -> None:
    broker = Embedded(security="sasl_plaintext")
    with pytest.raises(OperationError, match="the broker does not run"):
        broker.client_settings("java")
    for _ in range(2):
        with broker:
            broker.reset()
            settings = broker.client_settings("values", "user", "SCRAM-SHA-512")
            assert (settings["user"], settings["password"]) == ("user", broker.users["user"])
            assert settings["bootstrap"] == broker.bootstrap
            state: Any = broker._thread.operations
            assert set(state.running.state.scram.of("user")) == set(Mechanism)
            stored = [
                one for one in state.running.state.metadata_log.replay() if isinstance(one, UserScramCredentialRecord)
            ]
            assert len(stored) == 4  # of two users, for two mechanisms, by the first start


def test_missing_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigError, match=r"certificates for tests need trustme: pip install 'ottla\[security\]'"):
        Embedded(security="ssl")
    assert Embedded(security="sasl_plaintext").users
