"""Kafka's own command line tools, all in one process, since each alone takes seconds to start (Tools.java)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ottla_testing.interop.checks import OUT, ROOT, Failed, jars, java

RELEASE = "4.3.1"
ARTIFACTS = [f"org.apache.kafka:{name}:{RELEASE}" for name in ("kafka-tools", "kafka_2.13")]
PACKAGE = "org.apache.kafka.tools"
# By the names of Kafka's scripts.
CLASSES = {
    "kafka-acls": f"{PACKAGE}.AclCommand",
    "kafka-broker-api-versions": f"{PACKAGE}.BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{PACKAGE}.ClientMetricsCommand",
    "kafka-cluster": f"{PACKAGE}.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-share-consumer": f"{PACKAGE}.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": f"{PACKAGE}.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{PACKAGE}.ConsumerPerformance",
    "kafka-delegation-tokens": f"{PACKAGE}.DelegationTokenCommand",
    "kafka-delete-records": f"{PACKAGE}.DeleteRecordsCommand",
    "kafka-features": f"{PACKAGE}.FeatureCommand",
    "kafka-get-offsets": f"{PACKAGE}.GetOffsetShell",
    "kafka-groups": f"{PACKAGE}.GroupsCommand",
    "kafka-leader-election": f"{PACKAGE}.LeaderElectionCommand",
    "kafka-log-dirs": f"{PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{PACKAGE}.MetadataQuorumCommand",
    "kafka-producer-perf-test": f"{PACKAGE}.ProducerPerformance",
    "kafka-reassign-partitions": f"{PACKAGE}.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": f"{PACKAGE}.consumer.group.ShareGroupCommand",
    "kafka-topics": f"{PACKAGE}.TopicCommand",
    "kafka-transactions": f"{PACKAGE}.TransactionsCommand",
    "kafka-verifiable-consumer": f"{PACKAGE}.VerifiableConsumer",
    "kafka-verifiable-producer": f"{PACKAGE}.VerifiableProducer",
}


class Printed(NamedTuple):
    """The output of a tool, and its exit code."""

    code: int
    out: str
    err: str


class ToolProcess:
    """Runs one tool at a time."""

    def __init__(self) -> None:
        folder = jars(f"kafka-tools-all-{RELEASE}", ARTIFACTS)
        program, *rest = java(folder, ROOT / "tests/interop/Tools.java")
        with (OUT / "tools.log").open("w") as log:
            command = [program, "-Xmx400m", *rest]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def run(self, tool: str, *arguments: str) -> Printed:
        """Runs a tool, by the name of Kafka's script, with these arguments. Raises Failed if the process dies."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(("\t".join([CLASSES[tool], *arguments]) + "\n").encode())
        self._process.stdin.flush()
        texts = []
        for _ in range(2):
            head = self._process.stdout.readline().split()
            if not head:
                raise Failed(f"{tool} {' '.join(arguments)}: the process of the tools ended")
            texts.append(self._process.stdout.read(int(head[1])).decode())
        code = int(self._process.stdout.readline().split()[1])
        return Printed(code, *texts)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


@contextmanager
def tools() -> Iterator[ToolProcess]:
    """Runs a process for the tools. Raises Missing."""
    process = ToolProcess()
    try:
        yield process
    finally:
        process.close()
