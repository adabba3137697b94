"""Kafka's own command line tools against a broker of ours and against Apache Kafka of the same release: the same
commands in the same order, the same exit codes and the same words.

Lines are compared as sets, since tools take much out of hash tables; values of one broker alone (addresses, folders,
ids, times) are replaced. Kafka's broker applies changes of its controller a moment later, so a command that only
reads is repeated if its output differs.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from side_by_side import Pair, Side, both
from tool_process import Printed, ToolProcess, tools

from ottla_testing.interop.checks import Check, Failed

RELEASES = ("3.9", "4.3")
PATIENCE_SECONDS = 10

# What stands for what differs between two brokers, in what tools print.
ALIKE: Sequence[tuple[str, str]] = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"localhost:\d+", "ADDRESS"),
    (r"(TopicId|topicId|topic id|topic_id)(: ?)[\w-]{22}", r"\1\2ID"),
    (r"[Cc]luster ?[Ii][dD]: +[\w-]{22}", "CLUSTER ID"),
    (r"consumer-[\w.-]+-[0-9a-f-]{36}", "MEMBER"),
    (r"[\w.-]*-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "MEMBER"),
    (r"(\"size\": ?)[1-9]\d*", r"\1 1"),
    (r"Epoch: \d+", "Epoch"),
    (r"\"timestamp\":\d+", '"timestamp":T'),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[:,.]\d+", "TIME"),
    (r"directoryId=[\w-]{22}|[\w-]{22}(?=\tLeader|\tObserver)", "DIRECTORY"),
    (r"ADDRESS \(id: \d+ rack: null( isFenced: \w+)?\)", "NODE"),
    (r"\[\d{4}-[^\]]*\] ", ""),
)


IGNORED = {  # lines with durations
    "kafka-verifiable-producer": r"avg_throughput|shutdown_complete|startup_complete|producer_send_success",
    "kafka-verifiable-consumer": r"_complete|partitions_(assigned|revoked)|records_consumed|offsets_committed",
    "kafka-producer-perf-test": r"records/sec|producer_send_success",  # the tool before it still prints
    "kafka-consumer-perf-test": r"^TIME|start\.time|Exiting before|WARNING",
}
# A command a line. One after a question mark only reads, and may be repeated. {NAME} is a file of FILES, and of
# kafka-configs KIND=NAME an entity, KIND= that for all.
TOPICS = """
  kafka-topics --create --topic orders --partitions 3 --config retention.ms=1000000
  kafka-topics --create --topic orders
  kafka-topics --create --topic bad/name
  kafka-topics --create --topic x --replication-factor 2
  kafka-topics --create --topic x --config no.such=1
  kafka-topics --create --topic x --config retention.ms=soon
  kafka-topics --create --topic lines --replica-assignment 1
  kafka-topics --alter --topic orders --partitions 4
  kafka-topics --alter --topic orders --partitions 2
? kafka-topics --list
? kafka-topics --describe --topic orders
? kafka-topics --describe --under-min-isr-partitions
? kafka-topics --describe --topic absent
  kafka-topics --delete --topic absent
  kafka-topics --create --topic brief
  kafka-topics --delete --topic brief
"""
CONFIGS = """
  kafka-configs topics=orders --alter --add-config retention.ms=5000,segment.ms=600000
? kafka-configs topics=orders --describe
? kafka-configs topics=orders --describe --all
  kafka-configs topics=orders --alter --delete-config segment.ms
  kafka-configs topics=orders --alter --add-config 'cleanup.policy=[compact,delete]'
  kafka-configs topics=orders --alter --delete-config cleanup.policy
  kafka-configs topics=orders --alter --add-config cleanup.policy=some
  kafka-configs topics=orders --alter --add-config no.such=1
  kafka-configs topics=orders --alter --delete-config no.such
  kafka-configs topics=absent --alter --add-config retention.ms=5000
? kafka-configs topics=absent --describe
? kafka-configs topics=orders --describe
  kafka-configs brokers=1 --alter --add-config log.cleaner.threads=2
  kafka-configs brokers= --alter --add-config message.max.bytes=2000000
? kafka-configs brokers=1 --describe
? kafka-configs brokers= --describe
  kafka-configs brokers=1 --alter --add-config num.partitions=3
  kafka-configs brokers=1 --alter --add-config node.id=3
  kafka-configs brokers= --alter --delete-config message.max.bytes
  kafka-configs brokers=1 --alter --delete-config log.cleaner.threads
  kafka-configs groups=g --alter --add-config consumer.session.timeout.ms=50000
  kafka-configs groups=g --alter --add-config consumer.session.timeout.ms=5
? kafka-configs groups=g --describe
  kafka-configs client-metrics=m --alter --add-config interval.ms=1000
? kafka-configs client-metrics=m --describe
"""
QUOTAS = """
  kafka-configs --alter --add-config producer_byte_rate=1024,consumer_byte_rate=2048 users=alice clients=app
  kafka-configs --alter --add-config request_percentage=50 users=
  kafka-configs --alter --add-config controller_mutation_rate=5.5 clients=
  kafka-configs --alter --add-config connection_creation_rate=7 ips=127.0.0.9
  kafka-configs --alter --add-config producer_byte_rate=x users=alice
  kafka-configs --alter --add-config producer_byte_rate=-1 users=alice
  kafka-configs --alter --add-config no_rate=1 users=alice
  kafka-configs --alter --add-config connection_creation_rate=7 ips='no such host'
? kafka-configs --describe users=alice clients=app
? kafka-configs --describe --entity-type users
? kafka-configs --describe --entity-type clients
? kafka-configs --describe --entity-type ips
  kafka-configs --alter --delete-config producer_byte_rate users=alice clients=app
? kafka-configs --describe users=alice clients=app
  kafka-configs --alter --add-config 'SCRAM-SHA-256=[iterations=8192,password=p]' users=bob
  kafka-configs --alter --add-config 'SCRAM-SHA-256=[iterations=10,password=p]' users=bob
  kafka-configs --alter --delete-config SCRAM-SHA-512 users=bob
? kafka-configs --describe users=bob
  kafka-configs --alter --delete-config request_percentage users=
  kafka-configs --alter --delete-config controller_mutation_rate clients=
"""
ACLS = """
  kafka-acls --add --allow-principal User:alice --operation Read --topic orders
  kafka-acls --add --allow-principal User:bob --producer --topic lines --transactional-id t
  kafka-acls --add --allow-principal User:bob --consumer --topic lines --group g
  kafka-acls --add --deny-principal User:eve --deny-host ::1 --operation All --topic o --resource-pattern-type prefixed
  kafka-acls --add --allow-principal unnamed --operation Read --topic orders
  kafka-acls --add --allow-principal User:a --operation Read --cluster
? kafka-acls --list
? kafka-acls --list --topic orders
? kafka-acls --list --topic orders --resource-pattern-type match
? kafka-acls --list --principal User:bob
  kafka-acls --remove --force --topic lines --allow-principal User:bob --operation Read
  kafka-acls --remove --force --group g
? kafka-acls --list
"""
RECORDS = """
  kafka-topics --create --topic counts
  kafka-verifiable-producer --topic counts --max-messages 40 --acks -1 --value-prefix 1
  kafka-producer-perf-test --topic lines --num-records 500 --record-size 100 --throughput -1 --producer-props acks=all
? kafka-get-offsets --topic lines
? kafka-get-offsets --topic-partitions orders:0-2,lines:0 --time earliest
? kafka-get-offsets --topic absent
? kafka-get-offsets --topic lines --time 99999999999999
  kafka-delete-records --offset-json-file {delete.json}
? kafka-get-offsets --topic lines --time -2
? kafka-log-dirs --describe --topic-list lines
? kafka-log-dirs --describe --broker-list 1,7
  kafka-verifiable-consumer --topic lines --group-id counted --max-messages 400 --reset-policy earliest
  kafka-consumer-perf-test --topic lines --num-records 200 --group perf
"""
GROUPS = """
? kafka-consumer-groups --list
? kafka-consumer-groups --list --state
? kafka-groups --list
? kafka-consumer-groups --describe --group counted
? kafka-consumer-groups --describe --group counted --state
? kafka-consumer-groups --describe --group counted --members
? kafka-consumer-groups --describe --group absent
  kafka-consumer-groups --reset-offsets --group counted --topic lines --to-offset 300 --dry-run
  kafka-consumer-groups --reset-offsets --group counted --topic lines:0 --shift-by -7 --execute
  kafka-consumer-groups --reset-offsets --group fresh --all-topics --to-earliest --execute
  kafka-consumer-groups --reset-offsets --group fresh --topic orders --to-latest --execute
  kafka-consumer-groups --reset-offsets --group fresh --topic absent --to-latest --execute
? kafka-consumer-groups --describe --all-groups
  kafka-consumer-groups --delete-offsets --group counted --topic lines
  kafka-consumer-groups --delete-offsets --group absent --topic lines
  kafka-consumer-groups --delete --group fresh --group absent
? kafka-consumer-groups --list
"""
CLUSTER = """
  kafka-leader-election --election-type preferred --all-topic-partitions
  kafka-leader-election --election-type preferred --topic orders --partition 0
  kafka-leader-election --election-type unclean --topic absent --partition 0
? kafka-reassign-partitions --list
  kafka-reassign-partitions --execute --reassignment-json-file {move.json}
? kafka-reassign-partitions --verify --reassignment-json-file {move.json}
  kafka-reassign-partitions --execute --reassignment-json-file {away.json}
? kafka-features describe
  kafka-features upgrade --feature no.such=1
? kafka-transactions list
? kafka-transactions describe-producers --topic orders --partition 0
? kafka-transactions describe --transactional-id absent
  kafka-transactions abort --topic orders --partition 0 --start-offset 0
  kafka-transactions abort --topic orders --partition 0 --producer-id 77 --producer-epoch 0 --coordinator-epoch 0
? kafka-client-metrics --list
  kafka-client-metrics --alter --name n --interval 5000 --metrics org.apache.kafka.
? kafka-client-metrics --describe --name n
  kafka-client-metrics --delete --name n
? kafka-cluster cluster-id
  kafka-delegation-tokens --create --max-life-time-period -1 --command-config {client.properties}
  kafka-delegation-tokens --describe --command-config {client.properties}
"""
SCRIPTS = {"topics": TOPICS, "configs": CONFIGS, "quotas": QUOTAS, "acls": ACLS}
SCRIPTS |= {"records": RECORDS, "groups": GROUPS, "cluster": CLUSTER}


def moved(to: int) -> str:
    partitions = [{"topic": "orders", "partition": 0, "replicas": [to], "log_dirs": ["any"]}]
    return json.dumps({"version": 1, "partitions": partitions})


FILES = {
    "delete.json": json.dumps({"version": 1, "partitions": [{"topic": "lines", "partition": 0, "offset": 100}]}),
    "move.json": moved(1),
    "away.json": moved(5),
    "client.properties": "client.id=tools\n",
}


class Step(NamedTuple):
    """One command of a script."""

    tool: str
    arguments: list[str]
    only_looks: bool

    @classmethod
    def read(cls, line: str, folder: Path) -> Step:
        tool, *words = shlex.split(line.removeprefix("?"))
        arguments = []
        for word in words:
            entity = re.fullmatch(r"(topics|brokers|groups|client-metrics|users|clients|ips)=(.*)", word)
            if entity and tool == "kafka-configs":
                name = ["--entity-name", entity[2]] if entity[2] else ["--entity-default"]
                arguments += ["--entity-type", entity[1], *name]
            else:
                arguments.append(str(folder / word.strip("{}")) if word[0] == "{" else word)
        return cls(tool, arguments, line.startswith("?"))


def alike(result: Printed, side: Side, step: Step) -> tuple[int, list[str], list[str]]:
    """Returns the comparable result: the exit code, and the lines of both streams without values of one broker
    alone."""

    def lines(text: str) -> list[str]:
        text = text.replace(str(side.folder), "FOLDER")
        for pattern, stands in ALIKE:
            text = re.sub(pattern, stands, text)
        kept = [line.rstrip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        ignored = IGNORED.get(step.tool, "(?!)")
        return sorted(in_order(re.sub(r"[ \t]+", " ", line)) for line in kept if not re.search(ignored, line))

    return result.code, lines(result.out), lines(result.err)


def in_order(line: str) -> str:
    """Returns a line of JSON, or one with elements of a set, in a fixed order."""
    try:
        return json.dumps(_sorted(json.loads(line)), sort_keys=True)
    except ValueError:
        return re.sub(r"\{([^{}]*)\}", lambda match: "{" + ", ".join(sorted(match[1].split(", "))) + "}", line)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    return sorted((_sorted(inner) for inner in value), key=json.dumps) if isinstance(value, list) else value


def run(step: Step, side: Side, process: ToolProcess) -> tuple[int, list[str], list[str]]:
    server = ["--bootstrap-server", side.address]
    of_command = step.tool == "kafka-cluster"
    arguments = [*step.arguments, *server] if of_command else [*server, *step.arguments]
    return alike(process.run(step.tool, *arguments), side, step)


def compared(pair: Pair, process: ToolProcess, script: str) -> list[str]:
    """Runs the commands on both sides; returns the differences, one text each."""
    differences = []
    with tempfile.TemporaryDirectory() as name:
        for file, text in FILES.items():
            (Path(name) / file).write_text(text)
        for line in script.strip("\n").splitlines():
            step = Step.read(line, Path(name))
            theirs, ours = run(step, pair.theirs, process), run(step, pair.ours, process)
            end = time.monotonic() + PATIENCE_SECONDS
            while step.only_looks and theirs != ours and time.monotonic() < end:
                time.sleep(0.3)
                theirs = run(step, pair.theirs, process)
            if theirs != ours:
                differences.append(f"{line}\n  Kafka {theirs}\n  ours  {ours}")
    return differences


def check(release: str) -> Callable[[], str]:
    def run_all() -> str:
        with tools() as process, both(release) as pair:
            found = [text for script in SCRIPTS.values() for text in compared(pair, process, script)]
        if found:
            raise Failed(f"{len(found)} commands differ:\n" + "\n".join(found))
        count = sum(len(script.split("\n")) - 2 for script in SCRIPTS.values())
        return f"{count} commands of {len(SCRIPTS)} scripts, as with Apache Kafka"

    return run_all


CHECKS = [Check(f"Kafka's command line tools, release {release}", check(release)) for release in RELEASES]
