"""The steps of a compaction of whole directories: the plan, the tasks, and the work of the driver.

Owns which partitions are compacted with which settings, the rewriting of a group of segments, and the order in which
the driver puts groups in place. The rules are those of the broker's cleaner (`storage/compaction/compaction.py`), which
is called here: a partition gets the result of one cleaner pass with room for all keys. Only the surviving records are
found differently, see `last_offsets`. No Spark.

Within a partition groups are put in place in order, the oldest first: otherwise a tombstone could be dropped before the
value that it deletes. The cleaner's checkpoint is written before the first group, since offsets may be missing from
then on, and after the last one with the end of the clean part. After an interruption the next run starts the partition
again, and finished groups stay in place.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....protocol.records.validate import Rules
from ....storage.compaction.cleaned_transactions import aborted_transactions
from ....storage.compaction.compaction import (
    Clean,
    Dirtiness,
    SegmentFacts,
    dirtiness,
    facts_of,
    groups,
    task_of,
    tombstones_from_ms,
)
from ....storage.config import LogConfig
from ....storage.errors import StorageError
from ....storage.format import checkpoint
from ....storage.io.copy_on_write import Overlay, ReadOnlyFiles
from ....storage.io.files import DiskFiles, Files
from ....storage.log.recovery import LogCheckpoints
from ....storage.log_dir.offset_checkpoints import OffsetCheckpoints
from ....storage.partition_log import PartitionLog, TopicIdPartition
from ....storage.producers.txn_index import AbortedTransaction
from ...backend import ReadError, as_read_error
from ..in_place.directory_hold import COMPACTED, Held, put_in_place, sweep
from ..in_place.disk_space import Free, Room, check_room, free_bytes, under_way
from .configs import Release, Settings
from .last_offsets import ROWS, KeysFound, KeysItem
from .tasks import GroupDone, GroupItem

# -- the plan


@dataclass(slots=True)
class PartitionPlan:
    """The plan for a partition: `task` as for the cleaner, `groups` of its segments, and for the present log the
    aborted transactions, the number of segments and their bytes. Without groups there is nothing to do."""

    topic: str
    partition: int
    root: str
    task: Clean
    dirty: Dirtiness
    groups: list[list[SegmentFacts]]
    aborted: list[AbortedTransaction]
    segments: int
    bytes: int

    @property
    def directory(self) -> str:
        return self.task.directory

    @property
    def rewritten_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.task.segments) if self.groups else 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def checkpoints(files: Files, root: str) -> OffsetCheckpoints:
    """Reads the checkpoints of a directory; a damaged one counts as empty, as for a broker. Raises ReadError."""
    found = OffsetCheckpoints(files, root, (), {})
    with as_read_error():
        found.read()
    return found


def plan_partition(
    held: Held,
    topic: str,
    partition: int,
    settings: Settings,
    *,
    now_ms: int,
    release: Release | None = None,
    min_dirty_ratio: float = 0.0,
    known: OffsetCheckpoints | None = None,
) -> PartitionPlan:
    """Returns the plan of a pass over a partition, without changing anything. A log with a dirty ratio up to
    `min_dirty_ratio` has nothing to do. `known` are the directory's checkpoints, if they were read already. Raises
    ReadError."""
    key, directory = (topic, partition), os.path.join(held.root, f"{topic}-{partition}")
    below = ReadOnlyFiles() if isinstance(held.files, DiskFiles) else held.files
    try:
        known = known or checkpoints(held.files, held.root)
        with Overlay(below) as files:
            log = _opened(files, known, directory, key, settings, now_ms)
            try:
                facts = facts_of(log.segments, with_times=settings.min_compaction_lag_ms > 0)
                # The log of a replica that was shut down as a follower may have records after the high watermark that
                # its leader lacks.
                committed = known.offsets[checkpoint.REPLICATION_OFFSET].get(key, log.log_end_offset)
                dirty = dirtiness(
                    facts,
                    cleaner_offset=known.cleaned.get(key),
                    log_start_offset=log.log_start_offset,
                    last_stable_offset=min(log.last_stable_offset, committed),
                    now_ms=now_ms,
                    min_lag_ms=settings.min_compaction_lag_ms,
                )
                task = task_of(
                    log.directory,
                    log.config,
                    log.producers(),
                    facts,
                    dirty,
                    now_ms=now_ms,
                    delete_retention_ms=settings.delete_retention_ms,
                )._replace(**dataclasses.asdict(release or Release()))
                is_due = dirty.ratio > min_dirty_ratio
                return PartitionPlan(
                    *key,
                    held.root,
                    task,
                    dirty,
                    list(groups(files, task, task.end_offset)) if is_due else [],
                    aborted_transactions(files, task.directory) if is_due else [],
                    len(facts),
                    sum(segment.size_bytes for segment in facts),
                )
            finally:
                log.abandon()
    except (StorageError, OSError) as error:
        raise ReadError(f"{topic}-{partition} cannot be compacted: {error}") from error


def _opened(
    files: Files, known: OffsetCheckpoints, directory: str, key: tuple[str, int], settings: Settings, now_ms: int
) -> PartitionLog:
    """Opens the log as its broker would. The changes of opening stay in an overlay above the disk."""
    config = LogConfig(
        segment_bytes=settings.segment_bytes,
        segment_index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        rules=Rules(compacted=True),
    )
    return PartitionLog.open(
        files,
        directory,
        TopicIdPartition(key[0], key[1]),
        config=config,
        now_ms=now_ms,
        checkpoints=LogCheckpoints(
            clean_shutdown=True,
            recovery_point=known.offsets[checkpoint.RECOVERY_POINT].get(key, 0),
            log_start_offset=known.offsets[checkpoint.LOG_START_OFFSET].get(key, 0),
        ),
    )


def check_space(plans: Sequence[PartitionPlan], parallel: int, free: Free = free_bytes) -> list[Room]:
    """Checks the space in each directory with work, for `parallel` tasks at a time, if every record is kept. Raises
    ReadError if it is too small."""
    sizes: dict[str, list[int]] = {}
    for plan in plans:
        for group in plan.groups:
            sizes.setdefault(plan.root, []).append(sum(segment.size_bytes for segment in group))
    return check_room([(root, under_way(own, parallel)) for root, own in sizes.items()], "compaction", free)


# -- the driver


@dataclass(slots=True)
class Outcome:
    """The result for a partition. Records and tombstones are those below `end_offset`, in `after` without aborted ones.
    With a problem the partition was left unchanged, from the place in its message on."""

    segments: int = 0
    bytes: int = 0
    records_before: int = 0
    records_after: int = 0
    tombstones_before: int = 0
    tombstones_after: int = 0
    done: bool = False
    problem: str | None = None


class _Partition:
    """The state of a partition."""

    def __init__(self, plan: PartitionPlan) -> None:
        self.plan = plan
        self.found: dict[int, KeysFound] = {}
        self.settled: list[str] = []
        self.ready: dict[int, GroupDone] = {}
        self.next_group = 0
        self.outcome = Outcome(plan.segments, plan.bytes)

    @property
    def rows(self) -> int:
        return sum(found.rows for found in self.found.values())


class Compaction:
    """The steps of the driver, in order: the tasks of `keys_items` run, and each result goes to `found`; `buckets` is
    the layout of the shuffle, and each of its results goes to `settled`; the tasks of `group_items` run, and each
    result goes to `put`. `clear` removes leftover files in any case. A partition with a damaged segment is left
    unchanged. Raises ReadError."""

    def __init__(self, files: Files, plans: Sequence[PartitionPlan]) -> None:
        self._files = files
        self.plans = plans
        self._partitions = [_Partition(plan) for plan in plans]

    @property
    def outcomes(self) -> list[Outcome]:
        """The result for each partition."""
        return [partition.outcome for partition in self._partitions]

    # Step 1: keys

    def keys_items(self) -> list[KeysItem]:
        """Returns a piece of work for each segment."""
        return [
            KeysItem(
                number,
                index,
                plan.directory,
                segment.base_offset,
                segment.size_bytes,
                plan.task.first_dirty_offset,
                segment.next_offset,
                _between(plan.aborted, segment.base_offset, segment.next_offset),
            )
            for number, plan in enumerate(self.plans)
            if plan.groups
            for index, segment in enumerate(plan.task.segments)
        ]

    def found(self, item: KeysItem, found: KeysFound) -> None:
        """Takes the result of a segment."""
        partition = self._partitions[item.partition]
        partition.found[item.index] = found
        if found.problem is not None:
            partition.outcome.problem = partition.outcome.problem or f"{partition.plan}: {found.problem}"
            return
        partition.outcome.records_before += found.records
        partition.outcome.tombstones_before += found.tombstones

    # Step 2: offsets

    def buckets(self, rows: int = ROWS) -> list[Buckets]:
        """Returns the division of each partition's rows by hash, into buckets of about `rows`."""
        found: list[Buckets] = []
        for number, partition in enumerate(self._partitions):
            if partition.rows and not partition.outcome.problem:
                count = -(-partition.rows // rows)
                names = [(index, keys.name) for index, keys in sorted(partition.found.items()) if keys.rows]
                found.append(Buckets(number, partition.plan.directory, count, partition.rows, tuple(names)))
        return found

    def settled(self, partition: int, name: str) -> None:
        """Takes the file with the settled offsets of a bucket."""
        self._partitions[partition].settled.append(name)

    # Step 3: new segments

    def group_items(self) -> list[GroupItem]:
        """Returns a piece of work for each group of the partitions without a problem."""
        sound = [number for number, partition in enumerate(self._partitions) if not partition.outcome.problem]
        return [item for number in sound for item in self._groups_of(number)]

    def _groups_of(self, number: int) -> Iterator[GroupItem]:
        partition = self._partitions[number]
        plan, task = partition.plan, partition.plan.task
        from_ms, first = tombstones_from_ms(task), 0
        left: dict[int, bool] = {}
        for group_number, group in enumerate(plan.groups):
            indexes = range(first, first + len(group))
            start, end = group[0].base_offset, group[-1].next_offset
            found = [partition.found[index] for index in indexes]
            own = {producer_id for segment in found for producer_id in segment.left}
            yield GroupItem(
                number,
                group_number,
                task._replace(
                    segments=tuple(group),
                    active_producers={
                        producer_id: (epoch, last)
                        for producer_id, (epoch, last) in task.active_producers.items()
                        if last < 0 or start <= last < end
                    },
                ),
                first,
                from_ms,
                _between(plan.aborted, start, end),
                frozenset(producer_id for producer_id in own if left.get(producer_id)),
                tuple(segment.name for segment in found),
                tuple(partition.settled),
                sum(segment.clean_records for segment in found),
            )
            for segment in found:
                left.update(segment.left)
            first += len(group)

    def put(self, item: GroupItem, done: GroupDone) -> None:
        """Takes a rewritten group, and puts in place the groups that are next in order."""
        partition = self._partitions[item.partition]
        plan, outcome = partition.plan, partition.outcome
        if done.problem is not None:
            before = "; the segments before it were compacted" if partition.next_group else ""
            outcome.problem = outcome.problem or f"{plan}: {done.problem}{before}"
        if outcome.problem is not None:
            return
        partition.ready[item.number] = done
        while (ready := partition.ready.pop(partition.next_group, None)) is not None:
            group = plan.groups[partition.next_group]
            if not partition.next_group:
                self._note_offset(plan, plan.task.first_dirty_offset, only_if_none=True)
            old, new = [segment.base_offset for segment in group], [made.base_offset for made in ready.new]
            size_bytes = sum(made.size_bytes for made in ready.new)
            put_in_place(self._files, plan.directory, new, old, ready.suffix, size_bytes)
            outcome.segments += len(new) - len(old)
            outcome.bytes += size_bytes - sum(segment.size_bytes for segment in group)
            outcome.records_after += ready.records
            outcome.tombstones_after += ready.tombstones
            partition.next_group += 1
        if partition.next_group == len(plan.groups):
            self._note_offset(plan, plan.task.end_offset)
            sweep(self._files, plan.directory, COMPACTED)
            outcome.done = True

    def _note_offset(self, plan: PartitionPlan, offset: int, *, only_if_none: bool = False) -> None:
        """Writes the end of the clean part to the cleaner's checkpoint, durably."""
        key = plan.topic, plan.partition
        known = checkpoints(self._files, plan.root)
        if not (only_if_none and key in known.cleaned):
            with as_read_error():
                known.write_cleaned(key, offset, None)

    def clear(self) -> None:
        """Removes leftover files of tasks, as after an interrupted run."""
        for partition in self._partitions:
            if partition.plan.groups and not partition.outcome.done:
                sweep(self._files, partition.plan.directory, COMPACTED)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The division of a partition's rows into `count` buckets, `rows` in total, from these files, each with the index
    of its segment."""

    partition: int
    directory: str
    count: int
    rows: int
    names: tuple[tuple[int, str], ...]


def _between(aborted: Sequence[AbortedTransaction], start: int, end: int) -> tuple[AbortedTransaction, ...]:
    """Returns the transactions that overlap a range of offsets."""
    return tuple(found for found in aborted if found.first_offset < end and found.last_offset >= start)
