"""GSSAPI on the side of the client: options, the exchange with both sides, and logins at our broker. The library is a
fake; `make interop` has a real KDC."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.security.kerberos import KerberosSettings
from ottla.broker.config.security.sasl import sasl_settings
from ottla.broker.config.sources import read_properties_file
from ottla.broker.config.values import Config
from ottla.broker.security.sasl.kerberos import KeytabAcceptor
from ottla.client import Admin, Consumer, Producer
from ottla.client.net.errors import ConfigError, ConnectionLost, KafkaError
from ottla.client.net.kerberos import KerberosLogin
from ottla.client.net.options import ClientOptions, read_options, security_values
from ottla.protocol.errors import ErrorCode
from ottla.protocol.security.kerberos import LOGIN_MODULE, OFFER
from ottla_testing.broker import harness
from ottla_testing.each import each
from ottla_testing.fake_gssapi import GSSError, Kerberos, wrapped
from ottla_testing.snippets import SNIPPETS

GSSAPI = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
SERVICE = {"sasl.kerberos.service.name": "kafka"}
ANN = KerberosLogin("kafka", keytab="/ann")


@pytest.fixture
def kerberos(monkeypatch: pytest.MonkeyPatch) -> Kerberos:
    world = Kerberos()
    monkeypatch.setitem(sys.modules, "gssapi", world.module)
    return world


def jaas(options: str) -> dict[str, str]:
    return {**GSSAPI, "sasl.jaas.config": f"{LOGIN_MODULE} required {options};"}


# Options


@pytest.mark.usefixtures("kerberos")
@each(
    ("config", "login"),
    [
        ({**GSSAPI, **SERVICE}, KerberosLogin("kafka")),
        (jaas("serviceName=kafka"), KerberosLogin("kafka")),
        (
            {**SERVICE, **jaas('useKeyTab=true keyTab="/ann" principal="ann@R"')},
            KerberosLogin("kafka", "ann@R", "/ann"),
        ),
        ({**SERVICE, **jaas('keyTab="/ann" ticketCache="/tickets"')}, KerberosLogin("kafka")),
        (
            {**SERVICE, **jaas('useTicketCache=true ticketCache="/tickets"')},
            KerberosLogin("kafka", ticket_cache="/tickets"),
        ),
        (
            {**GSSAPI, **SERVICE, "sasl.kerberos.keytab": "/ann", "sasl.kerberos.principal": "ann"},
            KerberosLogin("kafka", "ann", "/ann"),
        ),
    ],
)
def test_options_of_java_and_librdkafka(config: dict[str, str], login: KerberosLogin) -> None:
    assert read_options(ClientOptions, config).login == login


@pytest.mark.usefixtures("kerberos")
@each(
    ("config", "text"),
    [
        (GSSAPI, "No serviceName defined in either JAAS or Kafka config: set sasl.kerberos.service.name"),
        ({**SERVICE, **jaas("serviceName=other")}, "Conflicting serviceName values"),
    ],
)
def test_options_without_a_service_are_refused(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_options(ClientOptions, config)


@each(
    ("module", "text"),
    [
        (None, r"^GSSAPI needs gssapi: pip install 'ottla\[kerberos\]'$"),
        (object(), "^gssapi cannot be loaded: "),
    ],
)
def test_client_without_the_library_names_the_extra(module: object, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module is None:
        monkeypatch.setitem(sys.modules, "gssapi", None)
    else:

        def broken(name: str) -> Any:
            raise ImportError("libgssapi_krb5.so.2:\ncannot open shared object file")

        monkeypatch.setattr("ottla.protocol.security.kerberos.importlib.import_module", broken)
    with pytest.raises(ConfigError, match=text):
        read_options(ClientOptions, {**GSSAPI, **SERVICE})


async def test_files_of_the_guide(kerberos: Kerberos) -> None:
    broker = read_properties_file(SNIPPETS / "clients" / "kerberos.properties")
    found = sasl_settings(Config.load(overrides=broker), "SASL_SSL").kerberos
    principal = "kafka/broker.example.org@EXAMPLE.ORG"
    assert found == KerberosSettings(principal, "/etc/kafka.keytab", ("RULE:[2:$1](app-.*)s/app-//", "DEFAULT"))
    login = ClientOptions(**security_values(SNIPPETS / "clients" / "client_kerberos.properties")).login
    assert login == KerberosLogin("kafka", "ann@EXAMPLE.ORG", "/etc/ann.keytab")
    kerberos.keytabs = {"/etc/kafka.keytab": {principal}, "/etc/ann.keytab": {"ann@EXAMPLE.ORG"}}
    assert found is not None and isinstance(login, KerberosLogin)
    KeytabAcceptor(found)
    await login.begin("broker.example.org")


# The exchange


async def test_exchange_of_both_sides(kerberos: Kerberos) -> None:
    theirs = KeytabAcceptor(KerberosSettings("kafka/localhost@R.TEST", "/keytab")).exchange()
    tokens = await ANN.begin("localhost")
    response = theirs.respond(next(tokens))
    with pytest.raises(StopIteration):
        for _ in range(4):
            response = theirs.respond(tokens.send(response or b""))
    assert theirs.is_complete and theirs.user == "ann"
    cache = kerberos.stores[-1]
    assert cache is not None and cache.keys() == {"client_keytab", "ccache"}
    await ANN.begin("localhost")
    await KerberosLogin("kafka", "ann", "/ann").begin("localhost")
    mine, other = kerberos.stores[-2:]
    assert mine == cache != other, "each keytab and principal has tickets of its own"


@each(
    ("responses", "text"),
    [
        ([b""], "A token was invalid"),
        ([b"proof0", b""], "integrity"),
        ([b"proof0", wrapped(b"1", OFFER)], "integrity"),
        ([b"proof0", wrapped(b"0", b"\1\0\0")], "the broker's offer of GSSAPI is malformed"),
        ([b"proof0", wrapped(b"0", b"\6\1\0\0")], "requires a security layer"),
        ([b"proof0", wrapped(b"0", OFFER), b"x"], "a token after the end"),
    ],
)
async def test_broker_without_the_key_of_the_service_is_refused(
    responses: list[bytes], text: str, kerberos: Kerberos, monkeypatch: pytest.MonkeyPatch
) -> None:
    kerberos.keys = iter(range(1))  # type: ignore[assignment]
    tokens = await ANN.begin("localhost")
    next(tokens)
    for response in responses[:-1]:
        tokens.send(response)
    with pytest.raises(ValueError, match=text):
        tokens.send(responses[-1])


@each(("code", "kind"), [(7, KafkaError), (None, KafkaError), (21, ConnectionLost), (33, ConnectionLost)])
async def test_client_without_a_ticket(code: int | None, kind: type[Exception], kerberos: Kerberos) -> None:
    kerberos.fails_with = GSSError("Server not found", code)
    with pytest.raises(kind, match="no Kerberos ticket for kafka@localhost: Server not found"):
        await ANN.begin("localhost")


# At our broker


async def test_clients_log_in(kerberos: Kerberos, tmp_path: Path) -> None:
    options = 'useKeyTab=true storeKey=true keyTab="/keytab" principal="kafka/localhost@R.TEST" serviceName=kafka'
    configs = {
        "listeners": "SECURED://localhost:0",
        "listener.security.protocol.map": "SECURED:SASL_PLAINTEXT",
        "listener.name.secured.gssapi.sasl.jaas.config": f"{LOGIN_MODULE} required {options};",
        "connection.failed.authentication.delay.ms": "0",
        "log.message.timestamp.after.max.ms": "9223372036854775807",  # the clock of the broker stands still
    }
    async with harness.running(tmp_path, overrides=configs) as broker:
        names = {**GSSAPI, **SERVICE, "bootstrap.servers": f"localhost:{broker.ports[0]}"}
        ann = {**names, "sasl.kerberos.keytab": "/ann"}
        async with Producer.from_config(ann) as producer:
            assert (await producer.send_and_wait("t", b"v", partition=0)).offset == 0
        tickets = {**names, **jaas('useTicketCache=true ticketCache="/tickets"')}
        async with Consumer.from_config(tickets, assign=[("t", 0)], offset_reset="earliest") as consumer:
            assert (await consumer.getone()).value == b"v"
        kerberos.cached = "ann@R.TEST"
        async with Admin.from_config(names):
            pass
        for wrong, text in (
            ({**names, "sasl.kerberos.service.name": "http"}, "due to invalid credentials with SASL mechanism GSSAPI"),
            ({**names, "sasl.kerberos.keytab": "/none"}, "no Kerberos ticket for kafka@localhost: No credentials"),
        ):
            with pytest.raises(KafkaError, match=text) as raised:
                async with Admin.from_config(wrong):
                    pass
            assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
