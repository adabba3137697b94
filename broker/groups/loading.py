"""Restores groups from a partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .classic.state import Group as ClassicGroup
from .consumer.records import GroupChange
from .consumer.state import EpochSet
from .consumer.state import Group as ConsumerGroup
from .offsets import Offsets, OpenTransactions
from .records import GroupEntry, LogEntry, OffsetEntry, TransactionalRecord, TransactionEnd, decode
from .registry import AnyGroup
from .share.records import ShareGroupChange
from .share.state import AssignmentEpochSet
from .share.state import EpochSet as ShareEpochSet
from .share.state import Group as ShareGroup
from .streams.records import StreamsGroupChange
from .streams.state import EpochSet as StreamsEpochSet
from .streams.state import Group as StreamsGroup


def load_groups(
    log: Iterable[LogEntry], order: Iterator[int], first_epoch: int = 0
) -> dict[str, tuple[AnyGroup, Offsets]]:
    """Returns the groups of the log with their offsets; later records override, tombstones remove. `order` numbers the
    commits, `first_epoch` is that of a group without members of any kind but classic.

    A group with offsets but without a group record only stores offsets. Raises MalformedMessage for an invalid record.
    """
    groups: dict[str, AnyGroup] = {}
    offsets: dict[str, Offsets] = {}
    open_in = OpenTransactions()  # this log is one partition, so the partition index is a constant
    for entry in log:
        if isinstance(entry, TransactionEnd):
            for group_id in open_in.end(0, entry.producer_id):
                offsets[group_id].end_transaction(entry.producer_id, committed=entry.committed)
            continue
        producer_id = None
        if isinstance(entry, TransactionalRecord):
            producer_id, key, value = entry
        else:
            key, value = entry
        decoded = decode(key, value)
        if isinstance(decoded, GroupEntry):
            if decoded.group is not None:
                groups[decoded.group_id] = decoded.group
            elif isinstance(groups.get(decoded.group_id), ClassicGroup):
                del groups[decoded.group_id]
        elif isinstance(decoded, GroupChange):
            _apply(groups, decoded, first_epoch)
        elif isinstance(decoded, ShareGroupChange):
            _apply_share(groups, decoded, first_epoch)
        elif isinstance(decoded, StreamsGroupChange):
            _apply_streams(groups, decoded, first_epoch)
        elif isinstance(decoded, OffsetEntry):
            table = offsets.setdefault(decoded.group_id, Offsets())
            if decoded.committed is None:
                table.remove(decoded.partition)
            elif producer_id is None:
                table.put(decoded.partition, decoded.committed, next(order))
            else:
                table.put_pending(producer_id, decoded.partition, decoded.committed, next(order))
                open_in.note(0, producer_id, decoded.group_id)
    names = [*groups, *(name for name in offsets if name not in groups)]
    loaded = {name: (groups.get(name, ClassicGroup(name)), offsets.get(name, Offsets())) for name in names}
    return {name: (group, table) for name, (group, table) in loaded.items() if name in groups or not table.unused}


def _apply(groups: dict[str, AnyGroup], decoded: GroupChange, first_epoch: int) -> None:
    """Applies a change of a group of the consumer protocol; a tombstone does not create the group."""
    group = groups.get(decoded.group_id)
    if not isinstance(group, ConsumerGroup):
        if decoded.is_tombstone:
            return
        group = groups[decoded.group_id] = ConsumerGroup(decoded.group_id, first_epoch)
    if isinstance(decoded.change, EpochSet) and decoded.is_tombstone:
        del groups[decoded.group_id]
    else:
        group.apply(decoded.change)


def _apply_share(groups: dict[str, AnyGroup], decoded: ShareGroupChange, first_epoch: int) -> None:
    """Applies a change of a share group; a tombstone of the epoch ends the group."""
    group_id, change = decoded
    if isinstance(change, ShareEpochSet) and change.epoch is None:
        if isinstance(groups.get(group_id), ShareGroup):
            del groups[group_id]
        return
    group = groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if change[-1] is None or (isinstance(change, AssignmentEpochSet) and change.epoch is None):
            return
        group = groups[group_id] = ShareGroup(group_id, first_epoch)
    group.apply(change)


def _apply_streams(groups: dict[str, AnyGroup], decoded: StreamsGroupChange, first_epoch: int) -> None:
    """Applies a change of a streams group; a tombstone does not create the group."""
    group = groups.get(decoded.group_id)
    if not isinstance(group, StreamsGroup):
        if decoded.is_tombstone:
            return
        group = groups[decoded.group_id] = StreamsGroup(decoded.group_id, first_epoch)
    if isinstance(decoded.change, StreamsEpochSet) and decoded.is_tombstone:
        del groups[decoded.group_id]
    else:
        group.apply(decoded.change)
