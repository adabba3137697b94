"""Checks of the image: its size, the times until it is healthy and until it stops, its scripts, its user, its data, its
environment."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import secrets
import socket
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from engine import BASE, Engine

from ottla_testing.interop.checks import Check, Failed

STARTS = 5
RECORDS = 100
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
OVER_BASE_MB, HEALTHY_S, STOP_S = 120, 2.0, 2.0


@dataclass
class Figures:
    """The measured values, beside the aims."""

    over_base_mb: float | None = None
    image_mb: float | None = None
    build_s: float | None = None
    healthy_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    compose_healthy_s: float | None = None

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns (name, value, aim) of each measured value."""
        found: list[tuple[str, str, str]] = []
        if self.over_base_mb is not None:
            found.append(("image over its base", f"{self.over_base_mb:.0f} MB", f"{OVER_BASE_MB} MB"))
        if self.healthy_s:
            result = f"{statistics.median(self.healthy_s):.2f} s, at most {max(self.healthy_s):.2f} s"
            found.append(("start to healthy", result, f"{HEALTHY_S:g} s"))
        if self.stop_s:
            result = f"{statistics.median(self.stop_s):.2f} s, at most {max(self.stop_s):.2f} s"
            found.append(("stop", result, f"{STOP_S:g} s"))
        if self.compose_healthy_s is not None:
            found.append(("compose up to all healthy", f"{self.compose_healthy_s:.1f} s", ""))
        return found

    def result(self) -> dict[str, Any]:
        """Returns the values as JSON-able dicts."""
        return {name: value for name, value in vars(self).items() if value not in (None, [])}


def free_port() -> int:
    """Returns a port of the host that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def free_ports(count: int) -> list[int]:
    """Returns consecutive free ports."""
    while True:
        first = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return list(range(first, first + count))


def exchange(bootstrap: str, topic: str = "exchanged") -> str:
    """Records to a broker and back in a group, by confluent-kafka. Raises Failed."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 15000})
    values = [str(number).encode() for number in range(RECORDS)]
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: failures.extend([error] if error else []))
    if producer.flush(20) or failures:
        raise Failed(f"not all was acknowledged by {bootstrap}: {failures[:3]}")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    for _ in range(100):
        found += [message.value() for message in consumer.consume(RECORDS, 0.2) if not message.error()]
        if len(found) >= RECORDS:
            break
    consumer.close()
    if sorted(map(bytes, filter(None, found))) != sorted(values):
        raise Failed(f"{len(found)} of {RECORDS} records came back from {bootstrap}")
    return f"{RECORDS} records there and back"


def published(engine: Engine, *flags: str, **environ: str) -> tuple[str, str]:
    """Starts a broker that the host reaches, and returns its container and HOST:PORT."""
    port = free_port()
    own = {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}", "KAFKA_LISTENERS": "PLAINTEXT://:9092"}
    name = engine.run(engine.image, environ={**own, **environ}, publish=[f"127.0.0.1:{port}:9092"], flags=flags)
    return name, f"localhost:{port}"


# Checks


def is_built(engine: Engine, figures: Figures) -> str:
    begun = time.monotonic()
    done = engine.build(engine.image)
    if done.returncode:
        raise Failed((done.stdout + done.stderr)[-3000:])
    figures.build_s = round(time.monotonic() - begun, 1)
    size, base = engine.size_bytes(engine.image), engine.size_bytes(BASE)
    figures.image_mb, figures.over_base_mb = round(size / 1e6, 1), round((size - base) / 1e6, 1)
    if figures.over_base_mb > OVER_BASE_MB:
        raise Failed(f"{figures.over_base_mb} MB over its base, more than {OVER_BASE_MB}")
    done = engine.call("run", "--name", engine.name(), "--entrypoint", "ottla", engine.image, "--version", check=False)
    version = done.stdout.strip()
    if not version.endswith("(compiled)"):
        raise Failed(f"the check of records is not compiled: {version or done.stderr}")
    return f"{figures.image_mb} MB, {figures.over_base_mb} MB over its base, {version}"


def starts_and_stops(engine: Engine, figures: Figures) -> str:
    """Measures from the command to the first successful health check, including the engine's own time."""
    for _ in range(STARTS):
        begun = time.monotonic()
        name = engine.run(engine.image)
        engine.await_healthy(name)
        figures.healthy_s.append(round(time.monotonic() - begun, 2))
        seconds, code = engine.stop(name)
        figures.stop_s.append(round(seconds, 2))
        if code:
            raise Failed(f"exit code {code} after a stop: {engine.log(name)[-1500:]}")
    if statistics.median(figures.stop_s) > STOP_S:
        raise Failed(f"stopped in {figures.stop_s} s, more than {STOP_S}")
    if statistics.median(figures.healthy_s) > HEALTHY_S:
        raise Failed(f"healthy after {statistics.median(figures.healthy_s)} s, more than {HEALTHY_S}")
    return f"{STARTS} times"


def stops_under_load(engine: Engine, figures: Figures) -> str:
    """Stops while a consumer waits for records and a producer is connected."""
    seconds = [_stopped_under_load(engine) for _ in range(3)]
    figures.stop_s += seconds
    if statistics.median(seconds) > STOP_S:
        raise Failed(f"stopped in {seconds} s, more than {STOP_S}")
    return f"in {', '.join(map(str, seconds))} s"


def _stopped_under_load(engine: Engine) -> float:
    name, at = published(engine)
    engine.await_healthy(name)
    exchange(at)
    quiet = {"log_level": 0, "logger": logging.getLogger("lost")}  # it looks for a broker that is gone
    consumer = Consumer({"bootstrap.servers": at, "group.id": "waits", "fetch.wait.max.ms": 10000, **quiet})
    consumer.subscribe(["exchanged"])
    parked = threading.Thread(target=consumer.poll, args=(1.0,))
    parked.start()
    seconds, code = engine.stop(name)
    parked.join()
    consumer.close()
    if code:
        raise Failed(f"exit code {code} after a stop: {engine.log(name)[-1500:]}")
    return round(seconds, 2)


def is_not_root(engine: Engine) -> str:
    name = engine.run(engine.image, environ={"CLUSTER_ID": CLUSTER})
    engine.await_healthy(name)
    user = engine.out("exec", name, "id", "-u")
    meta = engine.out("exec", name, "cat", "/var/lib/kafka/data/meta.properties")
    if user == "0" or f"cluster.id={CLUSTER}" not in meta:
        raise Failed(f"user {user}, {meta}")
    return f"user {user}; CLUSTER_ID is the cluster's"


def is_read_only(engine: Engine) -> str:
    name = engine.run(engine.image, flags=["--read-only", "--tmpfs", "/tmp"])
    engine.await_healthy(name)
    return "healthy on a root file system that is read only"


def keeps_data(engine: Engine) -> str:
    """Keeps records in a named volume from one container to the next."""
    volume = engine.name()
    engine.call("volume", "create", volume)
    try:
        flags = ("-v", f"{volume}:/var/lib/kafka/data")
        name, at = published(engine, *flags, CLUSTER_ID=CLUSTER)
        engine.await_healthy(name)
        exchange(at)
        engine.stop(name)
        engine.call("rm", name)
        name, at = published(engine, *flags, CLUSTER_ID="another")
        engine.await_healthy(name)
        topics = engine.out("exec", name, "kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--list")
        if "exchanged" not in topics.split() or "CLUSTER_ID ignored" not in engine.log(name):
            raise Failed(f"{topics}\n{engine.log(name)}")
        engine.call("restart", name)
        engine.await_healthy(name)
        engine.call("rm", "-f", name)
    finally:
        engine.call("volume", "rm", "-f", volume, check=False)
    return "a topic and the cluster id outlived their container"


def has_kafkas_scripts(engine: Engine) -> str:
    name = engine.run(engine.image)
    engine.await_healthy(name)
    tool = functools.partial(engine.out, "exec", name)
    topics = ("/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "localhost:9092")
    seen = [
        tool(*topics, "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "1"),
        tool(*topics, "--list"),
        tool(*topics, "--describe", "--topic", "orders").partition("\tTopicId")[0],
        tool(*topics, "--delete", "--topic", "orders"),
        tool("kafka-topics", *topics[1:], "--list"),
        tool("/opt/kafka/bin/kafka-broker-api-versions.sh", *topics[1:]).partition(" ->")[0],
    ]
    wanted = ["Created topic orders.", "orders", "Topic: orders", "", ""]
    if seen != [*wanted, "localhost:9092 (id: 1 rack: null isFenced: false)"]:
        raise Failed(repr(seen))
    return "topics made, listed, described and deleted; the broker's versions"


def takes_the_environment(engine: Engine) -> str:
    environ = {
        "KAFKA_NODE_ID": "5",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093,SECOND://:9094",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092,SECOND://second:9094",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "5@localhost:9093",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_HEAP_OPTS": "-Xmx512m",
        "KAFKA_OPTS": "-Dx=y",
        "KAFKA_NO_SUCH_CONFIG": "1",
        "OTTLA_RELEASE": "3.9",
    }
    name = engine.run(engine.image, environ=environ)
    engine.await_healthy(name)
    tool = functools.partial(engine.out, "exec", name)
    bootstrap = ("--bootstrap-server", "localhost:9094")
    tool("kafka-topics.sh", *bootstrap[:1], "localhost:9092", "--create", "--topic", "t")
    described = tool("kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--describe", "--topic", "t")
    log = engine.log(name)
    if "PartitionCount: 3" not in described or "Leader: 5" not in described:
        raise Failed(described)
    if log.count("unknown config") != 1 or "no.such.config" not in log or "profile=3.9" not in log:
        raise Failed(log)
    return "3.9, node 5, two listeners and a controller's; one warning for an unknown name"


def takes_a_file(engine: Engine) -> str:
    """Reads a mounted server.properties; the environment overrides it, and arguments override both."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "server.properties")
        file.write_text("num.partitions=7\ndefault.replication.factor=1\nmessage.max.bytes=1000\nlog.dirs=/tmp/logs\n")
        file.chmod(0o644)
        flags = ["-v", f"{folder}:/mnt/shared/config:ro"]
        command = ["/etc/kafka/docker/run", "KAFKA_MESSAGE_MAX_BYTES=3000"]
        name = engine.run(engine.image, *command, environ={"KAFKA_MESSAGE_MAX_BYTES": "2000"}, flags=flags)
        engine.await_healthy(name)
        topics = ["kafka-topics.sh", "--bootstrap-server", "localhost:9092"]
        engine.out("exec", name, *topics, "--create", "--topic", "t")
        result = engine.out("exec", name, *topics, "--describe", "--topic", "t").splitlines()[0]
        made = engine.out("exec", name, "ls", "/tmp/logs")
        engine.remove_all()
    if "PartitionCount: 7" not in result or "max.message.bytes=3000" not in result or "t-6" not in made.split():
        raise Failed(f"{result}\n{made}")
    return "the file, below the environment, below the arguments"


def has_a_control_plane(engine: Engine) -> str:
    """Runs three nodes that the host reaches, and calls their control plane, within the container and from outside."""
    ports = free_ports(4)
    environ = {
        "KAFKA_LISTENERS": f"PLAINTEXT://:{ports[0]}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{ports[0]}",
        "OTTLA_BROKERS": "3",
        "OTTLA_CONTROL": f"0.0.0.0:{ports[3]}",
        "OTTLA_CONTROL_TOKEN": secrets.token_hex(16),
    }
    name = engine.run(engine.image, environ=environ, publish=[f"127.0.0.1:{port}:{port}" for port in ports])
    engine.await_healthy(name)
    exchange(f"localhost:{ports[1]}")
    request = urllib.request.Request(f"http://127.0.0.1:{ports[3]}/v1/topology")
    try:
        urllib.request.urlopen(request, timeout=10).close()
        raise Failed("the control plane needs no token")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 401:
            raise Failed(f"status {error.code} without a token") from error
    request.add_header("Authorization", f"Bearer {environ['OTTLA_CONTROL_TOKEN']}")
    with urllib.request.urlopen(request, timeout=10) as response:
        result = json.load(response)
    nodes = [node["id"] for node in result["nodes"]]
    if nodes != [1, 2, 3] or "exchanged" not in {partition["topic"] for partition in result["partitions"]}:
        raise Failed(json.dumps(result))
    engine.out("exec", name, "ottla", "ctl", "state", "reset")
    topics = engine.out("exec", name, "kafka-topics.sh", "--bootstrap-server", f"localhost:{ports[0]}", "--list")
    if "exchanged" in topics:
        raise Failed(f"after a reset there are {topics}")
    return "nodes 1, 2 and 3, their topology over HTTP, a reset by ottla ctl"


def has_tls_and_logins(engine: Engine) -> str:
    """Runs a broker with TLS and logins, which is healthy, and connects from the host with the copied settings."""
    (port,) = free_ports(1)
    environ = {
        "KAFKA_LISTENERS": f"SECURED://:{port}",
        "KAFKA_ADVERTISED_LISTENERS": f"SECURED://localhost:{port}",
        "OTTLA_SECURITY": "sasl_ssl",
    }
    name = engine.run(engine.image, environ=environ, publish=[f"127.0.0.1:{port}:{port}"])
    engine.await_healthy(name)
    text = engine.out("exec", name, "cat", "/var/lib/kafka/data/client.properties")
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    login = dict(re.findall(r'(\w+)="([^"]*)"', found["sasl.jaas.config"]))
    producer = Producer(
        {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": found["security.protocol"],
            "ssl.ca.pem": found["ssl.truststore.certificates"].replace("\\n", "\n"),
            "sasl.mechanism": found["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
        }
    )
    producer.produce("secured", b"bread")
    if left := producer.flush(20):
        raise Failed(f"{left} records were not sent")
    command = ["--bootstrap-server", f"localhost:{port}", "--command-config", "/var/lib/kafka/data/client.properties"]
    listed = engine.out("exec", name, "ottla", "topics", "--list", *command)
    if "secured" not in listed:
        raise Failed(listed)
    return "healthy, a record by a client of the host, topics by a client of the container"


def refuses_in_one_line(engine: Engine) -> str:
    name = engine.name()
    done = engine.call("run", "--name", name, "-e", "KAFKA_LISTENERS=SSL://:9092", engine.image, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ottla")]
    if done.returncode != 2 or len(lines) != 1 or "ssl.keystore.location" not in lines[0]:
        raise Failed(f"exit code {done.returncode}: {done.stderr}")
    return lines[0]


def checks(engine: Engine, figures: Figures) -> list[Check]:
    """Returns the checks of this module; the first builds the image."""
    return [
        Check("image: built", lambda: is_built(engine, figures)),
        Check("image: healthy and stopped", lambda: starts_and_stops(engine, figures)),
        Check("image: stopped under load", lambda: stops_under_load(engine, figures)),
        Check("image: user and cluster id", lambda: is_not_root(engine)),
        Check("image: read-only root", lambda: is_read_only(engine)),
        Check("image: data in a volume", lambda: keeps_data(engine)),
        Check("image: Kafka's scripts", lambda: has_kafkas_scripts(engine)),
        Check("image: Kafka's environment", lambda: takes_the_environment(engine)),
        Check("image: a mounted server.properties", lambda: takes_a_file(engine)),
        Check("image: several nodes and a control plane", lambda: has_a_control_plane(engine)),
        Check("image: TLS and logins", lambda: has_tls_and_logins(engine)),
        Check("image: what it does not serve", lambda: refuses_in_one_line(engine)),
    ]
