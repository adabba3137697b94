"""Clients that log in with SASL: each mechanism, right and wrong passwords, over a restart and the end of sessions."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaConsumer, KafkaProducer

from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.each import each
from ottla_testing.old_environment import in_node
from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import SNIPPETS

LISTENER, PROTOCOL = "SECURED", "SASL_PLAINTEXT"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = 'one, "two"; =3'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def configs() -> dict[str, str]:
    quoted = PASSWORD.replace('"', r"\"")
    jaas = f'{MODULE} required user_admin="secret" user_ann="{quoted}";'
    return {
        "listener_security_protocol_map": f"{LISTENER}:{PROTOCOL}",
        "sasl_enabled_mechanisms": ",".join(MECHANISMS),
        f"listener_name_{LISTENER.lower()}_plain_sasl_jaas_config": jaas,
    }


def librdkafka(broker: RunningBroker, mechanism: str, user: str = "ann", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def python(broker: RunningBroker, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": PROTOCOL,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ann",
        "sasl_plain_password": password,
    }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory.mktemp("secured"), listener=LISTENER, **configs())
    add_user(running)
    yield running
    running.close()


def add_user(broker: RunningBroker) -> None:
    """Stores the user `ann` for both SCRAM mechanisms, in two requests, as Kafka's controller requires."""
    admin = AdminClient(librdkafka(broker, "PLAIN", "admin", "secret"))
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion("ann", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])["ann"].result(PATIENCE_S)


def by_confluent(broker: RunningBroker, mechanism: str, topic: str) -> list[bytes]:
    settings = librdkafka(broker, mechanism)
    producer = Producer(settings)
    producer.produce(topic, b"confluent")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() or b"" for message in consumer.consume(1, PATIENCE_S)]
    consumer.close()
    return found


def by_kafka_python(broker: RunningBroker, mechanism: str, topic: str) -> list[bytes]:
    settings = python(broker, mechanism)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"kafka-python").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    found = [next(consumer).value]
    consumer.close()
    return found


def by_aiokafka(broker: RunningBroker, mechanism: str, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        settings = python(broker, mechanism)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"aiokafka")
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b""]

    return asyncio.run(main())


@each("mechanism", MECHANISMS)
@each("client", [by_confluent, by_kafka_python, by_aiokafka])
def test_client_logs_in_produces_and_consumes(client: Any, mechanism: str, secured: RunningBroker, name: str) -> None:
    topic = f"{name}-{mechanism}-{client.__name__}"
    (value,) = client(secured, mechanism, topic)
    assert client.__name__ == f"by_{value.decode().replace('-', '_')}"


def test_guide_works_as_written(tmp_path: Path) -> None:
    """`docs/guides/sasl.md`, with free ports."""
    file = tmp_path / "secured.properties"
    file.write_text(re.sub(r":909[23]", ":0", (SNIPPETS / "clients" / "sasl.properties").read_text()))
    command = [sys.executable, "-m", "ottla.tools"]
    serving = [*command, "serve", "--config", str(file), "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout is not None
        plain, secured = (broker.stdout.readline().split()[-1] for _ in range(2))
        adding = ["--entity-type", "users", "--entity-name", "joe", "--alter"]
        adding += ["--add-config", "SCRAM-SHA-256=[password=joe-secret]", "--bootstrap-server", plain]
        subprocess.run([*command, "configs", *adding], check=True)
        code = (SNIPPETS / "clients" / "login_sasl.py").read_text().replace("127.0.0.1:9093", secured)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        by_kafkajs = in_node(SNIPPETS / "clients" / "login_sasl.js", secured, tmp_path)
        listing = ["topics", "--list", "--bootstrap-server", secured]
        listing += ["--command-config", str(SNIPPETS / "clients" / "client.properties")]
        listed = subprocess.run([*command, *listing], capture_output=True, text=True)
        broker.terminate()
    assert listed.stdout == "hello\n", listed.stderr
    assert done.stdout.splitlines() == ["PLAIN unsent: 0", "SCRAM-SHA-256 unsent: 0"], done.stderr
    assert by_kafkajs in (None, "plain sent\nscram-sha-256 sent\n")


def test_sessions_are_renewed_while_records_are_sent(tmp_path: Path) -> None:
    """KIP-368."""
    broker = RunningBroker(tmp_path, listener=LISTENER, connections_max_reauth_ms="1200", **configs())
    errors: list[str] = []
    producer = Producer(librdkafka(broker, "PLAIN") | {"error_cb": lambda error: errors.append(str(error))})
    end, count = time.monotonic() + 2.6, 0
    while time.monotonic() < end:
        producer.produce("t", b"x")
        assert producer.flush(PATIENCE_S) == 0
        count += 1
        time.sleep(0.02)
    assert sum(header.record_count for header in broker.stored("t")) == count and not errors
    broker.close()


def test_admin_commands_log_in_by_their_config(secured: RunningBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    jaas = f'{MODULE} required username="admin" password="secret";'
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    command = [sys.executable, "-m", "ottla.tools", "configs", "--bootstrap-server", secured.address]
    command += ["--entity-type", "users", "--describe"]
    done = subprocess.run([*command, "--command-config", str(file)], capture_output=True, text=True)
    assert done.returncode == 0 and "ann" in done.stdout, done.stderr
    file.write_text(file.read_text().replace("secret", "guess"))
    done = subprocess.run([*command, "--command-config", str(file)], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "Invalid username or password" in done.stderr and "guess" not in done.stderr
