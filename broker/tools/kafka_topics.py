"""`kafka-topics.sh` of the image: topics made, listed, described, grown and deleted, in the words of Kafka's tool.

Owns its flags and its layout, line by line that of Kafka 4: scripts read it. What a flag of Kafka's tool cannot do here
is said in one line. Exit codes are Kafka's: 1 for every failure.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ...client.admin import (
    Admin,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    checked,
)
from ...client.connection import connect
from ...client.errors import ClientError, KafkaError
from ...client.topology import NO_NODE
from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ...protocol.primitives import ZERO_UUID
from ...protocol.schema import spec
from ...storage.partition_metadata import encode_id
from .command_line import Parser, printing
from .kafka_api_versions import check_command_config

PROGRAM = "kafka-topics"
FAILED = 1
TIMEOUT_MS = 15_000
ACTIONS = ("list", "create", "delete", "alter", "describe")
UNSUPPORTED = ("--delete-config", "--zookeeper", "--under-min-isr-partitions", "--at-min-isr-partitions")
COLLIDING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


class CannotDo(Exception):
    """Why the command failed: one line, in Kafka's words where it has some."""


class _Unsupported(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> NoReturn:
        parser.error(f"{arguments[-1]} is not supported")


def topics_parser() -> Parser:
    """The flags of Kafka's tool, those that are not supported as well."""
    parser = Parser(prog=PROGRAM, description="Make, list, describe, grow and delete topics.", allow_abbrev=False)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="read, and checked for what is not served")
    for action in ACTIONS:
        parser.add_argument(f"--{action}", action="store_true")
    parser.add_argument("--topic", metavar="NAME", help="also a regular expression, except with --create")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe")
    parser.add_argument("--partitions", type=int, metavar="N")
    parser.add_argument("--replication-factor", type=int, metavar="N")
    parser.add_argument("--replica-assignment", metavar="ID:ID,...", help="node ids of each partition's replicas")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="with --create")
    for flag in ("if-exists", "if-not-exists", "exclude-internal"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("topics-with-overrides", "under-replicated-partitions", "unavailable-partitions"):
        parser.add_argument(f"--{flag}", action="store_true", help="with --describe: these only")
    parser.add_argument("--partition-size-limit-per-response", type=int, help=argparse.SUPPRESS)
    for flag in UNSUPPORTED:
        parser.add_argument(flag, action=_Unsupported, nargs="?", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The tool: its exit code. Failures are told on stdout, as Kafka's tool does, mistakes in flags on stderr."""
    parser = topics_parser()
    try:
        asked = parser.parse_args(None if arguments is None else list(arguments))
        _check(parser, asked)
    except SystemExit as end:
        return FAILED if end.code else 0

    def run(write: Callable[[str], object]) -> int:
        try:
            asyncio.run(_run(asked, write))
        except (ClientError, CannotDo) as error:
            write(f"Error while executing topic command : {_message(error)}\n")
            return FAILED
        return 0

    return printing(PROGRAM, run)


def _message(error: Exception) -> str:
    """What went wrong, without the number of the code before it where the broker has said more."""
    return (isinstance(error, KafkaError) and error.message) or str(error)


def _check(parser: Parser, asked: argparse.Namespace) -> None:
    if sum(getattr(asked, action) for action in ACTIONS) != 1:
        parser.error("exactly one action is needed: --list, --describe, --create, --alter or --delete")
    if not asked.bootstrap_server:
        parser.error("--bootstrap-server must be specified")
    if asked.topic is None and (asked.create or asked.delete or asked.alter):
        parser.error("--topic is needed")
    if asked.alter and asked.partitions is None:
        parser.error("--alter needs --partitions; the configs of a topic cannot be changed here")
    if asked.config and not asked.create:
        parser.error("--config goes with --create only")
    if asked.replica_assignment and (asked.partitions or asked.replication_factor) and asked.create:
        parser.error("--replica-assignment goes without --partitions and --replication-factor")
    check_command_config(parser, asked.command_config)


async def _run(asked: argparse.Namespace, write: Callable[[str], object]) -> None:
    async with Admin(asked.bootstrap_server, client_id=PROGRAM, default_api_timeout_ms=TIMEOUT_MS) as admin:
        if asked.create:
            await _create(admin, asked, write)
        elif asked.list:
            write("\n".join(await _matching(admin, asked)) + "\n")
        elif asked.describe:
            await _describe(admin, asked, write)
        elif asked.alter:
            names = await _existing(admin, asked)
            given = assignment_of(asked.replica_assignment)
            counts = {d.name: len(d.partitions) for d in checked(await admin.describe_topics(names)).values()}
            wanted: dict[str, int | NewPartitions] = {
                name: NewPartitions(asked.partitions, [given[i] for i in sorted(given)[counts[name] :]])
                if given
                else asked.partitions
                for name in names
            }
            checked(await admin.create_partitions(wanted))
        else:
            checked(await admin.delete_topics(await _existing(admin, asked)))


async def _create(admin: Admin, asked: argparse.Namespace, write: Callable[[str], object]) -> None:
    if "." in asked.topic or "_" in asked.topic:
        write(COLLIDING + "\n")
    if asked.partitions is not None and asked.partitions < 1:
        raise CannotDo("The partitions must be greater than 0")
    if asked.replication_factor is not None and not 1 <= asked.replication_factor <= 32767:
        raise CannotDo("The replication factor must be between 1 and 32767 inclusive")
    topic = NewTopic(
        asked.topic,
        -1 if asked.partitions is None else asked.partitions,
        -1 if asked.replication_factor is None else asked.replication_factor,
        configs=configs_of(asked.config),
        assignments=assignment_of(asked.replica_assignment),
    )
    made = (await admin.create_topics([topic]))[asked.topic]
    if isinstance(made, KafkaError) and made.code == ErrorCode.TOPIC_ALREADY_EXISTS and asked.if_not_exists:
        return
    checked({asked.topic: made})
    write(f"Created topic {asked.topic}.\n")


def configs_of(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` of `--config`. Raises CannotDo."""
    found: dict[str, str] = {}
    for text in texts:
        parts = [part.strip() for part in text.split("=")]
        if len(parts) != 2 or not parts[0]:
            raise CannotDo(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        found[parts[0]] = parts[1]
    return found


def assignment_of(text: str | None) -> dict[int, list[int]]:
    """`1:2,2:1` as node ids by partition. Raises CannotDo."""
    found: dict[int, list[int]] = {}
    for index, part in enumerate((text or "").split(",") if text else ()):
        ids = part.split(":")
        if not all(node.strip().isdecimal() for node in ids):
            raise CannotDo(f"--replica-assignment: {part!r} is not ID:ID")
        found[index] = [int(node) for node in ids]
        if twice := [node for node in dict.fromkeys(found[index]) if found[index].count(node) > 1]:
            listed = ",".join(map(str, twice))
            raise CannotDo(f"Partition replica lists may not contain duplicate entries: {listed}")
        if len(ids) != len(found[0]):
            raise CannotDo(f"Partition {index} has different replication factor: {found[index]}")
    return found


async def _matching(admin: Admin, asked: argparse.Namespace) -> list[str]:
    """The names that `--topic` matches, all without it; sorted."""
    names = sorted(await admin.list_topics(include_internal=not asked.exclude_internal))
    if asked.topic is None:
        return names
    try:
        pattern = re.compile(asked.topic.replace(",", "|").replace('"', ""))
    except re.error:
        raise CannotDo(f"{asked.topic} is an invalid regex.") from None
    return [name for name in names if pattern.fullmatch(name)]


async def _existing(admin: Admin, asked: argparse.Namespace) -> list[str]:
    """The same; none is an error unless `--if-exists` was said."""
    names = await _matching(admin, asked)
    if asked.topic and not names and not asked.if_exists:
        raise CannotDo(f"Topic '{asked.topic}' does not exist as expected")
    return names


async def _describe(admin: Admin, asked: argparse.Namespace, write: Callable[[str], object]) -> None:
    if asked.topic_id is not None:
        listed = await admin.list_topics(include_internal=not asked.exclude_internal)
        names = [name for name, told in listed.items() if encode_id(told.id) == asked.topic_id]
        if not names and not asked.if_exists:
            raise CannotDo(f"TopicId '{asked.topic_id}' does not exist as expected")
    else:
        names = await _existing(admin, asked)
    if not names:
        return
    described = checked(await admin.describe_topics(names))
    resources = [ConfigResource.topic(name) for name in names]
    configs = checked(await admin.describe_configs(resources))
    tells_elr = await _tells_elr(admin)
    for resource in resources:
        topic = described[resource.name]
        for line in description(topic, configs[resource], asked, tells_elr):
            write(line + "\n")


async def _tells_elr(admin: Admin) -> bool:
    """Whether the broker knows eligible leader replicas (KIP-966): it has DescribeTopicPartitions then."""
    node = (await admin.describe_cluster()).nodes[0]
    connection = await connect(node.host, node.port, client_id=PROGRAM, request_timeout_s=TIMEOUT_MS / 1000)
    told = spec(DescribeTopicPartitionsRequest).api_key in connection.versions
    connection.close()
    await connection.wait_closed()
    return told


def description(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], asked: argparse.Namespace, tells_elr: bool
) -> list[str]:
    """The lines of one topic: its own, and one for each partition."""
    some = asked.under_replicated_partitions or asked.unavailable_partitions
    overridden = [entry for entry in configs.values() if entry.source is not ConfigSource.DEFAULT]
    lines = []
    if not some and (overridden or not asked.topics_with_overrides):
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        parts = [f"Topic: {topic.name}"]
        if topic.id != ZERO_UUID:
            parts.append(f"TopicId: {encode_id(topic.id)}")
        parts += [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {factor}"]
        parts.append("Configs: " + ",".join(f"{entry.name}={entry.value}" for entry in overridden))
        lines.append("\t".join(parts))
    if not asked.topics_with_overrides:
        for partition in topic.partitions:
            if (
                not some
                or (asked.under_replicated_partitions and len(partition.isr) < len(partition.replicas))
                or (asked.unavailable_partitions and partition.leader == NO_NODE)
            ):
                lines.append(_partition_line(topic.name, partition, tells_elr))
    return lines


def _partition_line(name: str, partition: PartitionDescription, tells_elr: bool) -> str:
    leader = "none" if partition.leader == NO_NODE else partition.leader
    elr = "" if tells_elr else "N/A"
    return (
        f"\tTopic: {name}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {','.join(map(str, partition.replicas))}\tIsr: {','.join(map(str, partition.isr))}"
        f"\tElr: {elr}\tLastKnownElr: {elr}"
    )


if __name__ == "__main__":
    sys.exit(main())
