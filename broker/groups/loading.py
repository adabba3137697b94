"""From the log back to the groups: what a partition of `__consumer_offsets` says when it is read from its beginning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .offsets import Offsets, OpenTransactions
from .records import GroupEntry, LogEntry, OffsetEntry, TransactionalRecord, TransactionEnd, decode
from .state import Group


def load_groups(log: Iterable[LogEntry], order: Iterator[int]) -> dict[str, tuple[Group, Offsets]]:
    """Each group of the log with its offsets; later records win, tombstones remove. `order` numbers the commits.

    A group with offsets but no record of its own only stores them. Raises MalformedMessage for a record that is none.
    """
    groups: dict[str, Group] = {}
    offsets: dict[str, Offsets] = {}
    open_in = OpenTransactions()  # of this partition, whatever its index
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
        said = decode(key, value)
        if isinstance(said, GroupEntry):
            if said.group is None:
                groups.pop(said.group_id, None)
            else:
                groups[said.group_id] = said.group
        elif isinstance(said, OffsetEntry):
            table = offsets.setdefault(said.group_id, Offsets())
            if said.committed is None:
                table.remove(said.partition)
            elif producer_id is None:
                table.put(said.partition, said.committed, next(order))
            else:
                table.put_pending(producer_id, said.partition, said.committed, next(order))
                open_in.note(0, producer_id, said.group_id)
    names = [*groups, *(name for name in offsets if name not in groups)]
    loaded = {name: (groups.get(name, Group(name)), offsets.get(name, Offsets())) for name in names}
    return {name: (group, table) for name, (group, table) in loaded.items() if name in groups or not table.unused}
