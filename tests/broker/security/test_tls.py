"""Listeners with TLS: handshakes, principals of certificates, stores replaced while clients are connected."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.serve_options import serve_options
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.network.connections import FAILED, SUCCESSFUL
from ottla.broker.security.tls import parse_rules
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.configuring import BROKER, SET, change
from ottla_testing.broker.harness import Broker, Client, Closed, produce, records, running
from ottla_testing.certificates import Authority, certificates_of, pem_configs, self_signed
from ottla_testing.each import each

VERSIONS = ApiVersionsRequest(client_software_name="n", client_software_version="1")
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)
LISTENERS = {"listeners": "PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0"}
REFUSED = (ssl.SSLError, ConnectionError, Closed)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def configs(authority: Authority, protocol: str = "SSL", server: str = "server", **more: str) -> dict[str, str]:
    stores = pem_configs(authority.issue(server), authority.trusted)
    prefixed = {f"listener.name.secured.{name}": text for name, text in stores.items()}
    protocols = f"PLAINTEXT:PLAINTEXT,SECURED:{protocol}"
    return {**LISTENERS, "listener.security.protocol.map": protocols, **prefixed, **more}


def trusting(authority: Authority, own: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.trusted))
    if own is not None:
        context.load_cert_chain(own)
    return context


async def secured(broker: Broker, context: ssl.SSLContext) -> Client:
    return Client(
        *await asyncio.open_connection("127.0.0.1", broker.ports[1], ssl=context, server_hostname="localhost")
    )


def principals(broker: Broker) -> set[str]:
    return {connection.info.principal for connection in open_ones(broker)}


def open_ones(broker: Broker) -> list[Any]:
    return [one for one in broker.running.connections.open if one.listener == "SECURED"]


def serial(client: Client) -> str:
    return client.writer.get_extra_info("peercert")["serialNumber"]


async def test_requests_of_all_sizes_are_served(authority: Authority, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=configs(authority)) as broker:
        await broker.topic("t")
        client = await secured(broker, trusting(authority))
        for size in (1, 20_000, 900_000):
            response = await client.call(produce(records(bytes(size))), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
        await asyncio.gather(*(client.send(VERSIONS, 3) for _ in range(200)))
        for _ in range(200):
            assert (await client.receive())[1].error_code == 0
        assert principals(broker) == {"User:ANONYMOUS"}


@each(
    "auth, certificate, principal",
    [
        ("none", True, "User:ANONYMOUS"),
        ("requested", False, "User:ANONYMOUS"),
        ("requested", True, "User:joe"),
        ("required", True, "User:joe"),
    ],
)
async def test_certificate_of_a_client(
    auth: str, certificate: bool, principal: str, authority: Authority, tmp_path: Path
) -> None:
    more = {"listener.name.secured.ssl.client.auth": auth, "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L"}
    async with running(tmp_path, overrides=configs(authority, **more)) as broker:
        own = authority.issue("joe", common_name="JOE") if certificate else None
        client = await secured(broker, trusting(authority, own))
        assert (await client.call(VERSIONS, 3)).error_code == 0
        assert principals(broker) == {principal}


async def test_trusted_certificates_are_ends_of_chains(authority: Authority, tmp_path: Path) -> None:
    """Java, and so Kafka, trusts each certificate in the trust store: those that clients have signed themselves, even
    of the same name, and an authority whose own authority is not there.
    """
    child = authority.child(tmp_path / "child")
    alone = [self_signed(tmp_path / f"{index}.pem", "joe") for index in range(3)]
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(
        "".join([child.trusted.read_text(), *(text for path in alone for text in certificates_of(path))])
    )
    stores = pem_configs(authority.issue("server"), trusted)
    more = {f"listener.name.secured.{name}": text for name, text in stores.items()}
    more["listener.name.secured.ssl.client.auth"] = "required"
    async with running(tmp_path / "data", overrides=configs(authority) | more) as broker:
        for own in (*alone, child.issue("ann", common_name="ann")):
            client = await secured(broker, trusting(authority, own))
            assert (await client.call(VERSIONS, 3)).error_code == 0, own
        for own in (self_signed(tmp_path / "other.pem", "joe"), authority.issue("bob", common_name="bob")):
            with pytest.raises(REFUSED):
                await (await secured(broker, trusting(authority, own))).call(VERSIONS, 3)


@each("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_without_a_trusted_certificate_get_an_alert(
    version: ssl.TLSVersion, authority: Authority, tmp_path: Path
) -> None:
    more = {"listener.name.secured.ssl.client.auth": "required"}
    other = Authority(tmp_path / "other").issue("joe")
    async with running(tmp_path / "data", overrides=configs(authority, **more)) as broker:
        for own in (None, other):
            context = trusting(authority, own)
            context.maximum_version = version
            with pytest.raises(ssl.SSLError, match="ALERT"):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", broker.ports[1], ssl=context, server_hostname="localhost"
                )
                try:
                    await reader.read()
                finally:
                    writer.close()
        await broker.settle()
        assert not open_ones(broker)


async def test_a_name_without_a_rule_is_refused(authority: Authority, tmp_path: Path) -> None:
    more = {"listener.name.secured.ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=ann.*$/ann/"}
    async with running(tmp_path, overrides=configs(authority, **more)) as broker:
        metrics = RequestMetrics()
        broker.running.connections.observe(metrics)
        with pytest.raises(REFUSED):
            client = await secured(broker, trusting(authority, authority.issue("bob", common_name="bob")))
            await client.call(VERSIONS, 3)
        client = await secured(broker, trusting(authority, authority.issue("ann", common_name="ann")))
        await client.call(VERSIONS, 3)
        assert principals(broker) == {"User:ann"}
        assert metrics.authentications == {(outcome, "SECURED"): 1 for outcome in (SUCCESSFUL, FAILED)}


async def test_sasl_over_tls_needs_no_certificate(authority: Authority, tmp_path: Path) -> None:
    """KIP-684: the config without the prefix is for listeners without SASL."""
    more = {
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        'required user_ann="one";',
    }
    async with running(tmp_path, overrides=configs(authority, "SASL_SSL", **more)) as broker:
        from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
        from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest

        client = await secured(broker, trusting(authority))
        assert (await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        assert (await client.call(SaslAuthenticateRequest(auth_bytes=b"\0ann\0one"), 2)).error_code == 0
        await client.call(METADATA, 9)
        assert principals(broker) == {"User:ann"}


async def test_each_node_has_its_certificate(authority: Authority, tmp_path: Path) -> None:
    own = {f"node.{node_id}.ssl.keystore.location": str(authority.issue(f"node-{node_id}")) for node_id in (1, 2)}
    more = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", **own}
    async with running(tmp_path, overrides=more, brokers=2) as broker:
        found: set[str] = set()
        for port in broker.ports:
            streams = await asyncio.open_connection(
                "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
            )
            found.add(serial(Client(*streams)))
        assert len(found) == 2


async def test_other_bytes_and_lost_clients_close_the_connection(authority: Authority, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=configs(authority)) as broker:
        kept = await secured(broker, trusting(authority))
        for data in (
            b"\0\0\0\x10" + bytes(16),
            b"GET / HTTP/1.1\r\n\r\n",
            os.urandom(500),
            b"\x16\x03\x01\xff\xff" * 99,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
            writer.write(data)
            writer.write_eof()
            while await reader.read(1000):  # an alert, or nothing
                pass
            writer.close()
        gone = [socket.create_connection(("127.0.0.1", broker.ports[1])) for _ in range(50)]
        for one in gone:
            one.close()
        assert (await kept.call(VERSIONS, 3)).error_code == 0
        await broker.settle()
        assert len(open_ones(broker)) == 1


async def test_damaged_records_of_tls_close_one_connection(authority: Authority, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=configs(authority)) as broker:
        kept = await secured(broker, trusting(authority))
        victim = await secured(broker, trusting(authority))
        assert (await victim.call(VERSIONS, 3)).error_code == 0
        sock = victim.writer.get_extra_info("socket")
        os.write(sock.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))  # a record whose authentication fails
        with pytest.raises(REFUSED):
            await victim.call(VERSIONS, 3)
        assert (await kept.call(VERSIONS, 3)).error_code == 0


async def test_handshakes_that_are_not_completed_are_closed_by_the_clock(authority: Authority, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=configs(authority)) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
        kept = await secured(broker, trusting(authority))
        await broker.settle()
        broker.clock.advance(59_999)
        await broker.settle()
        assert len(open_ones(broker)) == 2
        broker.clock.advance(1)
        assert await reader.read() == b""
        writer.close()
        await broker.settle()
        assert len(open_ones(broker)) == 1
        assert (await kept.call(VERSIONS, 3)).error_code == 0


async def test_a_held_handshake_begins_when_the_connection_is_admitted(authority: Authority, tmp_path: Path) -> None:
    more = {"listener.name.secured.max.connections": "1"}
    async with running(tmp_path, overrides=configs(authority, **more)) as broker:
        first = await secured(broker, trusting(authority))
        assert (await first.call(VERSIONS, 3)).error_code == 0
        pending = asyncio.create_task(secured(broker, trusting(authority)))
        await broker.settle()
        assert not pending.done()
        first.close()
        assert (await (await pending).call(VERSIONS, 3)).error_code == 0


async def test_a_changed_file_is_the_certificate_of_new_connections(authority: Authority, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=configs(authority, server="rotated")) as broker:
        before = await secured(broker, trusting(authority))
        path = authority.folder / "rotated.pem"
        whole = authority.issue("next").read_bytes()
        path.write_bytes(whole[:-200])  # as a file that is being written
        between = await secured(broker, trusting(authority))
        path.write_bytes(whole)
        after = await secured(broker, trusting(authority))
        for client in (before, between, after):
            assert (await client.call(VERSIONS, 3)).error_code == 0
        assert serial(before) == serial(between) != serial(after)


async def test_a_store_is_replaced_by_a_request(authority: Authority, tmp_path: Path) -> None:
    """KIP-226, with the checks of KIP-1119."""
    name = "listener.name.secured.ssl.keystore.location"
    more = {"listener.name.secured.ssl.allow.dn.changes": "true"}
    async with running(tmp_path, overrides=configs(authority, **more)) as broker:
        before = await secured(broker, trusting(authority))
        other, wrong = authority.issue("other"), authority.issue("wrong", "elsewhere.example")
        plain = await broker.client()
        for path, problem in ((tmp_path / "none", "No such file"), (wrong, "Keystore SubjectAltNames do not match")):
            code, text = await change(plain, BROKER, "1", (name, SET, str(path)))
            assert code == ErrorCode.INVALID_REQUEST and problem in (text or ""), text
        assert serial(await secured(broker, trusting(authority))) == serial(before)
        assert (await change(plain, BROKER, "1", (name, SET, str(other))))[0] == 0
        after = await secured(broker, trusting(authority))
        assert serial(after) != serial(before)
        for client in (before, after):
            assert (await client.call(VERSIONS, 3)).error_code == 0


@each(
    "text, names",
    [
        ("DEFAULT", {"CN=joe,O=x": "CN=joe,O=x"}),
        ("", {"CN=joe,O=x": None}),
        ("RULE:^CN=(.*?),O=(.*?)$/$1@$2/U", {"CN=joe,O=x": "JOE@X", "CN=joe": None}),
        (
            "RULE:^CN=(.*?),O=ServiceUsers.*$/$1/L,RULE:^CN=(.*?),O=(.*?)$/$1@$2/,DEFAULT",
            {"CN=Joe,O=ServiceUsers": "joe", "CN=Joe,O=x": "Joe@x", "CN=z": "CN=z"},
        ),
        (r"RULE:CN=(.*)/a\/b\$1$2$12/", {"CN=joe": "a/b$1$2joe2"}),
        ("  RULE:.*/x/ ,  DEFAULT ", {"CN=joe": "xx"}),
    ],
)
def test_rules_of_principals(text: str, names: dict[str, str | None]) -> None:
    """The names are those of Kafka 4.3.1's SslPrincipalMapper."""
    rules = parse_rules(text)
    for name, expected in names.items():
        assert next((found for rule in rules if (found := rule.apply(name)) is not None), None) == expected


@each("text", ["RULE:a", "RULE:(/x/", "DEFAULTS", "RULE:a/b/X"])
def test_rules_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        parse_rules(text)


@each(
    "more, problem",
    [
        ({}, "listener SSL has TLS, and neither ssl.keystore.location nor ssl.keystore.key is set"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/none"}, ""),
        (
            {"ssl.keystore.location": "/x"},
            "listener SSL: ssl.keystore.location is set, and ssl.keystore.password is not",
        ),
    ],
)
def test_settings_that_a_listener_cannot_have(more: dict[str, str], problem: str, tmp_path: Path) -> None:
    texts = {"listeners": "SSL://127.0.0.1:0", "log.dirs": str(tmp_path), **more}
    if not problem:
        serve_options(Config.load(overrides=texts))  # the file is read when the broker starts
        return
    with pytest.raises(ConfigError) as raised:
        serve_options(Config.load(overrides=texts))
    assert str(raised.value) == problem
