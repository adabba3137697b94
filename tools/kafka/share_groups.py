"""`ottla groups` --describe and --delete-offsets of share groups, in the layout of kafka-share-groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...client.admin.admin import Admin, GroupDescription, ShareOffset, checked
from .admin_command import padded, width
from .group_resets import Partition

COLUMN, WIDE = 15, 25
SHORT = 10
EPOCH, OFFSET, NAME = 12, 13, 17
NONE = "-"
Offsets = Mapping[Partition, ShareOffset | None]


async def share_offsets(admin: Admin, group: str) -> Offsets:
    """Fetches the start offsets of a share group, in the order of partitions. Raises ClientError."""
    return dict(sorted(checked(await admin.list_share_group_offsets(group)).items()))


def offset_lines(group: str, offsets: Offsets, *, verbose: bool) -> Iterator[str]:
    """Start offsets and lags."""
    if not offsets:
        yield f"\nShare group '{group}' has no offset information.\n"
        return
    rows = [["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"]]
    for (topic, index), found in offsets.items():
        numbers = (found.leader_epoch, found.start_offset, found.lag) if found is not None else (None, None, None)
        rows.append([group, topic, str(index), *(NONE if number is None else str(number) for number in numbers)])
    sizes = [width(COLUMN, [group]), width(COLUMN, (topic for topic, _ in offsets)), SHORT, OFFSET, OFFSET]
    if not verbose:
        del sizes[3]
    for row in rows:
        yield "\n" + padded(row if verbose else [*row[:3], *row[4:]], sizes)
    yield "\n"


def member_lines(group: GroupDescription, *, verbose: bool, assignment_of: Any) -> Iterator[str]:
    """Members with their assignments; `assignment_of` formats partitions."""
    if not group.members:
        return
    rows = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"]]
    for member in sorted(group.members):
        shown = assignment_of(member.partitions) if member.partitions else ""
        cells = [group.group, member.member_id, member.host, member.client_id, str(len(member.partitions))]
        rows.append([*cells, str(member.epoch), shown])
    sizes = [width(COLUMN, (row[column] for row in rows)) for column in range(4)] + [EPOCH, OFFSET]
    if not verbose:
        del sizes[5]
    for row in rows:
        yield "\n" + padded(row if verbose else [*row[:5], row[6]], sizes)
    yield "\n"


def state_lines(group: GroupDescription, coordinator: str, *, verbose: bool) -> Iterator[str]:
    """State and epochs."""
    head = ["GROUP", "COORDINATOR (ID)", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"]
    epochs = [str(group.group_epoch), str(group.assignment_epoch)]
    values = [group.group, coordinator, group.state, *epochs, str(len(group.members))]
    sizes = [width(COLUMN, [group.group]), width(WIDE, [coordinator]), COLUMN, EPOCH, NAME]
    if not verbose:
        head, values, sizes = [*head[:3], head[5]], [*values[:3], values[5]], sizes[:3]
    yield "\n" + padded(head, sizes) + "\n" + padded(values, sizes) + "\n"


def deleted_lines(errors: Mapping[str, str | None]) -> Iterator[str]:
    """The outcome of each topic whose offsets were to be deleted: the message of an error, or None."""
    sizes = [width(COLUMN, errors), 0]
    rows = [("TOPIC", "STATUS")]
    rows += [(topic, "Successful" if error is None else f"Error: {error}") for topic, error in sorted(errors.items())]
    for row in rows if errors else ():
        yield "\n" + padded(row, sizes)
    yield "\n"


def documents(offsets: Offsets) -> Sequence[Mapping[str, Any]]:
    """The offsets for --json."""
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
