"""The speed of TLS: produce and consume at 1 KiB with confluent-kafka, on a broker of ours and on Apache Kafka in turn.

The figures are of one run on this machine; they pass or fail nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from apache_kafka import Kafka, free_port
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.interop.checks import OUT, Check, Failed

RELEASE = "4.3"
MESSAGES, VALUE = 60_000, bytes(1024)
ROUNDS = 5
PATIENCE_SECONDS = 60


@contextmanager
def ours(authority: Authority) -> Iterator[dict[str, str]]:
    """Runs `ottla serve`; yields the address of each protocol."""
    configs = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("ours"))}
    command = [sys.executable, "-m", "ottla.tools", "serve", "--release", RELEASE]
    for name in ("PLAINTEXT", "SSL"):
        command += ["--listen", f"{name}=127.0.0.1:0"]
    for name, text in {**configs, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL"}.items():
        command += ["--override", f"{name}={text}"]
    with tempfile.TemporaryDirectory() as data, (OUT / "tls-speed.log").open("w") as log:
        command += ["--data-dir", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            addresses = [process.stdout.readline().split()[-1] for _ in range(2)]
            try:
                yield dict(zip(("PLAINTEXT", "SSL"), addresses, strict=True))
            finally:
                process.terminate()


@contextmanager
def kafkas(authority: Authority) -> Iterator[dict[str, str]]:
    """Runs Apache Kafka; yields the address of each protocol."""
    port = free_port()
    store: dict[str, Any] = {
        "more.listeners": f"SSL://127.0.0.1:{port}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.issue_pkcs12("kafkas")),
        "ssl.keystore.password": STORE_PASSWORD,
    }
    kafka = Kafka(RELEASE, **store)
    try:
        yield {"PLAINTEXT": kafka.address, "SSL": f"127.0.0.1:{port}"}
    finally:
        kafka.stop()


def settings(protocol: str, address: str, authority: Authority) -> dict[str, str]:
    return {"bootstrap.servers": address, "security.protocol": protocol, "ssl.ca.location": str(authority.trusted)}


def produce_mb_s(client: dict[str, str], topic: str) -> float:
    """Returns the rate in MB/s."""
    producer = Producer(client | {"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": MESSAGES})
    producer.list_topics(topic, timeout=PATIENCE_SECONDS)
    begun = time.perf_counter()
    for _ in range(MESSAGES):
        producer.produce(topic, VALUE)
    if producer.flush(PATIENCE_SECONDS):
        raise Failed("records were left")
    return MESSAGES * len(VALUE) / 1e6 / (time.perf_counter() - begun)


def consume_mb_s(client: dict[str, str], topic: str) -> float:
    """Returns the rate in MB/s."""
    consumer = Consumer(client | {"group.id": "g", "enable.auto.commit": False, "fetch.message.max.bytes": 4 << 20})
    consumer.assign([TopicPartition(topic, 0, 0)])
    begun = time.perf_counter()
    count = 0
    while count < MESSAGES:
        found = consumer.consume(min(10_000, MESSAGES - count), PATIENCE_SECONDS)
        if not found:
            raise Failed(f"{count} of {MESSAGES} records came")
        count += len(found)
    taken = time.perf_counter() - begun
    consumer.close()
    return MESSAGES * len(VALUE) / 1e6 / taken


def run() -> str:
    """Returns a line with the medians."""
    rates: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as brokers:
        authority = Authority(Path(folder))
        addresses = {"ours": brokers.enter_context(ours(authority)), "Kafka": brokers.enter_context(kafkas(authority))}
        for number in range(ROUNDS + 1):
            for broker, of_protocol in addresses.items():
                for protocol, address in of_protocol.items():
                    client = settings(protocol, address, authority)
                    topic = f"{protocol}-{number}"
                    for what, rate in (
                        ("produce", produce_mb_s(client, topic)),
                        ("consume", consume_mb_s(client, topic)),
                    ):
                        if number:  # the first round warms up
                            rates.setdefault((what, protocol, broker), []).append(rate)
    median = {key: statistics.median(found) for key, found in rates.items()}
    parts = []
    for what in ("produce", "consume"):
        for protocol in ("SSL", "PLAINTEXT"):
            one, other = median[what, protocol, "ours"], median[what, protocol, "Kafka"]
            parts.append(f"{what} {protocol} {one:.0f} MB/s, Kafka {other:.0f} ({one / other:.2f} x)")
    return "; ".join(parts)


CHECKS = [Check("TLS at 1 KiB beside Apache Kafka 4.3.1", run)]
