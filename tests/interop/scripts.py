"""kafka-topics and kafka-broker-api-versions of the image beside Kafka's own, against one broker: the same words."""

from __future__ import annotations

import subprocess
import sys

from ottla_testing.interop.checks import Check, Failed, broker, jars, program

RELEASE = "4.4.0"  # whose layout ours is
TOPICS = ("org.apache.kafka.tools.TopicCommand", "ottla.tools.kafka.kafka_topics")
VERSIONS = ("org.apache.kafka.tools.BrokerApiVersionsCommand", "ottla.tools.kafka.broker_api_versions")
# Ours makes the first two; both then see the same.
MADE = [
    ["--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=1000", "--config", "segment.ms=5"],
    ["--create", "--topic", "order.lines"],
]
REQUESTED = [
    ["--list"],
    ["--list", "--topic", "ord.*s"],
    ["--list", "--topic", "("],
    ["--describe"],
    ["--describe", "--topic", "orders"],
    ["--describe", "--topics-with-overrides"],
    ["--describe", "--under-replicated-partitions"],
    ["--describe", "--unavailable-partitions"],
    ["--describe", "--topic", "nope"],
    ["--describe", "--topic", "nope", "--if-exists"],
    ["--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ"],
    ["--create", "--topic", "orders"],
    ["--create", "--topic", "orders", "--if-not-exists"],
    ["--create", "--topic", "bad name"],
    ["--create", "--topic", "x", "--partitions", "0"],
    ["--create", "--topic", "x", "--replication-factor", "3"],
    ["--create", "--topic", "x", "--replication-factor", "0"],
    ["--create", "--topic", "x", "--replica-assignment", "1:1"],
    ["--create", "--topic", "x", "--config", "no.such=1"],
    ["--create", "--topic", "x", "--config", "none"],
    ["--alter", "--topic", "orders", "--partitions", "2"],
    ["--alter", "--topic", "nope", "--partitions", "2"],
    ["--delete", "--topic", "nope"],
    ["--delete", "--topic", "nope", "--if-exists"],
    [],
    ["--list", "--describe"],
    ["--bogus"],
]


def run(command: list[str], *arguments: str) -> tuple[int, list[str]]:
    """Runs a script: (exit code, lines of stdout). Descriptions of several topics, which Kafka's tool takes out of a
    hash table, are sorted by name."""
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120)
    lines = done.stdout.split("\n")
    return done.returncode, lines if "--describe" not in arguments or "--topic" in arguments else sorted(lines)


def same_words() -> str:
    classes = jars(f"kafka-tools-{RELEASE}", [f"org.apache.kafka:kafka-tools:{RELEASE}"])
    with broker() as address:
        server = ["--bootstrap-server", address]
        theirs, ours = ([program("java"), "-cp", f"{classes}/*"], [sys.executable, "-m"])
        for arguments in MADE:
            run([*ours, TOPICS[1]], *server, *arguments)
        requested = [(TOPICS, arguments) for arguments in REQUESTED] + [(VERSIONS, [])]
        for (name, module), arguments in requested:
            expected, found = run([*theirs, name], *server, *arguments), run([*ours, module], *server, *arguments)
            if expected != found:
                raise Failed(f"{arguments or name}: Kafka's {expected}, ours {found}")
    return f"{len(requested)} commands, the same exit codes and the same words"


CHECKS = [Check(f"kafka-topics and kafka-broker-api-versions {RELEASE}", same_words)]
