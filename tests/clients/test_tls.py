"""Clients that connect with TLS: each library, right and wrong certificates, with SASL, and certificates replaced while
records are sent.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from ottla_testing.certificates import Authority, pem_configs
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.each import each
from ottla_testing.old_environment import in_node
from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import SNIPPETS

LISTENER = "SECURED"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "one"
PROTOCOLS = ("SSL", "SASL_SSL")


def underscored(configs: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): text for name, text in configs.items()}


class Secured:
    """A broker with TLS: its address, and the files of a client."""

    def __init__(self, folder: Path, protocol: str, **more: str) -> None:
        self.protocol = protocol
        self.authority = Authority(folder / "authority")
        self.key_store = self.authority.issue("server")
        self.own = self.authority.issue("ann", common_name="ann")
        configs = {
            "listener_security_protocol_map": f"{LISTENER}:{protocol}",
            "sasl_enabled_mechanisms": "PLAIN",
            "listener_name_secured_plain_sasl_jaas_config": f'{MODULE} required user_ann="{PASSWORD}";',
            "listener_name_secured_ssl_client_auth": "required" if protocol == "SSL" else "none",
            **{
                name.replace(".", "_"): text
                for name, text in pem_configs(self.key_store, self.authority.trusted).items()
            },
        }
        self.broker = RunningBroker(folder, listener=LISTENER, **configs, **more)

    def librdkafka(self, trusted: Path | None = None, password: str = PASSWORD) -> dict[str, Any]:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": password}
        return {
            "bootstrap.servers": self.broker.address,
            "security.protocol": self.protocol,
            "ssl.ca.location": str(trusted or self.authority.trusted),
            "ssl.certificate.location": str(self.own),
            "ssl.key.location": str(self.own),
            "log_level": 0,
            **(login if self.protocol == "SASL_SSL" else {}),
        }

    def kafka_python(self, trusted: Path | None = None, password: str = PASSWORD) -> dict[str, Any]:
        login = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "ann", "sasl_plain_password": password}
        return {
            "bootstrap_servers": self.broker.address,
            "security_protocol": self.protocol,
            "ssl_cafile": str(trusted or self.authority.trusted),
            "ssl_certfile": str(self.own),
            "ssl_keyfile": str(self.own),
            **(login if self.protocol == "SASL_SSL" else {}),
        }

    def aiokafka(self, trusted: Path | None = None, password: str = PASSWORD) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=str(trusted or self.authority.trusted))
        context.load_cert_chain(self.own)
        settings = self.kafka_python(None, password)
        kept = {name: value for name, value in settings.items() if not name.startswith("ssl_")}
        return kept | {"ssl_context": context}


@pytest.fixture(scope="module", params=PROTOCOLS)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    running = Secured(tmp_path_factory.mktemp("secured"), request.param)
    yield running
    running.broker.close()


def by_confluent(secured: Secured, topic: str) -> list[bytes]:
    producer = Producer(secured.librdkafka())
    producer.produce(topic, b"confluent" * 30_000)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(secured.librdkafka() | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() or b"" for message in consumer.consume(1, PATIENCE_S)]
    consumer.close()
    return found


def by_kafka_python(secured: Secured, topic: str) -> list[bytes]:
    producer = KafkaProducer(**secured.kafka_python())
    producer.send(topic, b"confluent" * 30_000).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **secured.kafka_python())
    found = [next(consumer).value]
    consumer.close()
    return found


def by_aiokafka(secured: Secured, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        settings = secured.aiokafka()
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"confluent" * 30_000)
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b""]

    return asyncio.run(main())


@each("client", [by_confluent, by_kafka_python, by_aiokafka])
def test_client_produces_and_consumes(client: Any, secured: Secured, name: str) -> None:
    topic = f"{name}-{secured.protocol}-{client.__name__}"
    assert client(secured, topic) == [b"confluent" * 30_000]


def test_client_that_does_not_trust_the_broker_is_not_connected(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path).trusted
    errors: list[str] = []
    producer = Producer(secured.librdkafka(other) | {"error_cb": lambda error: errors.append(str(error))})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)
    producer.poll(0)
    assert "certificate verify failed" in errors[0]

    async def main() -> None:
        producer = AIOKafkaProducer(**secured.aiokafka(other))
        try:
            with pytest.raises(KafkaConnectionError):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(main())


def test_certificates_are_replaced_while_records_are_sent(tmp_path: Path) -> None:
    """Nothing is lost: open connections stay, and new ones have the new certificate."""
    secured = Secured(tmp_path, "SSL")
    certificates = set[str]()
    kept = Producer(secured.librdkafka() | {"enable.idempotence": True, "linger.ms": 1})
    kept_python = KafkaProducer(**secured.kafka_python())
    for turn in range(4):
        if turn:
            os.replace(secured.authority.issue(f"next-{turn}"), secured.key_store)
        for _ in range(50):
            kept.produce("t", b"x" * 1000)
            kept_python.send("t", b"x" * 1000)
        for client in (by_confluent, by_kafka_python, by_aiokafka):
            assert client(secured, f"{client.__name__}-{turn}") == [b"confluent" * 30_000]
        certificates.add(ssl.get_server_certificate(("127.0.0.1", secured.broker.port), timeout=PATIENCE_S))
    assert kept.flush(PATIENCE_S) == 0
    kept_python.close()
    assert len(certificates) == 4
    assert sum(header.record_count for header in secured.broker.stored("t")) == 4 * 100
    secured.broker.close()


def test_guide_works_as_written(tmp_path: Path) -> None:
    """`docs/guides/tls.md`, with free ports."""
    authority = Authority(tmp_path)
    authority.issue("server")
    (tmp_path / "tls.properties").write_text(
        re.sub(r":909[23]", ":0", (SNIPPETS / "clients/tls.properties").read_text())
    )
    command = [sys.executable, "-m", "ottla.tools", "serve", "--config", "tls.properties", "--data-dir", "data"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as broker:
        assert broker.stdout is not None
        _, secured = (broker.stdout.readline().split()[-1] for _ in range(2))
        code = (SNIPPETS / "clients" / "login_tls.py").read_text().replace("127.0.0.1:9093", secured)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
        by_kafkajs = in_node(SNIPPETS / "clients" / "login_tls.js", secured, tmp_path)
        broker.terminate()
    assert done.stdout == "unsent: 0\n", done.stderr
    assert by_kafkajs in (None, "sent\n")
