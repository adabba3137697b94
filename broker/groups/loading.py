"""Reads the records and transaction ends of a partition of `__consumer_offsets`, and restores groups from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...storage.errors import StorageError
from ...storage.producers.txn_index import COMMIT, read_marker
from ..metadata.log import appended_batches
from .classic.state import Group as ClassicGroup
from .common_state import EpochSet
from .offsets import Offsets, OpenTransactions
from .record_form import GroupChange
from .records import GroupEntry, LogEntry, OffsetEntry, TransactionalRecord, TransactionEnd, decode
from .registry import AnyGroup
from .streams.state import EpochSet as StreamsEpochSet

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog


def stored_entries(log: PartitionLog) -> Iterator[LogEntry]:
    """Yields every record and every end of a transaction in the log, oldest first, from any record format. Raises
    StorageError.
    """
    start = log.log_start_offset
    try:
        for data, position, header in appended_batches(log):
            if header.is_control:
                marker = read_marker(data, position, header)
                if marker is not None:
                    yield TransactionEnd(header.producer_id, marker.kind == COMMIT)
                continue
            for record in formats.records(data, position):
                if record.offset < start:
                    continue
                key = record.key or b""
                if header.is_transactional:
                    yield TransactionalRecord(header.producer_id, key, record.value)
                else:
                    yield key, record.value
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{log.topic}-{log.partition}: {error}") from error


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
    """Applies a change of a group of any kind but classic; a tombstone does not create the group."""
    group_id, change, is_tombstone, group_class = decoded
    group: Any = groups.get(group_id)
    if not isinstance(group, group_class):
        if is_tombstone:
            return
        group = groups[group_id] = group_class(group_id, first_epoch)
    if is_tombstone and isinstance(change, EpochSet | StreamsEpochSet):
        del groups[group_id]
    else:
        group.apply(change)
