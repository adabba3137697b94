"""`ottla topics`: creates, lists, describes, alters and deletes topics, with the flags and output of kafka-topics.

Owns the flags and the layout of that tool, as in Kafka 4; `kafka_topics.py` is the same command with the tool's name
and exit codes. `--json` prints `{"topics": [{name, id, internal}]}` with --list. With --describe each topic also has
`configs` (those that were set) and `partitions` (`partition, leader, leader_epoch, replicas, isr, offline_replicas,
adding_replicas, removing_replicas`). The other actions print `{"created": [name]}`, `{"altered": [name]}`,
`{"deleted": [name]}`.
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
    Reassignment,
    TopicDescription,
    checked,
)
from ...client.net.errors import KafkaError, UnsupportedVersion
from ...client.net.metadata import NO_NODE
from ...protocol.api_key import ApiKey
from ...protocol.arguments import Parser
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.primitives import ZERO_UUID
from ...storage.format.partition_metadata import encode_id
from .admin_command import CannotDo, Out, admin_parser, parsed, pattern_of, run_admin

PROGRAM = "ottla topics"
ACTIONS = {
    "list": "print the names of topics",
    "describe": "print topics with their partitions",
    "create": "create a topic",
    "alter": "add partitions to a topic",
    "delete": "delete topics",
}
UNSUPPORTED = ("--delete-config", "--zookeeper")
FILTERS = ("under_replicated_partitions", "unavailable_partitions", "under_min_isr_partitions", "at_min_isr_partitions")
Moves = Mapping[tuple[str, int], Reassignment]
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
    """Returns the argument parser with the flags of Kafka's tool, also the unsupported ones."""
    parser = admin_parser(program, "Create, list, describe, alter and delete topics.", ACTIONS)
    parser.add_argument("--topic", metavar="NAME", help="a name, or a regular expression except with --create")
    parser.add_argument("--topic-id", metavar="ID", help="with --describe")
    parser.add_argument("--partitions", type=int, metavar="N")
    parser.add_argument("--replication-factor", type=int, metavar="N")
    parser.add_argument("--replica-assignment", metavar="ID:ID,...", help="node ids of each partition's replicas")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="with --create")
    for flag in ("if-exists", "if-not-exists", "exclude-internal"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("topics-with-overrides", *(name.replace("_", "-") for name in FILTERS)):
        parser.add_argument(f"--{flag}", action="store_true", help="with --describe: only such topics or partitions")
    parser.add_argument("--partition-size-limit-per-response", type=int, help=argparse.SUPPRESS)
    for flag in UNSUPPORTED:
        parser.add_argument(flag, action=_Unsupported, nargs="?", help=argparse.SUPPRESS)
    return parser


def topics(arguments: Sequence[str]) -> int:
    return run_admin(PROGRAM, parsed(topics_parser(), arguments, ACTIONS, check), act)


def check(parser: Parser, args: argparse.Namespace) -> None:
    """Exits with a usage error for flags that cannot be combined."""
    if args.topic is None and (args.create or args.delete or args.alter):
        parser.error("--create, --alter and --delete need --topic")
    if args.alter and args.partitions is None:
        parser.error("--alter needs --partitions (`ottla configs` changes the configs of a topic)")
    if args.config and not args.create:
        parser.error("--config needs --create")
    if args.replica_assignment and (args.partitions or args.replication_factor) and args.create:
        parser.error("--replica-assignment cannot be combined with --partitions or --replication-factor")


async def act(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    """Runs the action of the flags. Raises CannotDo and ClientError."""
    if args.create:
        await _create(admin, args, out)
    elif args.list:
        listed = await admin.list_topics(include_internal=not args.exclude_internal)
        names = _matching(listed, args)
        documents = [
            {"name": name, "id": encode_id(listed[name].id), "internal": listed[name].is_internal} for name in names
        ]
        out.show({"topics": documents}, ["\n".join(names) + "\n"])
    elif args.describe:
        await _describe(admin, args, out)
    elif args.alter:
        names = await _existing(admin, args)
        given = assignment_of(args.replica_assignment)
        counts = {d.name: len(d.partitions) for d in checked(await admin.describe_topics(names)).values()}
        wanted: dict[str, int | NewPartitions] = {
            name: NewPartitions(args.partitions, [given[i] for i in sorted(given)[counts[name] :]])
            if given
            else args.partitions
            for name in names
        }
        checked(await admin.create_partitions(wanted))
        out.show({"altered": names}, [])
    else:
        names = await _existing(admin, args)
        checked(await admin.delete_topics(names))
        out.show({"deleted": names}, [])


async def _create(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    if ("." in args.topic or "_" in args.topic) and not out.as_json:
        out.write(COLLIDING + "\n")
    if args.partitions is not None and args.partitions < 1:
        raise CannotDo("The partitions must be greater than 0")
    if args.replication_factor is not None and not 1 <= args.replication_factor <= INT16_MAX:
        raise CannotDo("The replication factor must be between 1 and 32767 inclusive")
    topic = NewTopic(
        args.topic,
        -1 if args.partitions is None else args.partitions,
        -1 if args.replication_factor is None else args.replication_factor,
        configs=configs_of(args.config),
        assignments=assignment_of(args.replica_assignment),
    )
    made = (await admin.create_topics([topic]))[args.topic]
    if isinstance(made, KafkaError) and made.code == ErrorCode.TOPIC_ALREADY_EXISTS and args.if_not_exists:
        out.show({"created": []}, [])
        return
    checked({args.topic: made})
    out.show({"created": [args.topic]}, [f"Created topic {args.topic}.\n"])


def configs_of(texts: Sequence[str]) -> dict[str, str]:
    """Parses the `NAME=VALUE` of each `--config`. Raises CannotDo."""
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
    """Parses `1:2,2:1` to node ids by partition. Raises CannotDo."""
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


def _matching(names: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Returns the sorted names that `--topic` matches, or all without it. Raises CannotDo."""
    names = sorted(names)
    if args.topic is None:
        return names
    pattern = pattern_of(args.topic.replace('"', ""))
    return [name for name in names if pattern.fullmatch(name)]


async def _existing(admin: Admin, args: argparse.Namespace) -> list[str]:
    """Returns the matching topics of the cluster. Raises CannotDo for none without `--if-exists`."""
    names = _matching(await admin.list_topics(include_internal=not args.exclude_internal), args)
    if args.topic and not names and not args.if_exists:
        raise CannotDo(f"Topic '{args.topic}' does not exist as expected")
    return names


async def _describe(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    if args.topic_id is not None:
        listed = await admin.list_topics(include_internal=not args.exclude_internal)
        names = [name for name, listing in listed.items() if encode_id(listing.id) == args.topic_id]
        if not names and not args.if_exists:
            raise CannotDo(f"TopicId '{args.topic_id}' does not exist as expected")
    else:
        names = await _existing(admin, args)
    if not names:
        out.show({"topics": []}, [])
        return
    described = checked(await admin.describe_topics(names))
    resources = [ConfigResource.topic(name) for name in names]
    configs: dict[ConfigResource, dict[str, ConfigEntry]] = {resource: {} for resource in resources}
    results = await admin.describe_configs(resources)
    if not any(isinstance(result, UnsupportedVersion) for result in results.values()):  # Kafka has the API since 0.11
        configs = checked(results)
    # Brokers with eligible leader replicas (KIP-966) serve this API.
    has_elr = not out.as_json and await admin.serves(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    moves = await _reassignments(admin, described.values())
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for resource in resources:
        found = description(described[resource.name], configs[resource], args, moves, has_elr)
        if found is not None:
            documents.append(found[0])
            lines += found[1]
    out.show({"topics": documents}, (line + "\n" for line in lines))


def description(
    topic: TopicDescription, configs: Mapping[str, ConfigEntry], args: argparse.Namespace, moves: Moves, has_elr: bool
) -> tuple[dict[str, Any], list[str]] | None:
    """Returns the JSON and the lines of a topic and of its partitions; None if the flags do not match it."""
    overridden = [entry for entry in configs.values() if entry.source is not ConfigSource.DEFAULT]
    partitions = _shown(topic, configs.get(MIN_ISR), args, moves)
    if partitions is None or (args.topics_with_overrides and not overridden):
        return None
    lines: list[str] = []
    if not any(getattr(args, name) for name in FILTERS):
        lines.append(_topic_line(topic, overridden, moves))
    if not args.topics_with_overrides:
        lines += [_partition_line(topic.name, p, moves.get((topic.name, p.index)), has_elr) for p in partitions]
    return _document(topic, overridden, partitions, moves), lines


async def _reassignments(admin: Admin, topics: Iterable[TopicDescription]) -> Moves:
    """Returns the reassignments in progress; none if the broker does not list them (before Kafka 2.4), or not to this
    client.
    """
    partitions = [(topic.name, partition.index) for topic in topics for partition in topic.partitions]
    try:
        return await admin.list_partition_reassignments(partitions)
    except UnsupportedVersion:
        return {}
    except KafkaError as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return {}


def _factor(topic: str, partition: PartitionDescription, moves: Moves) -> int:
    """Returns the number of replicas, without those that a reassignment in progress adds."""
    move = moves.get((topic, partition.index))
    if move is None or not set(partition.replicas) & {*move.adding, *move.removing}:  # it has completed meanwhile
        return len(partition.replicas)
    return len(move.replicas) - len(move.adding)


def _shown(
    topic: TopicDescription, min_isr: ConfigEntry | None, args: argparse.Namespace, moves: Moves
) -> list[PartitionDescription] | None:
    """Returns the partitions that match the flags; None if there is no such partition."""
    if not any(getattr(args, name) for name in FILTERS):
        return list(topic.partitions)
    least = int(min_isr.value) if min_isr is not None and min_isr.value else 1
    found = [
        p
        for p in topic.partitions
        if (args.under_replicated_partitions and len(p.isr) < _factor(topic.name, p, moves))
        or (args.unavailable_partitions and p.leader == NO_NODE)
        or (args.under_min_isr_partitions and (p.leader == NO_NODE or len(p.isr) < least))
        or (args.at_min_isr_partitions and len(p.isr) == least)
    ]
    return found or None


def _document(
    topic: TopicDescription,
    overridden: Sequence[ConfigEntry],
    partitions: Sequence[PartitionDescription],
    moves: Moves,
) -> dict[str, Any]:
    none = Reassignment((), (), ())
    return {
        "name": topic.name,
        "id": encode_id(topic.id),
        "internal": topic.is_internal,
        "configs": {entry.name: entry.value for entry in overridden},
        "partitions": [
            {
                "partition": p.index,
                "leader": None if p.leader == NO_NODE else p.leader,
                "leader_epoch": p.leader_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "offline_replicas": list(p.offline_replicas),
                "adding_replicas": list(moves.get((topic.name, p.index), none).adding),
                "removing_replicas": list(moves.get((topic.name, p.index), none).removing),
            }
            for p in partitions
        ],
    }


def _topic_line(topic: TopicDescription, overridden: Sequence[ConfigEntry], moves: Moves) -> str:
    factor = _factor(topic.name, topic.partitions[0], moves) if topic.partitions else 0
    parts = [f"Topic: {topic.name}"]
    if topic.id != ZERO_UUID:
        parts.append(f"TopicId: {encode_id(topic.id)}")
    parts += [f"PartitionCount: {len(topic.partitions)}", f"ReplicationFactor: {factor}"]
    parts.append("Configs: " + ",".join(f"{entry.name}={entry.value}" for entry in overridden))
    return "\t".join(parts)


def _partition_line(name: str, partition: PartitionDescription, move: Reassignment | None, has_elr: bool) -> str:
    leader = "none" if partition.leader == NO_NODE else partition.leader
    elr = "" if has_elr else "N/A"
    moving = ""
    if move is not None:
        moving = f"\tAdding Replicas: {_listed(move.adding)}\tRemoving Replicas: {_listed(move.removing)}"
    return (
        f"\tTopic: {name}\tPartition: {partition.index}\tLeader: {leader}"
        f"\tReplicas: {_listed(partition.replicas)}\tIsr: {_listed(partition.isr)}{moving}"
        f"\tElr: {elr}\tLastKnownElr: {elr}"
    )


def _listed(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
