"""`ottla groups --describe` for streams groups, in the layout of kafka-streams-groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...client.admin.admin import EARLIEST, Admin, FoundOffset, GroupDescription, MemberDescription, MemberTasks
from ...protocol.named import NamedTuple
from .admin_command import padded, width
from .group_resets import Partition

COLUMN, WIDE, SHORT = 15, 25, 10
NONE = "-"


class Progress(NamedTuple):
    """A source partition of the group; `lag` counts from the log start without a committed offset."""

    topic: str
    partition: int
    current: int | None
    epoch: int | None
    end: int | None
    lag: int | None


async def starts(admin: Admin, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Fetches the log start offsets of the partitions that exist. Raises ClientError."""
    found = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    return {where: one.offset for where, one in found.items() if isinstance(one, FoundOffset)}


def offset_lines(group: str, rows: Sequence[Progress], *, verbose: bool) -> Iterator[str]:
    """Offsets and lags of the source partitions."""
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"]
    kept = range(7) if verbose else (0, 1, 2, 6)
    sizes = [width(COLUMN, [group]), width(COLUMN, (row.topic for row in rows)), SHORT, *[COLUMN] * 4]
    if not verbose:
        sizes = sizes[:3]
    table = [head]
    for row in rows:
        numbers = (row.current, row.epoch, row.end, row.lag)
        shown = [NONE if number is None else str(number) for number in numbers]
        table.append([group, row.topic, str(row.partition), *shown])
    for line in table:
        yield padded([line[column] for column in kept], sizes) + "\n"


def member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    """Members with their tasks; with `verbose` also their target."""
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
    sizes = [first, WIDE, COLUMN + ids, COLUMN, COLUMN, *sizes]
    yield padded([*head, "PROCESS", "CLIENT-ID", "ASSIGNMENTS"], sizes) + "\n"
    for one in members:
        protocol = "classic" if one.upgraded is False else "streams"
        name = f"{group.topology_epoch!s:<15}{one.member_id}"
        cells = [group.group, str(group.assignment_epoch), name, protocol, str(one.epoch), one.process, one.client_id]
        yield padded([*cells, _shown(one, verbose=True)], sizes) + "\n"


def _shown(member: MemberDescription, *, verbose: bool) -> str:
    """The tasks as kafka-streams-groups prints them: `ACTIVE: 0:[0,1]; STANDBY: 1:[0]; `."""
    text = _kinds(member.tasks, "")
    return text + (_kinds(member.target_tasks, "TARGET-") if verbose else "")


def _kinds(tasks: MemberTasks | None, prefix: str) -> str:
    if tasks is None:
        return ""
    found = ""
    for name, some in zip(("ACTIVE", "STANDBY", "WARMUP"), tasks, strict=True):
        if some:
            found += f"{prefix}{name}: "
            found += "".join(f"{id}:[{','.join(map(str, indexes))}]; " for id, indexes in some.items())
    return found


def state_lines(group: GroupDescription, coordinator: str, *, verbose: bool) -> Iterator[str]:
    """State and epochs."""
    head = ["GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    epochs = [str(group.group_epoch), str(group.assignment_epoch)]
    values = [group.group, coordinator, group.state, *epochs, str(len(group.members))]
    sizes = [width(COLUMN, [group.group]), width(WIDE, [coordinator]), WIDE, COLUMN, WIDE]
    if not verbose:
        head, values, sizes = [*head[:3], head[5]], [*values[:3], values[5]], sizes[:3]
    yield padded(head, sizes) + "\n"
    yield padded(values, sizes) + "\n"


def document(tasks: MemberTasks | None) -> Mapping[str, Any] | None:
    """The tasks for --json."""
    return None if tasks is None else {name: some for name, some in tasks._asdict().items()}
