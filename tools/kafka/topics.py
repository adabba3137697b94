"""`ottla topics`: topics made, listed, described, grown and deleted, in the words of Kafka's kafka-topics.

Owns the flags and the layout of that tool, line by line those of Kafka 4; `kafka_topics.py` is the same by its name and
exit codes. `--json` prints `{"topics": [{name, id, internal}]}` with --list; with --describe each has `configs` (those
that were set), and `partitions` (`partition, leader, leader_epoch, replicas, isr, offline_replicas`), too; or
`{"created": [name]}`, `{"altered": [name]}`, `{"deleted": [name]}`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from ...client.admin.admin import (
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
from ...client.net.connection import connect
from ...client.net.errors import KafkaError, UnsupportedVersion
from ...client.net.metadata import NO_NODE
from ...protocol.api_key import ApiKey
from ...protocol.arguments import Parser
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.primitives import ZERO_UUID
from ...storage.format.partition_metadata import encode_id
from .admin_command import (
    TIMEOUT_MS,
    CannotDo,
    Out,
    add_actions,
    admin_parser,
    check_action,
    parsed,
    pattern_of,
    run_admin,
)

PROGRAM = "ottla topics"
ACTIONS = {
    "list": "print the names of topics",
    "describe": "print topics with their partitions",
    "create": "make a topic",
    "alter": "give a topic more partitions",
    "delete": "delete topics",
}
UNSUPPORTED = ("--delete-config", "--zookeeper")
FILTERS = ("under_replicated_partitions", "unavailable_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
NODE_ID = re.compile(r"[0-9]{1,10}")
MIN_ISR = "min.insync.replicas"
COLLIDING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


class _Unsupported(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *arguments: object) -> NoReturn:
        parser.error(f"{arguments[-1]} is not supported")


def topics_parser(program: str = PROGRAM) -> Parser:
    """The flags of Kafka's tool, those that are not supported as well."""
    parser = admin_parser(program, "Make, list, describe, grow and delete topics.")
    add_actions(parser, ACTIONS)
    parser.add_argument("--topic", metavar="NAME", help="also a regular expression, except with --create")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe")
    parser.add_argument("--partitions", type=int, metavar="N")
    parser.add_argument("--replication-factor", type=int, metavar="N")
    parser.add_argument("--replica-assignment", metavar="ID:ID,...", help="node ids of each partition's replicas")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="with --create")
    for flag in ("if-exists", "if-not-exists", "exclude-internal"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("topics-with-overrides", *(name.replace("_", "-") for name in FILTERS)):
        parser.add_argument(f"--{flag}", action="store_true", help="with --describe: these only")
    parser.add_argument("--partition-size-limit-per-response", type=int, help=argparse.SUPPRESS)
    for flag in UNSUPPORTED:
        parser.add_argument(flag, action=_Unsupported, nargs="?", help=argparse.SUPPRESS)
    return parser


def topics(arguments: Sequence[str]) -> int:
    """`ottla topics`: the exit code."""
    return run_admin(PROGRAM, parsed(topics_parser(), arguments, check), act)


def check(parser: Parser, asked: argparse.Namespace) -> None:
    """Ends the command where flags do not go together."""
    check_action(parser, asked, ACTIONS)
    if asked.topic is None and (asked.create or asked.delete or asked.alter):
        parser.error("--topic is needed")
    if asked.alter and asked.partitions is None:
        parser.error("--alter needs --partitions; the configs of a topic cannot be changed here")
    if asked.config and not asked.create:
        parser.error("--config goes with --create only")
    if asked.replica_assignment and (asked.partitions or asked.replication_factor) and asked.create:
        parser.error("--replica-assignment goes without --partitions and --replication-factor")


async def act(admin: Admin, asked: argparse.Namespace, out: Out) -> None:
    """Does what is asked. Raises CannotDo and ClientError."""
    if asked.create:
        await _create(admin, asked, out)
    elif asked.list:
        listed = await admin.list_topics(include_internal=not asked.exclude_internal)
        names = _matching(listed, asked)
        told = [
            {"name": name, "id": encode_id(listed[name].id), "internal": listed[name].is_internal} for name in names
        ]
        out.show({"topics": told}, ["\n".join(names) + "\n"])
    elif asked.describe:
        await _describe(admin, asked, out)
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
        out.show({"altered": names}, [])
    else:
        names = await _existing(admin, asked)
        checked(await admin.delete_topics(names))
        out.show({"deleted": names}, [])


async def _create(admin: Admin, asked: argparse.Namespace, out: Out) -> None:
    if ("." in asked.topic or "_" in asked.topic) and not out.as_json:
        out.write(COLLIDING + "\n")
    if asked.partitions is not None and asked.partitions < 1:
        raise CannotDo("The partitions must be greater than 0")
    if asked.replication_factor is not None and not 1 <= asked.replication_factor <= INT16_MAX:
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
        out.show({"created": []}, [])
        return
    checked({asked.topic: made})
    out.show({"created": [asked.topic]}, [f"Created topic {asked.topic}.\n"])


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
        if not all(NODE_ID.fullmatch(node.strip()) for node in ids):
            raise CannotDo(f"--replica-assignment: {part!r} is not ID:ID")
        found[index] = [int(node) for node in ids]
        if twice := [node for node in dict.fromkeys(found[index]) if found[index].count(node) > 1]:
            listed = ",".join(map(str, twice))
            raise CannotDo(f"Partition replica lists may not contain duplicate entries: {listed}")
        if len(ids) != len(found[0]):
            raise CannotDo(f"Partition {index} has different replication factor: {found[index]}")
    return found


def _matching(names: Iterable[str], asked: argparse.Namespace) -> list[str]:
    """The names that `--topic` matches, all without it; sorted. Raises CannotDo."""
    names = sorted(names)
    if asked.topic is None:
        return names
    pattern = pattern_of(asked.topic.replace('"', ""))
    return [name for name in names if pattern.fullmatch(name)]


async def _existing(admin: Admin, asked: argparse.Namespace) -> list[str]:
    """The same; none is an error unless `--if-exists` was said."""
    names = _matching(await admin.list_topics(include_internal=not asked.exclude_internal), asked)
    if asked.topic and not names and not asked.if_exists:
        raise CannotDo(f"Topic '{asked.topic}' does not exist as expected")
    return names


async def _describe(admin: Admin, asked: argparse.Namespace, out: Out) -> None:
    if asked.topic_id is not None:
        listed = await admin.list_topics(include_internal=not asked.exclude_internal)
        names = [name for name, told in listed.items() if encode_id(told.id) == asked.topic_id]
        if not names and not asked.if_exists:
            raise CannotDo(f"TopicId '{asked.topic_id}' does not exist as expected")
    else:
        names = await _existing(admin, asked)
    if not names:
        out.show({"topics": []}, [])
        return
    described = checked(await admin.describe_topics(names))
    resources = [ConfigResource.topic(name) for name in names]
    configs: dict[ConfigResource, dict[str, ConfigEntry]] = {resource: {} for resource in resources}
    results = await admin.describe_configs(resources)
    if not any(isinstance(result, UnsupportedVersion) for result in results.values()):  # Kafka has the API since 0.11
        configs = checked(results)
    tells_elr = not out.as_json and await _tells_elr(admin, out.program)
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for resource in resources:
        topic = described[resource.name]
        some = shown(topic, configs[resource], asked)
        if some is not None:
            documents.append(document(topic, configs[resource], some))
        lines += description(topic, configs[resource], asked, tells_elr)
    out.show({"topics": documents}, (line + "\n" for line in lines))


async def _tells_elr(admin: Admin, client_id: str) -> bool:
    """Whether the broker knows eligible leader replicas (KIP-966): it has DescribeTopicPartitions then."""
    node = (await admin.describe_cluster()).nodes[0]
    connection = await connect(node.host, node.port, client_id=client_id, request_timeout_s=TIMEOUT_MS / 1000)
    told = ApiKey.DESCRIBE_TOPIC_PARTITIONS in connection.versions
    connection.close()
    await connection.wait_closed()
    return told


def _overridden(configs: Mapping[str, ConfigEntry]) -> list[ConfigEntry]:
    return [entry for entry in configs.values() if entry.source is not ConfigSource.DEFAULT]


def shown(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], asked: argparse.Namespace
) -> list[PartitionDescription] | None:
    """The partitions that are asked for; None where the whole topic is not."""
    if asked.topics_with_overrides and not _overridden(configs):
        return None
    if not any(getattr(asked, name) for name in FILTERS):
        return list(topic.partitions)
    entry = configs.get(MIN_ISR)
    least = int(entry.value) if entry is not None and entry.value else 1
    found = [
        p
        for p in topic.partitions
        if (asked.under_replicated_partitions and len(p.isr) < len(p.replicas))
        or (asked.unavailable_partitions and p.leader == NO_NODE)
        or (asked.under_min_isr_partitions and (p.leader == NO_NODE or len(p.isr) < least))
        or (asked.at_min_isr_partitions and len(p.isr) == least)
    ]
    return found or None


def document(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], partitions: Sequence[PartitionDescription]
) -> dict[str, Any]:
    """A topic as JSON has it."""
    return {
        "name": topic.name,
        "id": encode_id(topic.id),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in _overridden(configs)},
        "partitions": [
            {
                "partition": p.index,
                "leader": None if p.leader == NO_NODE else p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline_replicas": list(p.offline_replicas),
            }
            for p in partitions
        ],
    }


def description(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], asked: argparse.Namespace, tells_elr: bool
) -> list[str]:
    """The lines of one topic: its own, and one for each partition."""
    partitions = shown(topic, configs, asked)
    if partitions is None:
        return []
    lines: list[str] = []
    if not any(getattr(asked, name) for name in FILTERS):
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        parts = [f"Topic: {topic.name}"]
        if topic.id != ZERO_UUID:
            parts.append(f"TopicId: {encode_id(topic.id)}")
        parts += [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {factor}"]
        parts.append("Configs: " + ",".join(f"{entry.name}={entry.value}" for entry in _overridden(configs)))
        lines.append("\t".join(parts))
    if not asked.topics_with_overrides:
        lines += [_partition_line(topic.name, partition, tells_elr) for partition in partitions]
    return lines


def _partition_line(name: str, partition: PartitionDescription, tells_elr: bool) -> str:
    leader = "none" if partition.leader == NO_NODE else partition.leader
    elr = "" if tells_elr else "N/A"
    return (
        f"\tTopic: {name}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {','.join(map(str, partition.replicas))}\tIsr: {','.join(map(str, partition.isr))}"
        f"\tElr: {elr}\tLastKnownElr: {elr}"
    )
