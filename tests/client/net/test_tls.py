"""TLS of the client: each failed handshake is one clear error at once; and clients with our broker over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.admin import NewTopic, checked
from ottla.client.net.cluster import Cluster
from ottla.client.net.errors import AuthenticationError, ClientError, ConnectionLost, ErrorKind
from ottla.client.net.options import ClientOptions
from ottla.client.net.tls import handshake_error
from ottla_testing.broker import harness
from ottla_testing.certificates import Authority, pem_configs
from ottla_testing.clients.securing import LISTENER, broker_configs, client_settings
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
NEVER = "9223372036854775807"  # the clock of the broker stands still
WITHOUT_HOST = {"ssl_endpoint_identification_algorithm": ""}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def server(identity: Path, *, clients: Path | None = None, versions: tuple[Any, Any] | None = None) -> ssl.SSLContext:
    """The context of a listener; `clients` are the certificates of those that may connect."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    if versions is not None:
        context.minimum_version, context.maximum_version = versions
    return context


def secured(accepted: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
    """Returns the socket after the handshake. One that fails is closed when the client has read the alert: the bytes
    that it has sent since would reset the connection."""
    if context is None:
        return accepted
    stream = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
    try:
        stream.do_handshake()
    except OSError:
        socket.socket.shutdown(stream, socket.SHUT_WR)
        while socket.socket.recv(stream, 1 << 16):
            pass
        stream.close()
        raise
    return stream


@contextlib.contextmanager
def listening(context: ssl.SSLContext | None, data: bytes = b"") -> Iterator[int]:
    """A listener that sends `data` to the first bytes that it receives, and closes; returns its port.

    In a thread: asyncio sends no alert when a handshake fails.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # of the listener, closed at the end
            while True:
                accepted, _ = listener.accept()
                accepted.settimeout(PATIENCE_S)
                with contextlib.suppress(OSError), secured(accepted, context) as stream:
                    stream.recv(1)
                    stream.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE_S)


async def failure(port: int, **options: Any) -> ClientError:
    """Returns the error of a client's start, which no retry precedes."""
    cluster = Cluster(ClientOptions(bootstrap=f"127.0.0.1:{port}", old_brokers=False, **options))
    with pytest.raises(ClientError) as raised:
        await cluster.start()
    await cluster.close()
    assert "\n" not in str(raised.value) and f"127.0.0.1:{port}" in str(raised.value)
    return raised.value


def trusting(authority: Authority, **more: Any) -> dict[str, Any]:
    return {"security_protocol": "SSL", "ssl_ca_location": str(authority.trusted), **more}


async def test_certificate_that_is_not_trusted_is_fatal(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with listening(server(authority.issue("broker"))) as port:
        for options in ({"security_protocol": "SSL"}, trusting(other)):
            error = await failure(port, **options)
            assert type(error) is AuthenticationError and not error.retriable
            assert error.kind is ErrorKind.INVALID_CONFIGURATION
            assert "is not trusted: " in str(error) and "ssl.truststore.location" in str(error)


async def test_expired_certificate_is_fatal(authority: Authority) -> None:
    with listening(server(authority.issue("expired", not_after=PAST))) as port:
        error = await failure(port, **trusting(authority))
        assert type(error) is AuthenticationError and "certificate has expired" in str(error)


async def test_certificate_for_another_host_is_fatal_unless_the_check_is_off(authority: Authority) -> None:
    with listening(server(authority.issue("elsewhere", "broker.example"))) as port:
        error = await failure(port, **trusting(authority))
        assert type(error) is AuthenticationError and "is for another host: IP address mismatch" in str(error)
        for options in (WITHOUT_HOST, {"ssl_check_hostname": False}):
            error = await failure(port, **trusting(authority, **options))
            assert type(error) is ConnectionLost and "closed by the broker" in str(error), "the handshake succeeded"
    with listening(server(authority.issue("elsewhere", "broker.example"))) as port:
        error = await failure(port, security_protocol="SSL", enable_ssl_certificate_verification=False)
        assert type(error) is ConnectionLost


async def test_certificate_that_ends_a_chain_need_not_be_a_root(authority: Authority, tmp_path: Path) -> None:
    """As in Java, where each certificate of a trust store is trusted by itself."""
    own = authority.issue("alone")
    first = own.read_text().partition("-----BEGIN CERTIFICATE-----")[2].partition("-----END CERTIFICATE-----")[0]
    leaf = tmp_path / "leaf.pem"
    leaf.write_text(f"-----BEGIN CERTIFICATE-----{first}-----END CERTIFICATE-----\n")
    with listening(server(own)) as port:
        error = await failure(port, security_protocol="SSL", ssl_ca_location=str(leaf))
        assert type(error) is ConnectionLost and "closed by the broker" in str(error)


@each("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_listener_that_requires_a_certificate(authority: Authority, version: Any, tmp_path: Path) -> None:
    """With TLS 1.3 the refusal arrives after the client's handshake."""
    required = server(authority.issue("broker"), clients=authority.trusted, versions=(version, version))
    stranger = Authority(tmp_path).issue("stranger")
    with listening(required) as port:
        for own in ({}, {"ssl_certificate_location": str(stranger)}):
            error = await failure(port, **trusting(authority, **own))
            assert type(error) is AuthenticationError and "refused the handshake: " in str(error), error
            assert "ssl.keystore.location" in str(error)
        known = {"ssl_certificate_location": str(authority.issue("known"))}
        assert type(await failure(port, **trusting(authority, **known))) is ConnectionLost


async def test_no_version_in_common_is_fatal(authority: Authority) -> None:
    newest = (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)
    with listening(server(authority.issue("broker"), versions=newest)) as port:
        error = await failure(port, **trusting(authority, ssl_enabled_protocols="TLSv1.2"))
        assert type(error) is AuthenticationError and "protocol version" in str(error)


@each(
    ("sends", "kind", "text"),
    [
        (b"", ConnectionLost, "during the TLS handshake; a listener without TLS does so"),
        (b"\0\0\0\x06\0\0\0\1\0\x23", AuthenticationError, "sends no TLS: set security.protocol to that of the list"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", AuthenticationError, "sends no TLS"),
    ],
)
async def test_tls_at_a_listener_without(sends: bytes, kind: type, text: str, authority: Authority) -> None:
    with listening(None, sends) as port:
        error = await failure(port, **trusting(authority))
        assert text in str(error)
        assert type(error) is kind or (kind is ConnectionLost and isinstance(error, ConnectionLost))


async def test_no_tls_at_a_listener_with_it() -> None:
    with listening(None, b"\x15\x03\x03\0\2\2\x32") as port:
        error = await failure(port)
        assert isinstance(error, ConnectionLost) and "speaks TLS: set security.protocol to SSL" in str(error)


async def test_silent_listener_is_left_after_the_timeout(authority: Authority) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    error = await failure(port, **trusting(authority, connect_timeout_ms=50))
    assert isinstance(error, ConnectionLost) and "within 0.05 s" in str(error)
    listener.close()


def test_each_failure_has_words() -> None:
    plain = handshake_error("h", 1, ConnectionResetError(104, "reset"))
    assert type(plain) is ConnectionLost
    unknown = ssl.SSLError(1, "[SSL: BAD_SIGNATURE] bad signature (_ssl.c:1)")
    assert str(handshake_error("h", 1, unknown)).startswith("TLS: the handshake with h:1 failed: ")
    unknown.reason = "SSLV3_ALERT_BAD_CERTIFICATE"
    assert "h:1 refused the handshake: bad certificate; it may require" in str(handshake_error("h", 1, unknown))
    unknown.reason = "TLSV1_ALERT_INTERNAL_ERROR"
    assert str(handshake_error("h", 1, unknown)) == "TLS: h:1 refused the handshake: internal error"


# With our broker


def configs(authority: Authority, protocol: str, **more: str) -> dict[str, str]:
    pem = pem_configs(authority.issue("broker"), authority.trusted)
    return broker_configs(protocol) | pem | {name.replace("_", "."): value for name, value in more.items()}


@each("protocol", ["SSL", "SASL_SSL"])
@each("version", ["TLSv1.2", "TLSv1.3"])
async def test_clients_work_over_tls(protocol: str, version: str, authority: Authority, tmp_path: Path) -> None:
    names = client_settings(protocol) if protocol == "SASL_SSL" else {"security.protocol": protocol}
    names |= {"ssl.ca.location": str(authority.trusted), "ssl.enabled.protocols": version}
    overrides = {"listeners": LISTENER} | configs(authority, protocol, log_message_timestamp_after_max_ms=NEVER)
    async with harness.running(tmp_path, overrides=overrides) as broker:
        names["bootstrap.servers"] = f"127.0.0.1:{broker.ports[0]}"
        async with Admin.from_config(names) as admin:
            assert checked(await admin.create_topics([NewTopic("t", 2)]))
        values = [bytes([number]) * 50_000 for number in range(40)]
        async with Producer.from_config(names) as producer:
            sent = [await producer.send("t", value, partition=0) for value in values]
            assert [(await one).offset for one in sent] == list(range(40))
        async with Consumer.from_config(names, assign=[("t", 0)], offset_reset="earliest") as consumer:
            assert [(await consumer.getone()).value for _ in values] == values


async def test_advertised_host_that_the_certificate_lacks_fails_the_batch_at_once(
    authority: Authority, tmp_path: Path
) -> None:
    """Retries until delivery.timeout.ms would hide the reason for two minutes."""
    pem = pem_configs(authority.issue("by-address", "127.0.0.1"))
    overrides = {"listeners": "SSL://127.0.0.1:0", "advertised.listeners": "SSL://localhost:0"} | pem
    async with harness.running(tmp_path, overrides=overrides) as broker:
        await broker.topic("t", 1)
        address = f"127.0.0.1:{broker.ports[0]}"
        async with Producer(address, **trusting(authority)) as producer:
            with pytest.raises(AuthenticationError, match=r"localhost:.* is for another host: Hostname mismatch"):
                await producer.send_and_wait("t", b"x")
        async with Consumer(address, assign=[("t", 0)], **trusting(authority)) as consumer:
            with pytest.raises(AuthenticationError, match="is for another host"):
                await consumer.getone()


async def test_plaintext_and_tls_mixed_up_with_our_broker(authority: Authority, tmp_path: Path) -> None:
    overrides = configs(authority, "SSL") | {"listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}"}
    overrides["listener.security.protocol.map"] += ",PLAINTEXT:PLAINTEXT"
    async with harness.running(tmp_path, overrides=overrides) as broker:
        error = await failure(broker.ports[0], **trusting(authority))
        assert isinstance(error, ConnectionLost) and "a listener without TLS does so" in str(error)
        error = await failure(broker.ports[1])
        assert isinstance(error, ConnectionLost), str(error)
