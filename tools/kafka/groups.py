"""`ottla groups`: lists, describes, deletes and resets consumer groups, with the flags of kafka-consumer-groups, and
likewise share groups and streams groups.

Owns the flags of that tool; its layouts are in `group_layouts.py`, resets in `group_resets.py`. `--json` prints
`{"groups": [...]}`. With --list an entry has `group, type, state, protocol_type`; with --describe `group, type, state,
coordinator` (`id, host, port`), `assignor, group_epoch, assignment_epoch`, `members` (`member_id, instance_id,
client_id, host, member_epoch, partitions, target, upgraded, tasks, target_tasks`) and `offsets` (`topic, partition,
leader_epoch, current_offset, log_end_offset, lag, member_id, client_id, host`; of a share group `topic, partition,
leader_epoch, start_offset, lag`), with any flags; with --delete `group, error`; with --delete-offsets `group, error,
offsets` (`topic, partition, error`; no partition for a whole topic of a share group); with --reset-offsets `group,
executed, offsets` (`topic, partition, offset`). Unknown values are null.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...client.admin.admin import (
    EARLIEST,
    LATEST,
    SHARE,
    STREAMS,
    Admin,
    FoundOffset,
    GroupDescription,
    GroupListing,
    checked,
)
from ...client.net.errors import ClientError, KafkaError
from ...protocol.arguments import Parser
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ..command_line import number
from .admin_command import NONE, CannotDo, Out, admin_parser, cell, message, padded, parsed, run_admin, text_of, width
from .group_layouts import COLUMN, CONSUMERS, LAYOUTS, WIDE, Row, ShareOffsets, state_lines
from .group_resets import Partition, check_reset, partitions_of, reset_flags, reset_offsets

PROGRAM = "ottla groups"
ACTIONS = {
    "list": "print the names of groups",
    "describe": "print offsets and lag, or members, or the state of groups",
    "delete": "delete groups without members",
    "reset-offsets": "set offsets of groups without members; a dry run without --execute",
    "delete-offsets": "delete offsets of a group",
}
STATES = ("Stable", "Reconciling", "CompletingRebalance", "Dead", "Assigning", "PreparingRebalance", "Empty")
TYPES = ("Classic", "Consumer", "Share", "Streams")
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
PROTOCOLS = frozenset({"", "consumer"})  # of consumer groups; Kafka Connect, for example, has another
DEFAULT_TIMEOUT_MS = 5000
Outcomes = dict[tuple[str, int | None], ClientError | None]
"""The results of a deletion by topic and partition; None for a whole topic."""


def groups(arguments: Sequence[str]) -> int:
    parser = admin_parser(PROGRAM, "List, describe and delete groups; reset and delete their offsets.", ACTIONS)
    parser.add_argument("--group", action="append", default=[], metavar="G", help="may repeat")
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--topic", action="append", default=[], metavar="T[:N,...]", help="may repeat")
    parser.add_argument(
        "--all-topics", action="store_true", help="with --reset-offsets: all partitions with a committed offset"
    )
    parser.add_argument("--members", action="store_true", help="with --describe")
    parser.add_argument("--offsets", action="store_true", help="with --describe: the default")
    parser.add_argument("--verbose", action="store_true", help="with --describe: more columns")
    parser.add_argument(
        "--state",
        nargs="?",
        const="",
        metavar="S,...",
        help="with --describe; with --list: print states, or only groups in these",
    )
    parser.add_argument(
        "--type", nargs="?", const="", metavar="T,...", help="with --list: print types, or only groups of these"
    )
    timeout = number(INT32_MAX)
    parser.add_argument("--timeout", type=timeout, metavar="MS", default=DEFAULT_TIMEOUT_MS)
    parser.add_argument("--export", action="store_true", help="with --reset-offsets: print the format of --from-file")
    parser.add_argument("--from-file", type=Path, metavar="CSV", help="lines of [group,]topic,partition,offset")
    reset_flags(parser)
    args = parsed(parser, arguments, ACTIONS, _check)
    return run_admin(PROGRAM, args, _act, timeout_ms=args.timeout)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    if (args.describe or args.delete or args.reset_offsets) and not (args.group or args.all_groups):
        parser.error("expected --group or --all-groups")
    if not args.describe and (args.members or args.offsets or args.verbose):
        parser.error("--members, --offsets and --verbose need --describe")
    if not (args.describe or args.list) and args.state is not None:
        parser.error("--state needs --describe or --list")
    if args.type is not None and not args.list:
        parser.error("--type needs --list")
    if args.describe and args.members + args.offsets + (args.state is not None) > 1:
        parser.error("--members, --offsets and --state cannot be combined")
    if args.describe and args.state:
        parser.error("--state has no value with --describe")
    if args.list:
        args.states = _chosen(parser, args.state, STATES, "state")
        args.types = _chosen(parser, args.type, TYPES, "type")
    if args.delete and args.topic:
        parser.error("--delete cannot be combined with --topic: it deletes whole groups (--delete-offsets has --topic)")
    if args.delete_offsets and (len(args.group) != 1 or not args.topic):
        parser.error("--delete-offsets needs one --group and at least one --topic")
    if args.topic and not (args.reset_offsets or args.delete_offsets):
        parser.error("--topic needs --reset-offsets or --delete-offsets")
    check_reset(parser, args)


def _chosen(parser: Parser, text: str | None, known: Sequence[str], what: str) -> list[str]:
    """Returns the names of `--state` or `--type` in Kafka's case; an empty list means all."""
    names = {name.lower(): name for name in known}
    chosen = [part.strip().lower() for part in text.split(",")] if text else []
    if not set(chosen) <= names.keys():
        parser.error(f"Invalid {what} list '{text}'. Valid {what}s are: {', '.join(known)}")
    return [names[part] for part in chosen]


async def _act(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    if args.list:
        await _list(admin, args, out)
    elif args.delete_offsets:
        await _delete_offsets(admin, args, out)
    else:
        names = list(dict.fromkeys(args.group))
        if args.all_groups:
            names = [one.group for one in await consumer_groups(admin)]
        if args.describe:
            await _describe(admin, args, names, out)
        elif args.delete:
            await _delete(admin, names, out)
        else:
            await reset_offsets(admin, args, names, out)


async def consumer_groups(admin: Admin, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
    """Returns the consumer groups, sorted by name; with `types` groups of these. Raises ClientError."""
    kinds = [kind.lower() for kind in types]
    listed = await admin.list_groups(states=states, types=kinds)
    return [one for one in listed if one.protocol_type in PROTOCOLS or one.type in kinds]


async def _list(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    listed = await consumer_groups(admin, args.states, args.types)
    documents = [
        {"group": one.group, "type": one.type or None, "state": one.state or None, "protocol_type": one.protocol_type}
        for one in listed
    ]
    if args.state is None and args.type is None:
        out.show({"groups": documents}, (f"{one.group}\n" for one in listed))
        return
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(one.group, one.type.capitalize() or "Unknown", one.state or "Unknown") for one in listed]
    wide = width(COLUMN, (one.group for one in listed)) + 10
    columns = [0] + [1] * (args.type is not None) + [2] * (args.state is not None)
    lines = (padded([row[column] for column in columns], [wide, WIDE, WIDE]) + "\n" for row in rows)
    out.show({"groups": documents}, lines)


# Describe


async def _describe(admin: Admin, args: argparse.Namespace, names: Sequence[str], out: Out) -> None:
    described = checked(await admin.describe_groups(names))
    nodes = {node.node_id: node for node in (await admin.describe_cluster()).nodes}
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for name in sorted(described):
        group = described[name]
        node = nodes.get(group.coordinator)
        address = (node.host, node.port) if node is not None else (NONE, -1)
        coordinator = f"{address[0]}:{address[1]}  ({group.coordinator})"
        has_offsets = out.as_json or not (args.members or args.state is not None)
        if not out.as_json:
            _note_state(group, out)
        if group.type == SHARE:
            offsets: ShareOffsets = {}
            if has_offsets:
                offsets = dict(sorted(checked(await admin.list_share_group_offsets(name)).items()))
            lines += _lines(group, args, coordinator, offsets)
            documents.append({**_document(group, address, ()), "offsets": _share_documents(offsets)})
            continue
        rows = await _rows(admin, group) if has_offsets else []
        shown = await _with_starts(admin, rows) if group.type == STREAMS else rows
        lines += _lines(group, args, coordinator, shown)
        documents.append(_document(group, address, rows))
    out.show({"groups": documents}, lines)


def _lines(group: GroupDescription, args: argparse.Namespace, coordinator: str, offsets: Any) -> Iterator[str]:
    layout = LAYOUTS.get(group.type, CONSUMERS)
    if args.members:
        return layout.members(group, verbose=args.verbose)
    if args.state is not None:
        return state_lines(group, coordinator, verbose=args.verbose)
    return layout.offsets(group.group, offsets, verbose=args.verbose)


async def _with_starts(admin: Admin, rows: Sequence[Row]) -> list[Row]:
    """Fetches the log start offsets of the partitions that exist. Raises ClientError."""
    starts = await admin.list_offsets(dict.fromkeys(((row.topic, row.partition) for row in rows), EARLIEST))
    found = {where: one.offset for where, one in starts.items() if isinstance(one, FoundOffset)}
    return [row._replace(start=found.get((row.topic, row.partition))) for row in rows]


async def _rows(admin: Admin, group: GroupDescription) -> list[Row]:
    """Returns assigned partitions, by members with most of them first, then others with a committed offset."""
    committed = checked(await admin.list_group_offsets(group.group))
    members = sorted((m for m in group.members if m.partitions), key=lambda m: -len(m.partitions))
    places = [(where, member) for member in members for where in sorted(member.partitions)]
    assigned = {where for where, _ in places}
    wanted = [*places, *((where, None) for where in sorted(committed.keys() - assigned))]
    ends = await admin.list_offsets({where: LATEST for where, _ in wanted})
    found: list[Row] = []
    for where, member in wanted:
        end = ends[where]
        if isinstance(end, ClientError) and not (
            isinstance(end, KafkaError) and end.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ):
            raise end
        found.append(
            Row(where[0], where[1], committed.get(where), end.offset if isinstance(end, FoundOffset) else None, member)
        )
    return found


def _note_state(group: GroupDescription, out: Out) -> None:
    if group.state == "Empty":
        kind = {SHARE: "Share", STREAMS: "Streams"}.get(group.type, "Consumer")
        out.note(f"\n{kind} group '{group.group}' has no active members.")
    elif group.state in REBALANCING and group.type != STREAMS:
        out.note(f"\nWarning: Consumer group '{group.group}' is rebalancing.")


def _document(group: GroupDescription, address: tuple[str, int], rows: Sequence[Row]) -> dict[str, Any]:
    members = [
        {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "member_epoch": member.epoch,
            "partitions": _places(member.partitions),
            "target": None if member.target is None else _places(member.target),
            "upgraded": member.upgraded,
            "tasks": member.tasks and member.tasks._asdict(),
            "target_tasks": member.target_tasks and member.target_tasks._asdict(),
        }
        for member in group.members
    ]
    offsets = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "leader_epoch": row.epoch,
            "current_offset": row.offset,
            "log_end_offset": row.end,
            "lag": row.lag,
            "member_id": row.member and row.member.member_id,
            "client_id": row.member and row.member.client_id,
            "host": row.member and row.member.host,
        }
        for row in rows
    ]
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "coordinator": {"id": group.coordinator, "host": address[0], "port": address[1]},
        "assignor": group.protocol or None,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": members,
        "offsets": offsets,
    }


def _share_documents(offsets: ShareOffsets) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition": index,
            "leader_epoch": found and found.leader_epoch,
            "start_offset": found and found.start_offset,
            "lag": found and found.lag,
        }
        for (topic, index), found in offsets.items()
    ]


def _places(partitions: Iterable[Partition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": partition} for topic, partition in sorted(partitions)]


# Delete


async def _kind(admin: Admin, names: Sequence[str]) -> str:
    """Returns what to call these groups in a text."""
    try:
        types = {one.type for one in await admin.list_groups() if one.group in names}
    except ClientError:  # of a node that need not be the coordinator of any of them
        return "groups"
    if not types & {SHARE, STREAMS}:
        return "consumer groups"
    return f"{types.pop()} groups" if len(types) == 1 else "groups"


async def _delete(admin: Admin, names: Sequence[str], out: Out) -> None:
    kind = await _kind(admin, names)
    done = await admin.delete_groups(names)
    lines: list[str] = []
    gone = [name for name, error in done.items() if error is None]
    quoted = ", ".join(f"'{name}'" for name in gone)
    for name, error in done.items():
        if error is not None:
            out.fail(f"Group '{name}' could not be deleted due to: {message(error)}")
    if len(gone) == len(done):
        lines.append(f"Deletion of requested {kind} ({quoted}) was successful.\n")
    elif gone:
        lines.append(f"\nThese {kind} were deleted successfully: {quoted}\n")
    out.show({"groups": [{"group": name, "error": text_of(error)} for name, error in done.items()]}, lines)


async def _delete_offsets(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    (group,) = args.group
    described = (await admin.describe_groups([group]))[group]
    is_share = not isinstance(described, ClientError) and described.type == SHARE
    outcomes, whole = await (_deleted_of_topics if is_share else _deleted_of_partitions)(admin, group, args.topic)
    if whole is not None:
        out.fail(f"offsets of group '{group}' were not deleted: {message(whole)}")
    elif any(outcomes.values()):
        out.fail(f"some offsets of group '{group}' were not deleted")
    offsets = [
        {"topic": topic, "partition": partition, "error": text_of(error)}
        for (topic, partition), error in outcomes.items()
    ]
    document = {"groups": [{"group": group, "error": text_of(whole), "offsets": offsets}]}
    out.show(document, _deleted_lines(group, whole, outcomes, is_share))


async def _deleted_of_partitions(admin: Admin, group: str, texts: Sequence[str]) -> tuple[Outcomes, ClientError | None]:
    """Deletes offsets; returns the outcomes, and the error if it is one of the whole request."""
    outcomes: Outcomes = {}
    wanted: list[Partition] = []
    for topic, found in await partitions_of(admin, texts):
        if isinstance(found, ClientError):
            outcomes[topic, None] = found
        else:
            wanted += [(topic, partition) for partition in found]
    try:
        return outcomes | await admin.delete_group_offsets(group, dict.fromkeys(wanted)), None
    except KafkaError as error:
        return outcomes | dict.fromkeys(wanted, error), error


async def _deleted_of_topics(admin: Admin, group: str, topics: Sequence[str]) -> tuple[Outcomes, ClientError | None]:
    """Deletes the offsets of whole topics: a share group has no others to delete."""
    if some := next((topic for topic in topics if ":" in topic), None):
        raise CannotDo(f"'{some}': the offsets of a share group are deleted for whole topics")
    try:
        results = await admin.delete_share_group_offsets(group, topics)
    except KafkaError as error:
        return {}, error
    return {(topic, None): error for topic, error in results.items()}, None


def _deleted_lines(group: str, whole: ClientError | None, results: Outcomes, is_share: bool) -> Iterator[str]:
    """Formats the outcome of each partition, or of each topic of a share group."""
    if not any(results.values()) and whole is None and not is_share:
        yield f"Request succeeded for deleting offsets from group {group}.\n"
    rows = [("TOPIC", "PARTITION", "STATUS")]
    for topic, partition in sorted(results, key=lambda place: place[0] if is_share else f"{place[0]}{place[1]}"):
        error = results[topic, partition]
        rows.append((topic, cell(partition), "Successful" if error is None else f"Error: {message(error)}"))
    sizes = [width(COLUMN, (topic for topic, _ in results)), 10, 0 if is_share else COLUMN]
    for row in rows if results or not is_share else ():
        yield "\n" + (padded(row[::2], sizes[::2]) if is_share else padded(row, sizes))
    yield "\n"
