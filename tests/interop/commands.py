"""ottla topics, configs, groups, records and acls beside Kafka's own tools: the same flags, the same words on stdout.

Each side runs the same commands, in the same order, with a fresh broker of the tools' release. Kafka's tools take much
out of hash tables, so lines are compared as a set. Where Kafka's tool fails (shown on stdout, on stderr or by the exit
code), ours prints one line on stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tool_process import RELEASE, Printed, tools

from ottla.client import Consumer, Producer
from ottla.tools.main import main
from ottla_testing.interop.checks import Check, Failed, broker

TIME_MS = 1_700_000_000_000
# Ours by the names of Kafka's scripts.
OURS = {
    "kafka-topics": ["topics"],
    "kafka-configs": ["configs"],
    "kafka-consumer-groups": ["groups"],
    "kafka-get-offsets": ["records", "--offsets"],
    "kafka-delete-records": ["records", "--delete"],
    "kafka-acls": ["acls"],
}
# Both sides print the same. `DIR` is a folder with files; the lines of one tool stand together.
SAME = """
kafka-topics --create --topic t --partitions 3 --config retention.ms=-1
kafka-topics --create --topic u
kafka-topics --create --topic gone
kafka-topics --list
kafka-topics --describe --exclude-internal
kafka-topics --describe --at-min-isr-partitions --exclude-internal
kafka-topics --describe --under-min-isr-partitions
kafka-topics --alter --topic u --partitions 2
kafka-topics --delete --topic gone
kafka-topics --list --topic u|t
RECORDS
kafka-get-offsets
kafka-get-offsets --time -1 --exclude-internal-topics
kafka-get-offsets --time earliest --topic t
kafka-get-offsets --time -3 --topic t
kafka-get-offsets --time 1700000002500
kafka-get-offsets --topic-partitions t:0,u
kafka-get-offsets --topic-partitions :1-
kafka-get-offsets --topic-partitions t:-1
kafka-get-offsets --topic t --partitions 0,2
kafka-delete-records --offset-json-file DIR/some.json
kafka-get-offsets --time earliest --topic t
kafka-consumer-groups --list
kafka-consumer-groups --list --state
kafka-consumer-groups --reset-offsets --group g --topic t --to-latest --execute
kafka-consumer-groups --reset-offsets --group g --topic t:0,1 --to-earliest --execute
kafka-consumer-groups --reset-offsets --group g --topic t:0 --to-offset 99 --dry-run
kafka-consumer-groups --reset-offsets --group g --topic t:0 --shift-by 1 --execute
kafka-consumer-groups --reset-offsets --group g --topic t:0 --shift-by -99 --dry-run
kafka-consumer-groups --reset-offsets --group g --all-topics --to-current --dry-run
kafka-consumer-groups --reset-offsets --group g --topic t --topic u --to-current --dry-run
kafka-consumer-groups --reset-offsets --group g --all-topics --to-datetime 2023-11-14T22:13:22.000 --dry-run
kafka-consumer-groups --reset-offsets --group g --all-topics --to-datetime 2023-11-14T23:13:22.000+01:00
kafka-consumer-groups --reset-offsets --group g --all-topics --by-duration P1D
kafka-consumer-groups --reset-offsets --group g --all-topics --by-duration PT8760H --dry-run
kafka-consumer-groups --reset-offsets --group g --topic t --to-earliest --export --dry-run
kafka-consumer-groups --reset-offsets --group g --group h --all-topics --to-current --export --dry-run
kafka-consumer-groups --reset-offsets --group g --from-file DIR/plan.csv --dry-run
kafka-consumer-groups --reset-offsets --group g --group h --from-file DIR/plans.csv --execute
kafka-consumer-groups --list
kafka-consumer-groups --list --state
kafka-consumer-groups --list --type
kafka-consumer-groups --list --state empty --type classic
kafka-consumer-groups --list --state stable
kafka-consumer-groups --describe --group g
kafka-consumer-groups --describe --group g --verbose
kafka-consumer-groups --describe --group g --state
kafka-consumer-groups --describe --group g --state --verbose
kafka-consumer-groups --describe --group g --members
kafka-consumer-groups --describe --group g --members --verbose
kafka-consumer-groups --describe --all-groups
kafka-consumer-groups --delete-offsets --group g --topic t:0
kafka-consumer-groups --delete-offsets --group g --topic t --topic u
kafka-consumer-groups --delete --group g --group h
kafka-consumer-groups --list
MEMBER
kafka-consumer-groups --describe --group live
kafka-consumer-groups --describe --group live --verbose
kafka-consumer-groups --describe --group live --members
kafka-consumer-groups --describe --group live --members --verbose
kafka-consumer-groups --describe --group live --state
kafka-consumer-groups --describe --group live --state --verbose
ALONE
kafka-configs --entity-type topics --entity-name t --describe
kafka-configs --entity-type topics --entity-name t --alter --add-config retention.ms=1,cleanup.policy=[compact,delete]
kafka-configs --entity-type topics --entity-name t --alter --add-config-file DIR/topic.properties
kafka-configs --topic t --describe
kafka-configs --entity-type topics --entity-name t --alter --delete-config retention.ms
kafka-configs --entity-type topics --describe
kafka-configs --entity-type topics --entity-name absent --describe
kafka-configs --entity-type brokers --entity-default --alter --add-config log.retention.ms=77777
kafka-configs --entity-type brokers --entity-name 1 --alter --add-config message.max.bytes=2000000
kafka-configs --entity-type brokers --describe
kafka-configs --broker 1 --describe
kafka-configs --broker-defaults --describe
kafka-configs --entity-type brokers --entity-name 1 --alter --delete-config message.max.bytes
kafka-configs --entity-type brokers --entity-default --alter --delete-config log.retention.ms
kafka-configs --entity-type brokers --entity-name 9 --describe
kafka-configs --entity-type users --entity-name alice --alter --add-config producer_byte_rate=9,consumer_byte_rate=2e7
kafka-configs --user alice --client x --alter --add-config request_percentage=12.5
kafka-configs --entity-type users --entity-default --alter --add-config request_percentage=200
kafka-configs --entity-type clients --entity-name c1 --alter --add-config controller_mutation_rate=3
kafka-configs --client-defaults --alter --add-config controller_mutation_rate=3
kafka-configs --entity-type ips --entity-name 1.2.3.4 --alter --add-config connection_creation_rate=10
kafka-configs --ip-defaults --alter --add-config connection_creation_rate=20
kafka-configs --entity-type users --describe
kafka-configs --user-defaults --describe
kafka-configs --entity-type clients --describe
kafka-configs --entity-type users --entity-type clients --describe
kafka-configs --entity-type users --entity-name alice --entity-type clients --describe
kafka-configs --entity-type clients --entity-type users --describe
kafka-configs --entity-type ips --describe
kafka-configs --entity-type ips --entity-name 1.2.3.4 --describe
kafka-configs --user alice --alter --delete-config producer_byte_rate
kafka-configs --user alice --alter --add-config SCRAM-SHA-256=[iterations=8192,password=a]
kafka-configs --user alice --alter --add-config SCRAM-SHA-512=[password=b]
kafka-configs --user alice --describe
kafka-configs --user bob --describe
kafka-configs --user alice --alter --delete-config SCRAM-SHA-256
kafka-configs --entity-type users --describe
kafka-configs --group g1 --alter --add-config consumer.session.timeout.ms=50000
kafka-configs --entity-type groups --describe
kafka-configs --group absent --describe
kafka-configs --client-metrics m --alter --add-config interval.ms=1000
kafka-configs --entity-type client-metrics --describe
kafka-configs --client-metrics absent --describe
kafka-configs --broker-logger 9 --describe
kafka-acls --list
kafka-acls --add --allow-principal User:alice --operation Read --operation Write --topic t
kafka-acls --add --allow-principal User:alice --operation Read --topic t
kafka-acls --add --deny-principal User:bob --deny-host ::1 --operation all --topic p --resource-pattern-type prefixed
kafka-acls --add --allow-principal User:carl --producer --topic t --transactional-id x --idempotent
kafka-acls --add --allow-principal User:carl --consumer --topic t --group g
kafka-acls --add --allow-principal User:d --producer --consumer --topic t2 --group g
kafka-acls --add --allow-principal User:e --cluster --operation Alter
kafka-acls --add --allow-principal User:e --topic * --operation DescribeConfigs
kafka-acls --add --user-principal User:x --operation CreateTokens --allow-principal User:a
kafka-acls --add --delegation-token x --operation Describe --allow-principal User:a
kafka-acls --list
kafka-acls --list --topic t
kafka-acls --list --topic pq --resource-pattern-type match
kafka-acls --list --topic pq --resource-pattern-type any
kafka-acls --list --group g --cluster
kafka-acls --list --principal User:alice --principal User:carl
kafka-acls --remove --allow-principal User:alice --operation Write --topic t --force
kafka-acls --remove --topic t2 --force
kafka-acls --list
kafka-acls --remove --cluster --group g --transactional-id x --topic t --force
kafka-acls --list
"""
# Kafka's tool fails, by its exit code or its words; ours fails with one line.
FAILING = """
kafka-topics --create --topic t
kafka-topics --create --topic x --config no.such=1
kafka-topics --alter --topic t --partitions 1
kafka-topics --delete --topic absent
kafka-topics
kafka-topics --list --describe
kafka-get-offsets --topic absent
kafka-get-offsets --topic t --partitions x
kafka-get-offsets --time x
kafka-get-offsets --topic-partitions t:0 --topic t
kafka-get-offsets --topic-partitions t:x
kafka-delete-records --offset-json-file DIR/absent
kafka-delete-records --offset-json-file DIR/twice.json
kafka-delete-records --offset-json-file DIR/version.json
kafka-delete-records --offset-json-file DIR/plan.csv
kafka-delete-records --offset-json-file DIR/beyond.json
kafka-consumer-groups
kafka-consumer-groups --list --describe
kafka-consumer-groups --describe
kafka-consumer-groups --describe --group absent
kafka-consumer-groups --describe --group g --members --state
kafka-consumer-groups --list --state wrong
kafka-consumer-groups --delete --group absent
kafka-consumer-groups --delete-offsets --group absent --topic t
kafka-consumer-groups --reset-offsets --group g --topic absent --to-latest
kafka-consumer-groups --reset-offsets --group g --topic t:9 --to-latest
kafka-consumer-groups --reset-offsets --group g --topic t:x --to-latest
kafka-consumer-groups --reset-offsets --group g --topic u --shift-by 1
kafka-consumer-groups --reset-offsets --group g --topic t
kafka-consumer-groups --reset-offsets --group g --to-latest
kafka-consumer-groups --reset-offsets --group g --topic t --to-latest --to-earliest
kafka-consumer-groups --reset-offsets --topic t --to-latest
kafka-consumer-groups --reset-offsets --group g --all-topics --to-datetime 2020
kafka-consumer-groups --reset-offsets --group g --all-topics --by-duration X
kafka-configs --describe
kafka-configs --entity-type topics
kafka-configs --entity-type wrong --describe
kafka-configs --entity-type topics --entity-type users --describe
kafka-configs --entity-type topics --entity-type topics --describe
kafka-configs --entity-type topics --entity-default --describe
kafka-configs --entity-type topics --alter --add-config retention.ms=5
kafka-configs --entity-type topics --entity-name t --alter
kafka-configs --entity-type topics --entity-name t --alter --add-config nope
kafka-configs --entity-type topics --entity-name t --alter --add-config nope=1
kafka-configs --entity-type topics --entity-name t --alter --add-config retention.ms=x
kafka-configs --entity-type topics --entity-name absent --alter --add-config retention.ms=5
kafka-configs --entity-type topics --entity-name t --describe --add-config a=b
kafka-configs --entity-type brokers --entity-name x --describe
kafka-configs --entity-type broker-loggers --describe
kafka-configs --entity-type ips --entity-name 1.2.3.4.5 --describe
kafka-configs --entity-type ips --entity-name 1.2.3.4 --alter --add-config producer_byte_rate=1
kafka-configs --user alice --alter --delete-config nope
kafka-configs --user alice --alter --add-config nope=1
kafka-configs --user alice --alter --add-config producer_byte_rate=x
kafka-configs --user alice --alter --add-config producer_byte_rate=-1
kafka-configs --user alice --alter --add-config SCRAM-SHA-256=[iterations=1,password=x]
kafka-configs --user alice --alter --add-config SCRAM-SHA-256=x
kafka-configs --user alice --alter --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1
kafka-configs --user-defaults --alter --add-config SCRAM-SHA-256=[password=x]
kafka-configs --client alice --alter --add-config SCRAM-SHA-256=[password=p]
kafka-configs --user missing --alter --delete-config SCRAM-SHA-256
kafka-configs --user alice --alter --add-config SCRAM-SHA-256=[password=a],SCRAM-SHA-512=[password=b]
kafka-acls
kafka-acls --list --add
kafka-acls --add --topic t
kafka-acls --add --allow-principal User:a
kafka-acls --add --allow-principal nope --topic t
kafka-acls --add --allow-principal User:a --topic t --operation ClusterAction
kafka-acls --add --allow-principal User:a --topic t --operation Nope
kafka-acls --add --allow-principal User:a --topic t --resource-pattern-type match
kafka-acls --add --allow-principal User:a --topic t --resource-pattern-type nope
kafka-acls --add --consumer --topic t --allow-principal User:a
kafka-acls --add --producer --group t --allow-principal User:a
kafka-acls --add --producer --topic t --operation Read --allow-principal User:a
kafka-acls --add --idempotent --topic t --allow-principal User:a
kafka-acls --list --allow-principal User:a
"""
FILES = {
    "some.json": json.dumps({"partitions": [{"topic": "t", "partition": n, "offset": 1 - 2 * n} for n in (0, 1)]}),
    "twice.json": json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 1}] * 2, "version": 1}),
    "version.json": '{"partitions": [], "version": 2}',
    "beyond.json": '{"partitions": [{"topic": "t", "partition": 0, "offset": 99}]}',
    "plan.csv": "t,0,2\nt,1,1\n",
    "plans.csv": "g,t,0,2\nh,t,1,3\n",
    "topic.properties": "# some\nsegment.bytes=1048576\nmin.insync.replicas=1\n",
}
AUTHORIZED = [
    f"--override={pair}"
    for pair in (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
        "super.users=User:ANONYMOUS",
    )
]
Tool = Callable[..., Printed]


def ours(tool: str, *arguments: str) -> Printed:
    """Runs `ottla` with the arguments of Kafka's script."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([*OURS[tool], *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Printed(code, out.getvalue(), err.getvalue())


def lines(result: Printed) -> list[str]:
    """Returns the lines of stdout, sorted, without parts that differ from run to run."""
    text = re.sub(r"TopicId: \S+", "TopicId: ID", result.out)
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"one-[0-9a-f-]{36}", "MEMBER", text)
    return sorted(line.strip(" \t") for line in text.split("\n"))


async def write_records(address: str) -> None:
    async with Producer(address) as producer:
        for n in range(6):
            await producer.send_and_wait("t", b"v", b"k", partition=n % 2, timestamp_ms=TIME_MS + n * 1000)
        await producer.send_and_wait("u", b"v", b"k", partition=0, timestamp_ms=TIME_MS)


@contextmanager
def member(address: str) -> Iterator[None]:
    """Runs a consumer in a group within the block."""
    is_ready, is_over = Event(), Event()

    async def consume() -> None:
        async with Consumer(
            address, topics=["t", "u"], group="live", client_id="me", offset_reset="earliest", group_instance_id="one"
        ) as consumer:
            await consumer.getone()
            await consumer.commit()
            is_ready.set()
            while not is_over.is_set():
                await asyncio.sleep(0.1)

    thread = Thread(target=lambda: asyncio.run(consume()), daemon=True)
    thread.start()
    try:
        if not is_ready.wait(60):
            raise Failed("no consumer got into its group")
        yield
    finally:
        is_over.set()
        thread.join(30)


def printed_by(run: Tool, folder: Path, script: str, address: str) -> list[tuple[str, Printed]]:
    """Returns the output of each line of a script."""
    found = []
    consumer = None
    for line in filter(None, script.split("\n")):
        if line == "RECORDS":
            asyncio.run(write_records(address))
        elif line == "MEMBER":
            consumer = member(address)
            consumer.__enter__()
        elif line == "ALONE":
            assert consumer is not None
            consumer.__exit__(None, None, None)
        else:
            tool, *arguments = shlex.split(line.replace("DIR", str(folder)))
            found.append((line, run(tool, "--bootstrap-server", address, *arguments)))
    return found


def compare() -> str:
    with tempfile.TemporaryDirectory() as name, tools() as process:
        folder = Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        sides = []
        for run in (process.run, ours):
            with broker("--release", "4.3", *AUTHORIZED) as address:
                same = printed_by(run, folder, SAME, address)
                sides.append((same, printed_by(run, folder, FAILING, address)))
    (same, failing), (our_same, our_failing) = sides
    wrong = [
        f"{line}: Kafka's {lines(result)}, ours {our.code} {lines(our)} {our.err!r}"
        for (line, result), (_, our) in zip(same, our_same, strict=True)
        if lines(result) != lines(our) or our.code or "Traceback" in our.err
    ]
    for (line, result), (_, our) in zip(failing, our_failing, strict=True):
        if not result.code and "rror" not in result.out:
            wrong.append(f"{line}: Kafka's tool does not fail: {result}")
        if not our.code or sum(row.startswith("ottla ") for row in our.err.split("\n")) != 1 or "Traceback" in our.err:
            wrong.append(f"{line}: ours fails otherwise: {our}")
    if wrong:
        raise Failed(f"{len(wrong)} differ\n" + "\n".join(wrong))
    return f"{len(same)} commands print the same, {len(failing)} fail on both sides"


CHECKS = [Check(f"our commands and Kafka's tools {RELEASE}", compare)]
