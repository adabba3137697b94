"""Testcontainers: the Kafka modules of four languages on our image, the modules themselves if they are available, else
by hand.

By hand means: the environment and the command with which a module starts the container, the script that it copies into
it, and the line of the log that it waits for, copied here from their sources of 2026.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from engine import Engine
from environment import compose_node, compose_python
from image_checks import CLUSTER, exchange

from ottla_testing.interop.checks import OUT, Check, Failed, Missing, jars, java, program
from ottla_testing.snippets import SNIPPETS

HERE = Path(__file__).parent
AS_CONFLUENT = "ottla-test:7.9.0"  # the modules for its images look at the tag: 8 has no ZooKeeper any more
GO_NETWORK = "reaper_default"
JAVA, CLIENTS = "2.0.2", "org.apache.kafka:kafka-clients:4.3.1"
TIMEOUT_S = 300
RUNNING = r".*Transitioning from RECOVERY to RUNNING.*"
STARTED = r".*\[KafkaServer id=\d+\] started.*"

SMALL = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
KRAFT = {
    "CLUSTER_ID": CLUSTER,
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
ZOOKEEPER = {
    "KAFKA_BROKER_ID": "1",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
}
FORMAT = (
    "sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n"
    "echo 'kafka-storage format --ignore-formatted -t \"{id}\" -c /etc/kafka/kafka.properties'"
    " >> /etc/confluent/docker/configure\n"
)
START_ZOOKEEPER = (
    "echo 'clientPort=2181' > zookeeper.properties\n"
    "echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties\n"
    "zookeeper-server-start zookeeper.properties &\n"
)
ENSURE = "echo '' > /etc/confluent/docker/ensure\n"


class ByHand(NamedTuple):
    """A module: `script` has {at} for the advertised listeners; `port` is published, `broker` the listener within."""

    name: str
    environ: dict[str, str]
    path: str
    script: str
    pattern: str
    port: int = 9093
    broker: int = 9092
    shell: str = ""  # before the path, to run the script
    entrypoint: bool = True  # whether `sh` stands there, or in the command
    from_within: bool = False  # the script is not copied, a command in the container writes it


MODULES = [
    ByHand(
        "Java, org.testcontainers.kafka.KafkaContainer",
        {
            **SMALL,
            **KRAFT,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
        },
        "/tmp/testcontainers_start.sh",
        "export KAFKA_ADVERTISED_LISTENERS={at}\n/etc/kafka/docker/run \n",
        RUNNING,
        port=9092,
        broker=9093,
        entrypoint=False,
    ),
    ByHand(
        "Java, org.testcontainers.kafka.ConfluentKafkaContainer",
        {
            **SMALL,
            **KRAFT,
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
        },
        "/tmp/testcontainers_start.sh",
        "export KAFKA_ADVERTISED_LISTENERS={at}\n/etc/confluent/docker/run \n",
        RUNNING,
        port=9092,
        broker=9093,
        entrypoint=False,
    ),
    ByHand(
        "Java, org.testcontainers.containers.KafkaContainer",
        {**SMALL, **ZOOKEEPER, "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092"},
        "/tmp/testcontainers_start.sh",
        f"export KAFKA_ADVERTISED_LISTENERS={{at}}\n{ENSURE}{START_ZOOKEEPER}/etc/confluent/docker/run \n",
        STARTED,
    ),
    ByHand(
        "Java, org.testcontainers.containers.KafkaContainer with KRaft",
        {
            **SMALL,
            **KRAFT,
            "KAFKA_LISTENERS": "CONTROLLER://0.0.0.0:9094,PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
        },
        "/tmp/testcontainers_start.sh",
        f"export KAFKA_ADVERTISED_LISTENERS={{at}}\n{FORMAT.format(id=CLUSTER)}/etc/confluent/docker/run \n",
        RUNNING,
    ),
    ByHand(
        "Go, modules/kafka",
        {
            **SMALL,
            **{name: value for name, value in KRAFT.items() if name != "CLUSTER_ID"},
            "KAFKA_BROKER_ID": "1",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
            "KAFKA_REST_BOOTSTRAP_SERVERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        },
        "/usr/sbin/testcontainers_start.sh",
        "source /etc/confluent/docker/bash-config\nexport KAFKA_ADVERTISED_LISTENERS={at}\n"
        f"echo Starting Kafka KRaft mode\n{FORMAT.format(id='$(kafka-storage random-uuid)')}{ENSURE}"
        "/etc/confluent/docker/configure\n/etc/confluent/docker/launch",
        RUNNING,
        shell="bash ",
    ),
    ByHand(
        "Node.js, @testcontainers/kafka",
        {
            **SMALL,
            **KRAFT,
            "KAFKA_BROKER_ID": "1",
            "KAFKA_ADVERTISED_LISTENERS": "BROKER://localhost:9092",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
        },
        "/tmp/testcontainers_start.sh",
        "export KAFKA_ADVERTISED_LISTENERS={at}\n/etc/confluent/docker/run \n",
        RUNNING,
    ),
    ByHand(
        ".NET, Testcontainers.Kafka",
        {
            **SMALL,
            **KRAFT,
            "KAFKA_BROKER_ID": "1",
            "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
        },
        "/testcontainers.sh",
        "export KAFKA_ADVERTISED_LISTENERS={at},\nexec /etc/kafka/docker/run\n",
        RUNNING,
        port=9092,
        broker=9093,
    ),
    ByHand(
        "Rust, kafka::apache",
        {
            "CLUSTER_ID": CLUSTER,
            **{name: value for name, value in KRAFT.items() if name != "KAFKA_NODE_ID"},
            "KAFKA_BROKER_ID": "1",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
            "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092,BROKER://localhost:9092",
        },
        "/opt/kafka/testcontainers_start.sh",
        "export KAFKA_ADVERTISED_LISTENERS={at}\n/etc/kafka/docker/run \n",
        r".*Kafka Server started.*",
        port=9092,
        broker=9093,
        shell="chmod 755 /opt/kafka/testcontainers_start.sh && ",
        from_within=True,
    ),
]


def by_hand(engine: Engine, module: ByHand) -> str:
    loop = f"while [ ! -f {module.path} ]; do sleep 0.1; done; {module.shell}{module.path}"
    command = ("-c", loop) if module.entrypoint else ("sh", "-c", loop)
    flags = ("--entrypoint", "sh") if module.entrypoint else ()
    publish = [f"127.0.0.1::{module.port}"]
    name = engine.run(engine.image, *command, environ=module.environ, publish=publish, flags=flags)
    at = f"localhost:{engine.port(name, module.port)}"
    advertised = f"PLAINTEXT://{at},BROKER://{engine.inspect(name, '.Config.Hostname')}:{module.broker}"
    script = "#!/bin/bash\n" + module.script.format(at=advertised)
    if module.from_within:
        engine.call("exec", name, "sh", "-c", f"echo '{script}' > {module.path}")
    else:
        engine.copy_into(name, script, module.path)
    engine.await_log(name, module.pattern)
    return exchange(at)


@contextmanager
def tagged(engine: Engine) -> Iterator[str]:
    """Yields the image by a name with the tag of one of Confluent's."""
    name = engine.local(AS_CONFLUENT)
    engine.call("tag", engine.image, name)
    try:
        yield name
    finally:
        engine.call("rmi", name, check=False)


def output(engine: Engine, command: list[str], folder: Path | None = None) -> str:
    """Returns the last line of what a module's program printed. Raises Failed."""
    with engine.api() as environ:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environ, cwd=folder)
    if done.returncode or not done.stdout.strip():
        raise Failed((done.stdout + done.stderr)[-3000:])
    return done.stdout.strip().splitlines()[-1]


def in_python(engine: Engine) -> str:
    """Runs testcontainers-python's own class, in an environment of its own."""
    problem, python = compose_python()
    if problem:
        raise Missing(problem)
    with tagged(engine) as image:
        result = json.loads(output(engine, [str(python), str(HERE / "python_module.py"), image]))
    return f"testcontainers {result['version']}: " + ", ".join(
        f"{name} in {s:.1f} s" for name, s in result["ran"].items()
    )


def in_java(engine: Engine) -> str:
    """Runs testcontainers-java's own class, with Kafka's own client."""
    folder = jars("testcontainers-java", [f"org.testcontainers:testcontainers-kafka:{JAVA}", CLIENTS])
    return f"{JAVA}: " + output(engine, java(folder, HERE / "JavaModule.java", engine.image))


def java_tutorial(engine: Engine) -> str:
    """Runs the Maven project of the tutorial for other languages, as its reader has it."""
    folder = OUT / "tutorial-java"
    shutil.copytree(SNIPPETS / "tutorials" / "other-languages" / "java", folder, dirs_exist_ok=True)
    with engine.api() as environ:
        environ = {**environ, "OTTLA_IMAGE": engine.image}
        command = [program("mvn"), "-B", "test"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environ, cwd=folder)
    if done.returncode or "Tests run: 1, Failures: 0" not in done.stdout:
        raise Failed((done.stdout + done.stderr)[-3000:])
    return "mvn test: 1 test passed"


def in_go(engine: Engine) -> str:
    """Runs testcontainers-go's own module, with franz-go."""
    go, folder = program("go"), OUT / "testcontainers-go"
    shutil.copytree(HERE / "go", folder, dirs_exist_ok=True)
    built = subprocess.run([go, "build", "-o", "run", "."], cwd=folder, capture_output=True, text=True)
    if built.returncode:
        raise Missing(f"testcontainers-go: {built.stderr.strip()[-300:]}")
    networks = engine.out("network", "ls", "--format", "{{.Name}}").split()
    try:
        return output(engine, [str(folder / "run"), engine.image])
    finally:
        if GO_NETWORK not in networks:  # it makes one of this name, and leaves it
            engine.call("network", "rm", GO_NETWORK, check=False)


def in_node(engine: Engine) -> str:
    """Runs @testcontainers/kafka's own class, with kafkajs."""
    problem, folder = compose_node()
    if problem:
        raise Missing(problem)
    script = shutil.copy(HERE / "node_module.mjs", folder)
    with tagged(engine) as image:
        return output(engine, [program("node"), str(script), image], folder)


def checks(engine: Engine) -> list[Check]:
    """Returns the checks of this module, after the image is built."""
    found = [Check(f"Testcontainers by hand: {m.name}", lambda m=m: by_hand(engine, m)) for m in MODULES]
    found.append(Check("tutorial for Java", lambda: java_tutorial(engine)))
    for language, check in {"Python": in_python, "Java": in_java, "Go": in_go, "Node.js": in_node}.items():
        found.append(Check(f"Testcontainers for {language} itself", lambda check=check: check(engine)))
    return found
