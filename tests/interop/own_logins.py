"""Our own clients at Apache Kafka's listeners with TLS and logins: each mechanism over each protocol, each refusal, and
the commands that copy and replay."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apache_kafka import RELEASES, Kafka, free_port

from ottla.client import Admin, Consumer, Producer
from ottla.client.admin.admin import NewTopic, ScramMechanism, ScramUpsertion, checked
from ottla.client.net.errors import AuthenticationError, ClientError, KafkaError
from ottla.protocol.errors import ErrorCode
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.interop.checks import Check, Failed

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER, PASSWORD = "ann", "one-two"
AT_ONCE_S = 20.0
"""A refusal that was retried would take default.api.timeout.ms, a minute."""


def settings(authority: Authority, ports: dict[str, int]) -> dict[str, Any]:
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    users = f'{MODULE} required user_{USER}="{PASSWORD}";'
    return {
        "more.listeners": listeners,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{
            f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config": (
                users if mechanism == "PLAIN" else f"{MODULE} required;".replace("plain.Plain", "scram.Scram")
            )
            for name in PROTOCOLS[1:]
            for mechanism in MECHANISMS
        },
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.issue_pkcs12("server")),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted),
        "listener.name.ssl.ssl.client.auth": "required",
    }


async def exchange(names: dict[str, str], topic: str) -> None:
    """Writes a record and reads it. Raises ClientError, Failed."""
    async with Producer.from_config(names) as producer:
        offset = (await producer.send_and_wait(topic, topic.encode(), partition=0)).offset
    async with Consumer.from_config(names, assign=[(topic, 0)], offset_reset="earliest") as consumer:
        value = (await consumer.getone()).value
    if (value, offset) != (topic.encode(), 0):
        raise Failed(f"{names['security.protocol']}: read {value!r} at offset {offset}")


async def refused(names: dict[str, str], kind: type[ClientError], text: str) -> None:
    """Checks that a client fails at once with an error."""
    began = time.monotonic()
    try:
        async with Admin.from_config(names):
            raise Failed(f"{text}: the client is connected")
    except ClientError as error:
        if not isinstance(error, kind) or text not in str(error):
            raise Failed(f"expected {kind.__name__} with {text!r}, got {error!r}") from None
    if time.monotonic() - began > AT_ONCE_S:
        raise Failed(f"{text}: not at once")


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}


async def clients(kafka: Kafka, ports: dict[str, int], authority: Authority, folder: Path) -> int:
    """Runs all clients; returns their number."""
    trust = {"ssl.ca.location": str(authority.trusted)}
    own = {"ssl.certificate.location": str(authority.issue("own"))}
    stranger = {"ssl.certificate.location": str(Authority(folder / "other").issue("own"))}
    at = {name: {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": name} for name, port in ports.items()}
    topics = ["ssl", *(f"{name}-{mechanism}" for name in PROTOCOLS[1:] for mechanism in MECHANISMS)]
    async with Admin(kafka.address) as admin:
        checked(await admin.create_topics([NewTopic(topic, 1) for topic in topics]))
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            checked(await admin.alter_user_scram_credentials([ScramUpsertion(USER, mechanism, PASSWORD)]))
    await exchange({**at["SSL"], **trust, **own}, "ssl")
    for name in PROTOCOLS[1:]:
        for mechanism in MECHANISMS:
            names = {**at[name], **(trust if name == "SASL_SSL" else {}), **login(mechanism)}
            await exchange(names, f"{name}-{mechanism}")
            await refused({**names, **login(mechanism, "guess")}, KafkaError, ErrorCode.SASL_AUTHENTICATION_FAILED.name)
    await refused(at["SSL"], AuthenticationError, "is not trusted")
    for version in ("TLSv1.2", "TLSv1.3"):
        for shown in ({}, stranger):
            names = {**at["SSL"], **trust, **shown, "ssl.enabled.protocols": version}
            # With TLS 1.3 the alert may be lost when the broker resets the connection.
            await refused(names, ClientError, "certificate")
    plain = {**at["SSL"], **trust, "bootstrap.servers": kafka.address}
    await refused(plain, ClientError, "a listener without TLS does so")
    await refused({"bootstrap.servers": at["SSL"]["bootstrap.servers"]}, ClientError, "TLS")
    return len(topics)


def commands(ports: dict[str, int], authority: Authority, folder: Path) -> None:
    """Runs commands with a file of options at the listener with both TLS and a login."""
    file = folder / "client.properties"
    names: dict[str, Any] = {"security.protocol": "SASL_SSL", **login("SCRAM-SHA-512")}
    names |= {"ssl.truststore.location": authority.trusted_pkcs12(), "ssl.truststore.password": STORE_PASSWORD}
    file.write_text("".join(f"{name}={value}\n" for name, value in names.items()))
    broker = ["--bootstrap-server", f"127.0.0.1:{ports['SASL_SSL']}", "--command-config", str(file)]
    for command, text in (
        (["topics", "--list"], "SASL_SSL-PLAIN\n"),
        (["mirror", "--topics", "ssl", "--data-dir", str(folder / "copy")], "ssl-0: 0..1, 1 batches"),
        (["producers", "--topic", "ssl"], "ssl"),
    ):
        run = [sys.executable, "-m", "ottla.tools", *command, *broker]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60)
        if done.returncode or text not in done.stdout:
            raise Failed(f"ottla {' '.join(command)}: {done.returncode}, {(done.stdout + done.stderr)[-500:]}")


def run_logins(release: str) -> str:
    """Runs the check; returns a line about it. Raises Failed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder)
        ports = {protocol: free_port() for protocol in PROTOCOLS}
        kafka = Kafka(release, **settings(authority, ports))
        try:
            count = asyncio.run(clients(kafka, ports, authority, folder))
            commands(ports, authority, folder)
        finally:
            kafka.stop()
    return f"{count} clients with TLS and logins, each refusal at once, and commands with a file"


CHECKS = [
    Check(f"our logins and TLS with Kafka {version}", lambda release=release: run_logins(release))
    for release, version in RELEASES.items()
]
