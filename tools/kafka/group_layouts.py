"""The output of `ottla groups --describe`: members, states and offsets in the layouts of kafka-consumer-groups,
kafka-share-groups (KIP-932) and kafka-streams-groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ...client.admin.admin import (
    SHARE,
    STREAMS,
    GroupDescription,
    MemberDescription,
    MemberTasks,
    OffsetAndMetadata,
    ShareOffset,
)
from ...protocol.named import NamedTuple
from .admin_command import NONE, cell, padded, width
from .group_resets import Partition

COLUMN, WIDE, WIDER, SHORT = 15, 20, 25, 10
EPOCH, OFFSET, NAME = 12, 13, 17  # of share groups
ShareOffsets = Mapping[Partition, ShareOffset | None]


class Row(NamedTuple):
    """A partition of a described group; `member` is None if it is not assigned.

    `start` is the log start offset, from which streams groups count the lag without a committed offset.
    """

    topic: str
    partition: int
    committed: OffsetAndMetadata | None
    end: int | None
    member: MemberDescription | None
    start: int | None = None

    @property
    def offset(self) -> int | None:
        """The committed offset, or None."""
        return None if self.committed is None else self.committed.offset

    @property
    def epoch(self) -> int | None:
        """The leader epoch of the commit, or None."""
        return None if self.committed is None or self.committed.leader_epoch < 0 else self.committed.leader_epoch

    @property
    def lag(self) -> int | None:
        """The log end offset minus the committed offset, or None."""
        since = self.start if self.offset is None else self.offset
        return None if since is None or self.end is None else self.end - since


def _table(rows: Iterable[Sequence[object]], widths: Sequence[int], left_out: int | None) -> Iterator[str]:
    """Yields the rows, each after a line end, without the column `left_out`."""
    kept = [place for place in range(len(widths)) if place != left_out]
    for row in rows:
        yield "\n" + padded([*(row[place] for place in kept), *row[len(widths) :]], [widths[place] for place in kept])
    yield "\n"


# Consumer groups


def _offset_lines(group: str, rows: Sequence[Row], *, verbose: bool) -> Iterator[str]:
    if not rows:
        return
    head = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    table: list[list[object]] = [[*head, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for row in rows:
        numbers = [cell(value) for value in (row.epoch, row.offset, row.end, row.lag)]
        member = row.member
        who = [NONE] * 3 if member is None else [member.member_id, member.host, member.client_id]
        table.append([group, row.topic, row.partition, *numbers, *who])
    widths = [width(COLUMN, (line[column] for line in table)) for column in (0, 1, 7, 8)]
    sizes = [widths[0], widths[1], SHORT, COLUMN, COLUMN, COLUMN, COLUMN, widths[2], widths[3]]
    yield from _table(table, sizes, None if verbose else 3)


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
        epochs = [cell(m.epoch), _assignment(m.partitions), cell(group.assignment_epoch), _assignment(m.target or ())]
        more.append([*epochs, cell(m.upgraded).lower()] if is_migrating else epochs)
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


# Share groups


def _share_offset_lines(group: str, offsets: ShareOffsets, *, verbose: bool) -> Iterator[str]:
    if not offsets:
        yield f"\nShare group '{group}' has no offset information.\n"
        return
    rows = [["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"]]
    for (topic, index), found in offsets.items():
        numbers = (found.leader_epoch, found.start_offset, found.lag) if found is not None else (None, None, None)
        rows.append([group, topic, str(index), *map(cell, numbers)])
    sizes = [width(COLUMN, [group]), width(COLUMN, (topic for topic, _ in offsets)), SHORT, OFFSET, OFFSET]
    yield from _table(rows, sizes, None if verbose else 3)


def _share_member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    if not group.members:
        return
    rows = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"]]
    for member in sorted(group.members):
        shown = _assignment(member.partitions) if member.partitions else ""
        cells = [group.group, member.member_id, member.host, member.client_id, str(len(member.partitions))]
        rows.append([*cells, str(member.epoch), shown])
    sizes = [width(COLUMN, (row[column] for row in rows)) for column in range(4)] + [EPOCH, OFFSET]
    yield from _table(rows, sizes, None if verbose else 5)


# Streams groups


def _streams_offset_lines(group: str, rows: Sequence[Row], *, verbose: bool) -> Iterator[str]:
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"]
    kept = range(7) if verbose else (0, 1, 2, 6)
    sizes = [width(COLUMN, [group]), width(COLUMN, (row.topic for row in rows)), SHORT, *[COLUMN] * 4]
    if not verbose:
        sizes = sizes[:3]
    table = [head]
    for row in rows:
        numbers = (row.offset, row.epoch, row.end, row.lag)
        table.append([group, row.topic, str(row.partition), *map(cell, numbers)])
    for line in table:
        yield padded([line[column] for column in kept], sizes) + "\n"


def _streams_member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    members = group.members
    ids = width(COLUMN, (one.member_id for one in members))
    sizes = [width(COLUMN, (one.process for one in members)), width(COLUMN, (one.client_id for one in members))]
    first = width(COLUMN, [group.group])
    if not verbose:
        yield padded(["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"], [first, ids, *sizes]) + "\n"
        for one in members:
            cells = [group.group, one.member_id, one.process, one.client_id, _shown(one, verbose=False)]
            yield padded(cells, [first, ids, *sizes]) + "\n"
        return
    # Kafka prints no space between these two columns.
    head = ["GROUP", "TARGET-ASSIGNMENT-EPOCH", f"{'TOPOLOGY-EPOCH':<15}MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH"]
    sizes = [first, WIDER, COLUMN + ids, COLUMN, COLUMN, *sizes]
    yield padded([*head, "PROCESS", "CLIENT-ID", "ASSIGNMENTS"], sizes) + "\n"
    for one in members:
        protocol = "classic" if one.upgraded is False else "streams"
        name = f"{group.topology_epoch!s:<15}{one.member_id}"
        cells = [group.group, str(group.assignment_epoch), name, protocol, str(one.epoch), one.process, one.client_id]
        yield padded([*cells, _shown(one, verbose=True)], sizes) + "\n"


def _shown(member: MemberDescription, *, verbose: bool) -> str:
    """The tasks as kafka-streams-groups prints them: `ACTIVE: 0:[0,1]; STANDBY: 1:[0]; `; with `verbose` also their
    target."""
    return _kinds(member.tasks, "") + (_kinds(member.target_tasks, "TARGET-") if verbose else "")


def _kinds(tasks: MemberTasks | None, prefix: str) -> str:
    if tasks is None:
        return ""
    found = ""
    for name, some in zip(("ACTIVE", "STANDBY", "WARMUP"), tasks, strict=True):
        if some:
            found += f"{prefix}{name}: "
            found += "".join(f"{id}:[{','.join(map(str, indexes))}]; " for id, indexes in some.items())
    return found


class Layout(NamedTuple):
    """The functions of a type of groups for members, and for offsets: `Row`s, or `ShareOffsets`; and the columns of the
    state: the least widths of STATE, GROUP-EPOCH and the assignment epoch, and the heading of the last."""

    members: Callable[..., Iterator[str]]
    offsets: Callable[..., Iterator[str]]
    widths: tuple[int, int, int]
    epoch: str = "TARGET-ASSIGNMENT-EPOCH"


CONSUMERS = Layout(member_lines, _offset_lines, (WIDE, COLUMN, WIDER))
LAYOUTS = {
    SHARE: Layout(_share_member_lines, _share_offset_lines, (COLUMN, EPOCH, NAME), "ASSIGNMENT-EPOCH"),
    STREAMS: Layout(_streams_member_lines, _streams_offset_lines, (WIDER, COLUMN, WIDER)),
}


def state_lines(group: GroupDescription, coordinator: str, *, verbose: bool) -> Iterator[str]:
    """Formats the state of a group of any type."""
    layout = LAYOUTS.get(group.type, CONSUMERS)
    columns = [("GROUP", group.group, COLUMN), ("COORDINATOR (ID)", coordinator, WIDER)]
    if layout is CONSUMERS:
        columns.append(("ASSIGNMENT-STRATEGY", group.protocol or NONE, WIDE))
    columns.append(("STATE", group.state, layout.widths[0]))
    if verbose:
        columns.append(("GROUP-EPOCH", cell(group.group_epoch), layout.widths[1]))
        columns.append((layout.epoch, cell(group.assignment_epoch), layout.widths[2]))
    sizes = [width(least, [value]) for _, value, least in columns]
    for line in ([one[0] for one in columns] + ["#MEMBERS"], [one[1] for one in columns] + [str(len(group.members))]):
        yield padded(line, sizes) + "\n" if group.type == STREAMS else "\n" + padded(line, sizes)
    if group.type != STREAMS:
        yield "\n"
