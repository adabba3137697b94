"""`ottla groups`: lists, describes, deletes and resets consumer groups, with the flags of kafka-consumer-groups, and
likewise share groups (`share_groups.py`) and streams groups (`streams_groups.py`).

Owns the flags and the layout of that tool; resets are in `group_resets.py`. `--json` prints
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...client.admin.admin import (
    LATEST,
    SHARE,
    STREAMS,
    Admin,
    FoundOffset,
    GroupDescription,
    GroupListing,
    MemberDescription,
    OffsetAndMetadata,
    checked,
)
from ...client.net.errors import ClientError, KafkaError
from ...protocol.arguments import Parser
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from ..command_line import number
from . import share_groups, streams_groups
from .admin_command import (
    CannotDo,
    Out,
    add_actions,
    admin_parser,
    check_action,
    message,
    padded,
    parsed,
    run_admin,
    text_of,
    width,
)
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
NONE = "-"
COLUMN, WIDE = 15, 20
DEFAULT_TIMEOUT_MS = 5000


class Row(NamedTuple):
    """A partition of a described group; `member` is None if it is not assigned."""

    topic: str
    partition: int
    committed: OffsetAndMetadata | None
    end: int | None
    member: MemberDescription | None

    @property
    def epoch(self) -> int | None:
        """The leader epoch of the commit, or None."""
        return None if self.committed is None or self.committed.leader_epoch < 0 else self.committed.leader_epoch

    @property
    def lag(self) -> int | None:
        """The log end offset minus the committed offset, or None."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


def groups(arguments: Sequence[str]) -> int:
    """`ottla groups`: runs the command and returns the exit code."""
    parser = admin_parser(PROGRAM, "List, describe and delete groups; reset and delete their offsets.")
    add_actions(parser, ACTIONS)
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
    timeout = number("time in ms", INT32_MAX)
    parser.add_argument("--timeout", type=timeout, metavar="MS", default=DEFAULT_TIMEOUT_MS)
    parser.add_argument("--export", action="store_true", help="with --reset-offsets: print the format of --from-file")
    parser.add_argument("--from-file", type=Path, metavar="CSV", help="lines of [group,]topic,partition,offset")
    reset_flags(parser)
    args = parsed(parser, arguments, _check)
    return run_admin(PROGRAM, args, _act, timeout_ms=args.timeout)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    check_action(parser, args, ACTIONS)
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
        {
            "group": one.group,
            "type": one.type or None,
            "state": one.state or None,
            "protocol_type": one.protocol_type,
        }
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
            offsets: share_groups.Offsets = {}
            if has_offsets:
                offsets = await share_groups.share_offsets(admin, name)
            lines += _share_lines(group, args, coordinator, offsets)
            documents.append({**_document(group, address, ()), "offsets": share_groups.documents(offsets)})
            continue
        rows = await _rows(admin, group) if has_offsets else []
        if group.type == STREAMS:
            starts = await streams_groups.starts(admin, [(row.topic, row.partition) for row in rows])
            lines += _streams_lines(group, args, coordinator, [_progress(row, starts) for row in rows])
        elif args.members:
            lines += member_lines(group, verbose=args.verbose)
        elif args.state is not None:
            lines += _state_lines(group, coordinator, args.verbose)
        elif rows:
            lines += _offset_lines(name, rows, args.verbose)
        documents.append(_document(group, address, rows))
    out.show({"groups": documents}, lines)


def _share_lines(
    group: GroupDescription, args: argparse.Namespace, coordinator: str, offsets: share_groups.Offsets
) -> Iterator[str]:
    if args.members:
        return share_groups.member_lines(group, verbose=args.verbose, assignment_of=_assignment)
    if args.state is not None:
        return share_groups.state_lines(group, coordinator, verbose=args.verbose)
    return share_groups.offset_lines(group.group, offsets, verbose=args.verbose)


def _streams_lines(
    group: GroupDescription, args: argparse.Namespace, coordinator: str, rows: Sequence[streams_groups.Progress]
) -> Iterator[str]:
    if args.members:
        return streams_groups.member_lines(group, verbose=args.verbose)
    if args.state is not None:
        return streams_groups.state_lines(group, coordinator, verbose=args.verbose)
    return streams_groups.offset_lines(group.group, rows, verbose=args.verbose)


def _progress(row: Row, starts: Mapping[Partition, int]) -> streams_groups.Progress:
    offset = None if row.committed is None else row.committed.offset
    start = starts.get((row.topic, row.partition))
    lag = row.end - start if offset is None and row.end is not None and start is not None else row.lag
    return streams_groups.Progress(row.topic, row.partition, offset, row.epoch, row.end, lag)


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


def _cell(value: object) -> str:
    return NONE if value is None else str(value)


def _offset_lines(group: str, rows: Sequence[Row], verbose: bool) -> Iterator[str]:
    head = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    table: list[list[object]] = [[*head, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for row in rows:
        offset = None if row.committed is None else row.committed.offset
        numbers = [_cell(value) for value in (row.epoch, offset, row.end, row.lag)]
        member = row.member
        who = [NONE] * 3 if member is None else [member.member_id, member.host, member.client_id]
        table.append([group, row.topic, row.partition, *numbers, *who])
    widths = [width(COLUMN, (line[column] for line in table)) for column in (0, 1, 7, 8)]
    sizes = [widths[0], widths[1], 10, COLUMN, COLUMN, COLUMN, COLUMN, widths[2], widths[3]]
    if not verbose:
        del sizes[3]
        table = [[*line[:3], *line[4:]] for line in table]
    for line in table:
        yield "\n" + padded(line, sizes)
    yield "\n"


def member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    """Formats the members of a consumer group; `UPGRADED` is shown while a group migrates (KIP-1099)."""
    members = group.members
    has_instances = any(member.instance_id for member in members)
    is_migrating = len({member.upgraded for member in members} - {None}) > 1
    rows: list[list[object]] = [["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]]
    more = [["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]]
    if is_migrating:
        more[0].append("UPGRADED")
    for m in members:
        rows.append([group.group, m.member_id, m.instance_id or "", m.host, m.client_id, len(m.partitions)])
        epochs = [_cell(m.epoch), _assignment(m.partitions), _cell(group.assignment_epoch), _assignment(m.target or ())]
        more.append([*epochs, _cell(m.upgraded).lower()] if is_migrating else epochs)
    widths = [width(COLUMN, (row[column] for row in rows)) for column in range(6)]
    widths[2] = width(17, (row[2] for row in rows))
    sizes = [COLUMN, width(WIDE, (row[1] for row in more)), COLUMN, width(WIDE, (row[3] for row in more))]
    kept = [column for column in range(6) if column != 2 or has_instances]
    for index, row in enumerate(rows):
        line = padded([row[column] for column in kept], [widths[column] for column in kept]) + " "
        if verbose:
            line += padded(more[index], sizes)
        yield f"{line}\n" if index else f"\n{line}\n"


def _assignment(partitions: Iterable[Partition]) -> str:
    """Returns a text such as `t:0,1;u:0`, or a dash for no partitions."""
    found: dict[str, list[str]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(str(partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in found.items()) or NONE


def _state_lines(group: GroupDescription, coordinator: str, verbose: bool) -> Iterator[str]:
    head = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
    epochs = [_cell(group.group_epoch), _cell(group.assignment_epoch)]
    values = [group.group, coordinator, group.protocol or NONE, group.state, *epochs]
    sizes = [COLUMN, 25, WIDE, WIDE, COLUMN, 25]
    sizes = [width(size, [value]) for size, value in zip(sizes, values, strict=True)]
    count = 6 if verbose else 4
    yield "\n" + padded([*head[:count], "#MEMBERS"], sizes[:count])
    yield "\n" + padded([*values[:count], len(group.members)], sizes[:count]) + "\n"


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
            "tasks": streams_groups.document(member.tasks),
            "target_tasks": streams_groups.document(member.target_tasks),
        }
        for member in group.members
    ]
    offsets = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "leader_epoch": row.epoch,
            "current_offset": None if row.committed is None else row.committed.offset,
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
    if not isinstance(described, ClientError) and described.type == SHARE:
        await _delete_share_offsets(admin, group, args.topic, out)
        return
    found = await partitions_of(admin, args.topic)
    results: dict[tuple[str, int | None], ClientError | None] = {}
    wanted: list[Partition] = []
    for topic, outcome in found:
        if isinstance(outcome, ClientError):
            results[topic, None] = outcome
        else:
            wanted += [(topic, partition) for partition in outcome]
    whole: ClientError | None = None
    try:
        results |= await admin.delete_group_offsets(group, dict.fromkeys(wanted))
    except KafkaError as error:
        whole = error
        results |= dict.fromkeys(wanted, error)
    if whole is not None:
        out.fail(f"offsets of group '{group}' were not deleted: {message(whole)}")
    elif any(results.values()):
        out.fail(f"some offsets of group '{group}' were not deleted")
    out.show(_deleted_document(group, whole, results), _deleted_lines(group, whole, results))


async def _delete_share_offsets(admin: Admin, group: str, topics: Sequence[str], out: Out) -> None:
    """Deletes the offsets of whole topics: a share group has no others to delete."""
    if some := next((topic for topic in topics if ":" in topic), None):
        raise CannotDo(f"'{some}': the offsets of a share group are deleted for whole topics")
    whole: ClientError | None = None
    try:
        results = await admin.delete_share_group_offsets(group, topics)
    except KafkaError as error:
        whole, results = error, {}
        out.fail(f"offsets of group '{group}' were not deleted: {message(error)}")
    if any(results.values()):
        out.fail(f"some offsets of group '{group}' were not deleted")
    out.show(
        _deleted_document(group, whole, {(topic, None): error for topic, error in results.items()}),
        share_groups.deleted_lines({topic: error and message(error) for topic, error in results.items()}),
    )


def _deleted_document(
    group: str, whole: ClientError | None, results: Mapping[tuple[str, int | None], ClientError | None]
) -> dict[str, Any]:
    offsets = [
        {"topic": topic, "partition": partition, "error": text_of(error)}
        for (topic, partition), error in results.items()
    ]
    return {"groups": [{"group": group, "error": text_of(whole), "offsets": offsets}]}


def _deleted_lines(
    group: str, whole: ClientError | None, results: Mapping[tuple[str, int | None], ClientError | None]
) -> Iterator[str]:
    if not any(results.values()) and whole is None:
        yield f"Request succeeded for deleting offsets from group {group}.\n"
    sizes = [width(COLUMN, (topic for topic, _ in results)), 10, COLUMN]
    yield "\n" + padded(["TOPIC", "PARTITION", "STATUS"], sizes)
    for (topic, partition), error in sorted(results.items(), key=lambda one: f"{one[0][0]}{one[0][1]}"):
        status = "Successful" if error is None else f"Error: {message(error)}"
        yield "\n" + padded([topic, _cell(partition), status], sizes)
    yield "\n"
