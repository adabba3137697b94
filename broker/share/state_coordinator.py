"""The share coordinator: stores the state of share partitions in `__share_group_state`.

Owns the states by partition of its log, when a snapshot is written instead of an update, and which old records can be
deleted. Uses no topics or files: records go to `append`. All methods run on the event loop. A method that writes
returns a future if a sync has to be awaited. Rules: Kafka 4.3's `ShareCoordinatorShard`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple
from ...protocol.records.batch import Record as LogRecord
from ...storage.format.partition_metadata import encode_id
from ...storage.log.results import Appended
from ..clock import Clock, Timer
from ..errors import Refused, code_of
from ..futures import on_settled
from ..groups.records import partition_for
from ..groups.registry import Readiness
from ..groups.settings import WRITE_ERRORS
from ..groups.share.state import SharePartitionKey
from . import records
from .records import ShareState
from .values import StateBatch, StoredState

Submitted = Appended | asyncio.Future[Appended]

WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
NEGATIVE_PARTITION = "The partition id cannot be a negative number."


AppendRecords = Callable[[int, list[records.Record], int], Submitted]
"""Writes records to a partition of `__share_group_state`: its index, the records, the time in ms. An exception, also of
a future, means that they may be lost.
"""


@frozen
class StateSettings:
    """Configs of the share coordinator, with Kafka's defaults. `counts_complete` writes the number of offsets whose
    delivery is complete (KIP-1226).
    """

    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000
    prune_interval_ms: int = 300_000
    counts_complete: bool = True

    @classmethod
    def from_config(cls, config: Any, *, counts_complete: bool) -> StateSettings:
        """Reads Kafka's config names from `config[name]`; releases without share groups have none of them."""
        prefix = "share.coordinator"
        return cls(
            updates_per_snapshot=config.get(f"{prefix}.snapshot.update.records.per.snapshot", 500),
            cold_interval_ms=config.get(f"{prefix}.cold.partition.snapshot.interval.ms", 300_000),
            prune_interval_ms=config.get(f"{prefix}.state.topic.prune.interval.ms", 300_000),
            counts_complete=counts_complete,
        )


class StateWrite(NamedTuple):
    """A change of a share partition: -1 for an epoch that is not checked, and for an unchanged start offset."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]


@dataclass(slots=True)
class Stored:
    """The stored state of one share partition, the highest epochs seen, the updates since the last snapshot, and the
    offset of that snapshot in the log.
    """

    state: ShareState
    leader_epoch: int
    state_epoch: int
    updates: int = 0
    snapshot_offset: int = -1


@dataclass(slots=True)
class Shard:
    """One partition of the log. `pruned_offset` is where it was cut last; `emptied_offset` is the offset of the last
    tombstone if no state is left.
    """

    states: dict[SharePartitionKey, Stored] = field(default_factory=dict[SharePartitionKey, Stored])
    pruned_offset: int = -1
    emptied_offset: int = -1

    def redundant_before(self) -> int:
        """The offset before which no record is needed any more; 0 or less if none can be deleted."""
        offsets = (stored.snapshot_offset for stored in self.states.values())
        return min(offsets, default=self.emptied_offset)


class StateCoordinator:
    """The states of all share partitions, in `partitions` partitions of the log.

    `has_partition` returns whether a partition of a topic exists; `prune` deletes the records of a log partition below
    an offset.
    """

    def __init__(
        self,
        *,
        append: AppendRecords,
        prune: Callable[[int, int], None],
        has_partition: Callable[[bytes, int], bool],
        partitions: int,
        clock: Clock,
        settings: StateSettings | None = None,
    ) -> None:
        self.settings = settings or StateSettings()
        self.partitions = partitions
        self._append = append
        self._prune = prune
        self._has_partition = has_partition
        self._clock = clock
        self.writes = 0
        """The number of calls that store a change."""
        self._shards: dict[int, Shard] = {}
        self._readiness: dict[int, Readiness] = {}
        self._timers: list[Timer] = []

    # --- start, load and close -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the periodic deletion of old records, and the snapshots of idle share partitions."""
        every = self._clock.call_every
        self._timers = [
            every(self.settings.prune_interval_ms, self.prune, self._prune_due_ms),
            every(self.settings.cold_interval_ms, self.snapshot_idle, self._idle_due_ms),
        ]

    def close(self) -> None:
        """Stops all timers."""
        for timer in self._timers:
            timer.cancel()

    def load(self, index: int, log: Iterable[LogRecord]) -> ErrorCode:
        """Restores the states of a partition of the log. Returns the error code if it cannot be read; its share
        partitions are then unavailable.
        """
        shard = self._shards[index] = Shard()
        try:
            for record in log:
                entry = records.decode(record.key or b"", record.value)
                if entry is not None:
                    self._replay(shard, entry, record.offset)
        except Exception as error:
            self._readiness[index] = Readiness.FAILED
            self._shards.pop(index)
            return code_of(error)
        self._readiness.pop(index, None)
        return ErrorCode.NONE

    def resign(self, index: int) -> None:
        """Drops the states of a partition whose log went offline; requests get NOT_COORDINATOR."""
        self._readiness[index] = Readiness.RESIGNED
        self._shards.pop(index, None)

    def partition_of(self, key: SharePartitionKey) -> int:
        """Returns the partition of `__share_group_state` for a share partition."""
        return partition_for(coordinator_key(key), self.partitions)

    def has_resigned(self, key: SharePartitionKey) -> bool:
        """Returns whether this coordinator resigned from the share partition's log."""
        return self._readiness.get(self.partition_of(key)) is Readiness.RESIGNED

    # --- requests ------------------------------------------------------------------------------------------------

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Submitted:
        """Begins a new state of a share partition at a start offset, or without one (-1). Raises Refused."""
        shard = self._shard(key)
        present = shard.states.get(key)
        if present is not None and state_epoch != -1 and present.state_epoch > state_epoch:
            raise Refused(
                ErrorCode.FENCED_STATE_EPOCH,
                "The share coordinator rejected the request because the share-group state epoch did not match.",
            )
        self._check_exists(key)
        now_ms = self._clock.now_ms()
        state = ShareState(
            snapshot_epoch=0 if present is None else present.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            complete_count=-1 if start_offset == -1 or not self.settings.counts_complete else 0,
            batches=(),
            created_ms=now_ms,
            written_ms=now_ms,
        )
        return self._write(key, records.snapshot_record(key, state))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[StoredState, Submitted | None]:
        """Returns the state of a share partition, and the write that raises its leader epoch, if it does. Raises
        Refused.
        """
        stored = self._shard(key).states.get(key)
        if stored is None:
            raise Refused(ErrorCode.INVALID_REQUEST, READ_UNINITIALIZED)
        if leader_epoch != -1 and stored.leader_epoch > leader_epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        state = stored.state
        found = StoredState(state.state_epoch, state.start_offset, state.batches)
        if leader_epoch in (-1, stored.leader_epoch):
            return found, None
        raised = StateWrite(state.state_epoch, leader_epoch, state.start_offset, state.complete_count, ())
        return found, self._write(key, self._record(key, stored, raised, leader_epoch))

    def write(self, key: SharePartitionKey, change: StateWrite) -> Submitted:
        """Stores a change. Raises Refused."""
        self.writes += 1
        stored = self._shard(key).states.get(key)
        if stored is None:
            raise Refused(ErrorCode.INVALID_REQUEST, WRITE_UNINITIALIZED)
        if change.leader_epoch != -1 and stored.leader_epoch > change.leader_epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH)
        if change.state_epoch != -1 and stored.state_epoch > change.state_epoch:
            raise Refused(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        return self._write(key, self._record(key, stored, change, stored.state.leader_epoch))

    def delete(self, key: SharePartitionKey) -> Submitted | None:
        """Removes the state of a share partition; None if there is none. Raises Refused."""
        shard = self._shard(key)
        self._check_exists(key)
        return self._write(key, records.tombstone(key)) if key in shard.states else None

    def summary(self, key: SharePartitionKey) -> ShareState | None:
        """Returns the stored state; None if it was not initialized. Raises Refused."""
        shard = self._shard(key)
        self._check_exists(key)
        stored = shard.states.get(key)
        return None if stored is None else stored.state

    def topic_deleted(self, topic_id: bytes) -> None:
        """Removes the states of a deleted topic. What cannot be written now is left over, as unreachable state."""
        for shard in list(self._shards.values()):
            for key in [key for key in shard.states if key.topic_id == topic_id]:
                try:
                    submitted = self._write(key, records.tombstone(key))
                except Exception as error:
                    code_of(error)  # logs unexpected errors
                else:
                    _ignore(submitted)

    def _shard(self, key: SharePartitionKey) -> Shard:
        if key.partition < 0:
            raise Refused(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        index = self.partition_of(key)
        readiness = self._readiness.get(index)
        if readiness is not None:
            raise Refused(readiness.value)
        return self._shards.setdefault(index, Shard())

    def _check_exists(self, key: SharePartitionKey) -> None:
        if not self._has_partition(key.topic_id, key.partition):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")

    def _record(self, key: SharePartitionKey, stored: Stored, change: StateWrite, leader_epoch: int) -> records.Record:
        """The record of a change: a snapshot after enough updates, else an update."""
        present = stored.state
        complete = change.complete_count if self.settings.counts_complete else -1
        if stored.updates < self.settings.updates_per_snapshot:
            batches = combined((), change.batches, change.start_offset)
            update = present._replace(
                leader_epoch=leader_epoch,
                start_offset=change.start_offset,
                complete_count=complete,
                batches=tuple(batches),
            )
            return records.update_record(key, update)
        start = present.start_offset if change.start_offset == -1 else change.start_offset
        now_ms = self._clock.now_ms()
        whole = ShareState(
            present.snapshot_epoch + 1,
            present.state_epoch,
            leader_epoch,
            start,
            complete,
            tuple(combined(present.batches, change.batches, start)),
            now_ms,
            now_ms,
        )
        return records.snapshot_record(key, whole)

    def _write(self, key: SharePartitionKey, record: records.Record) -> Submitted:
        """Appends a record and applies it. Raises Refused with an error that clients retry where possible."""
        index = self.partition_of(key)
        try:
            submitted = self._append(index, [record], self._clock.now_ms())
        except Exception as error:
            code = code_of(error)
            raise Refused(WRITE_ERRORS.get(code, code)) from error
        entry = records.decode(*record)
        assert entry is not None
        # Applied before the sync: the next write depends on it. A failed sync takes the log offline.
        offset = submitted.base_offset if isinstance(submitted, Appended) else -1
        stored = self._replay(self._shards.setdefault(index, Shard()), entry, offset)
        if isinstance(submitted, asyncio.Future) and stored is not None:
            submitted.add_done_callback(lambda done: _note_offset(stored, done))
        return submitted

    def _replay(self, shard: Shard, entry: records.ShareEntry, offset: int) -> Stored | None:
        """Applies a record. Returns the state that begins with it, if it is a snapshot."""
        key, is_snapshot, state = entry
        stored = shard.states.get(key)
        if state is None:
            shard.states.pop(key, None)
            shard.emptied_offset = offset
            return None
        if is_snapshot:
            if stored is None:
                stored = shard.states[key] = Stored(state, state.leader_epoch, state.state_epoch)
            elif stored.updates >= self.settings.updates_per_snapshot:
                stored.updates = 0
            stored.state = state
            stored.snapshot_offset = offset
            stored.state_epoch = max(stored.state_epoch, state.state_epoch)
        elif stored is None:  # the snapshot before it is lost
            stored = shard.states[key] = Stored(state, state.leader_epoch, 0, snapshot_offset=offset)
        else:
            stored.state = _merged(stored.state, state)
            stored.updates += 1
        stored.leader_epoch = max(stored.leader_epoch, state.leader_epoch)
        return stored if is_snapshot else None

    # --- periodic work -------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Deletes the records before the oldest snapshot of each partition of the log."""
        for index, shard in self._shards.items():
            offset = shard.redundant_before()
            if offset > 0 and offset != shard.pruned_offset:
                self._prune(index, offset)
                shard.pruned_offset = offset

    def _prune_due_ms(self) -> int | None:
        is_due = any(shard.redundant_before() not in (-1, 0, shard.pruned_offset) for shard in self._shards.values())
        return self._clock.now_ms() if is_due else None

    def snapshot_idle(self) -> None:
        """Writes a snapshot of each share partition without one for a while, so that old records can be deleted."""
        now_ms = self._clock.now_ms()
        for shard in list(self._shards.values()):
            states = shard.states
            if all(stored.state.created_ms != stored.state.written_ms for stored in states.values()):
                continue  # all have one, and nothing has changed since
            for key, stored in list(states.items()):
                if now_ms - stored.state.written_ms >= self.settings.cold_interval_ms:
                    epoch = stored.state.snapshot_epoch + 1
                    state = stored.state._replace(snapshot_epoch=epoch, written_ms=now_ms)
                    try:
                        _ignore(self._write(key, records.snapshot_record(key, state)))
                    except Refused:
                        return  # the next check tries again

    def _idle_due_ms(self) -> int | None:
        written = [
            stored.state.written_ms
            for shard in self._shards.values()
            if not all(one.state.created_ms != one.state.written_ms for one in shard.states.values())
            for stored in shard.states.values()
        ]
        return min(written) + self.settings.cold_interval_ms if written else None


def coordinator_key(key: SharePartitionKey) -> str:
    """Returns the text form of a share partition, by which its coordinator is looked up."""
    return f"{key.group_id}:{encode_id(key.topic_id)}:{key.partition}"


def parsed_key(text: str) -> SharePartitionKey | None:
    """Returns the share partition of a coordinator key, or None if it is malformed."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip():
        return None
    group_id, topic_id, partition = parts
    try:
        raw = base64.b64decode(topic_id + "=" * (-len(topic_id) % 4), altchars="-_", validate=True)
        return SharePartitionKey(group_id, raw, int(partition)) if len(raw) == 16 else None
    except (ValueError, binascii.Error):
        return None


def _merged(so_far: ShareState, update: ShareState) -> ShareState:
    start = so_far.start_offset if update.start_offset == -1 else update.start_offset
    return so_far._replace(
        leader_epoch=so_far.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
        start_offset=start,
        complete_count=update.complete_count,
        batches=tuple(combined(so_far.batches, update.batches, start)),
    )


def combined(batches: Sequence[StateBatch], newer: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Returns batches in order of their offsets without overlaps, adjacent ones with equal state joined, and nothing
    below the start offset; start offset -1 keeps all. Where two overlap, the one with the higher delivery count is
    kept, and with equal counts the one with the higher state: the newer one, since counts and states only grow. Source:
    Kafka's `PersisterStateBatchCombiner`.
    """
    kept = [b._replace(first=max(b.first, start_offset)) for b in (*batches, *newer) if b.last >= start_offset]
    if len(kept) < 2:
        return kept
    heap = [(b.first, b.last, b.delivery_count, b.state) for b in kept]
    heapq.heapify(heap)
    made: list[StateBatch] = []
    first, last, count, state = heapq.heappop(heap)
    while heap:
        next_first, next_last, next_count, next_state = heapq.heappop(heap)
        is_same = (next_count, next_state) == (count, state)
        if next_first > last + 1 or (next_first == last + 1 and not is_same):
            made.append(StateBatch(first, last, state, count))
            first, last, count, state = next_first, next_last, next_count, next_state
        elif is_same:
            last = max(last, next_last)
        elif (next_count, next_state) < (count, state):  # the rest of the older one after the end
            if next_last > last:
                heapq.heappush(heap, (last + 1, next_last, next_count, next_state))
        else:
            if last > next_last:
                heapq.heappush(heap, (next_last + 1, last, count, state))
            if next_first > first:
                made.append(StateBatch(first, next_first - 1, state, count))
            first, last, count, state = next_first, next_last, next_count, next_state
    made.append(StateBatch(first, last, state, count))
    return made


def _note_offset(stored: Stored, done: asyncio.Future[Appended]) -> None:
    if not done.cancelled() and done.exception() is None:
        stored.snapshot_offset = done.result().base_offset


def _ignore(submitted: Submitted) -> None:
    """Retrieves the exception of a write that no request waits for."""
    if isinstance(submitted, asyncio.Future):
        on_settled(submitted, lambda error: None)
