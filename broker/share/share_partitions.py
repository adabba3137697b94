"""The share partitions that this broker leads: creates them from stored state, stores their changes, ends their locks,
and has records written to dead-letter queues.

Owns which share partitions exist, and the timers of their locks. A share partition is dropped when its partition has
another leader or leader epoch, is offline or deleted, when the share coordinator fences it, and when its group has no
session left; the next fetch creates it again from stored state. Rules: Kafka 4.3's `SharePartitionManager`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ...protocol.errors import ErrorCode
from ...storage.log.results import Appended
from ..clock import Clock, Timer
from ..errors import Refused, code_of
from ..futures import on_settled
from ..groups.share.state import SharePartitionKey
from ..metrics.histogram import Histogram
from ..replica.partition import Partition
from ..replica.purgatory import FetchWaiter, wake_all
from .in_flight import Transition
from .settings import BY_DURATION, ShareConfigs, reset_duration_ms
from .share_partition import Acquisition, Fetched, SharePartition
from .state_coordinator import StateWrite, Submitted
from .values import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    DeadLetters,
    RecordState,
    StateBatch,
    StoredState,
    joined,
)

Outcome = Refused | None
"""The result of an acknowledgement or release: an error, or None."""

WriteDeadLetters = Callable[[str, Partition, DeadLetters], Awaitable[None]]
"""Writes records of a partition to the dead-letter queue of a group, or logs why it cannot."""

_FOR_CLIENTS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The errors for clients of errors of the share coordinator; of others UNKNOWN_SERVER_ERROR."""
# Errors after which a share partition is created again from stored state.
_DROPPED_AFTER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_PERCENT = tuple(range(0, 101, 10))


class Persister(Protocol):
    """Stores the state of share partitions. The methods raise Refused; a future ends with a sync."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[StoredState, Submitted | None]: ...

    def write(self, key: SharePartitionKey, change: StateWrite) -> Submitted | None: ...


class NoOpPersister:
    """Stores nothing, as Kafka's class of that name: share partitions begin again after a restart."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> tuple[StoredState, Submitted | None]:
        """Returns state without a start offset."""
        return StoredState(0, -1, ()), None

    def write(self, key: SharePartitionKey, change: StateWrite) -> Submitted | None:
        """Stores nothing."""
        return None


@dataclass(slots=True, eq=False)
class Led:
    """A share partition of a partition that this broker leads, with a leader and in an epoch of that time. `ready` is
    done when the stored state was read.
    """

    key: SharePartitionKey
    partition: Partition
    leader: int
    leader_epoch: int
    machine: SharePartition
    state_epoch: int
    since_ns: int
    ready: asyncio.Future[Appended] | None = None
    timer: Timer | None = None
    timer_ms: int = 0
    waiters: dict[FetchWaiter, None] = field(default_factory=dict[FetchWaiter, None])

    @property
    def is_ready(self) -> bool:
        """Whether its stored state was read, so that records can be acquired."""
        return self.ready is None or self.ready.done()

    def wake(self) -> None:
        """Lets waiting share fetches check for records."""
        for waiter in list(self.waiters):
            waiter.check()


class GroupFetches:
    """What the metrics show of a group's share fetches."""

    def __init__(self) -> None:
        self.acquire_time = Histogram()
        """The time until a fetch acquires, or ends without that."""
        self.ratio = Histogram(_PERCENT, 1)
        """How many percent of its partitions a fetch could acquire records of."""


class SharePartitions:
    """All share partitions of this broker, by group and partition."""

    def __init__(
        self,
        persister: Persister,
        configs: ShareConfigs,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        write_dead_letters: WriteDeadLetters,
        timer: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._persister = persister
        self._write_dead_letters = write_dead_letters
        self._tasks: set[asyncio.Task[None]] = set()
        self._configs = configs
        self._clock = clock
        self._loop = loop
        self._led: dict[SharePartitionKey, Led] = {}
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        """The numbers of acknowledged records by type."""
        self.load_time = Histogram()
        """The time until a share partition has its stored state."""
        self.fetches: dict[str, GroupFetches] = {}
        """By group."""
        self.timer = timer
        """The time in ns, for the histograms."""

    def __len__(self) -> int:
        return len(self._led)

    def __iter__(self) -> Iterator[Led]:
        return iter(list(self._led.values()))

    # --- life ----------------------------------------------------------------------------------------------------

    def get(self, key: SharePartitionKey) -> Led | None:
        """Returns a share partition that exists already."""
        led = self._led.get(key)
        if led is not None and not _is_current(led):
            self._drop(led)
            return None
        return led

    def get_or_create(self, key: SharePartitionKey, partition: Partition) -> Led:
        """Returns a share partition, made from stored state. Raises Refused, or StorageError if it is offline."""
        led = self.get(key)
        if led is not None:
            return led
        leader, leader_epoch, since_ns = partition.leader, partition.log.leader_epoch, self.timer()
        try:
            stored, submitted = self._persister.read(key, leader_epoch)
        except Refused as refused:
            raise _for_client(refused) from refused
        if stored.start_offset == -1:
            stored = stored._replace(start_offset=self._first_offset(key.group_id, partition))
        try:
            machine = SharePartition(stored, partial(self._configs.rules, key.group_id))
        except ValueError as error:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        led = self._led[key] = Led(key, partition, leader, leader_epoch, machine, stored.state_epoch, since_ns)
        if isinstance(submitted, asyncio.Future):
            led.ready = submitted
            on_settled(submitted, partial(self._read, led))
        else:
            self._loaded(led)
        return led

    def _loaded(self, led: Led) -> None:
        self.load_time.add(self.timer() - led.since_ns)
        self._bury(led, led.machine.unwritten)

    def _read(self, led: Led, error: BaseException | None) -> None:
        if error is not None:
            self._drop(led)
        else:
            self._loaded(led)
        led.wake()

    def _first_offset(self, group_id: str, partition: Partition) -> int:
        """The start offset of a group that has none, by `share.auto.offset.reset`."""
        log, reset = partition.log, self._configs.offset_reset(group_id)
        if reset == "earliest":
            return log.log_start_offset
        if reset.startswith(BY_DURATION):
            since_ms = self._clock.now_ms() - reset_duration_ms(reset)
            found = log.find_timestamp(since_ms)
            if found is None or found.offset >= log.high_watermark:
                text = f"Offset for timestamp {since_ms} not found for topic partition: {log.topic}-{log.partition}"
                raise Refused(ErrorCode.OFFSET_NOT_AVAILABLE, text)
            return found.offset
        return log.high_watermark

    def drop_group(self, node_id: int, group_id: str) -> None:
        """Drops the share partitions of a group at a node, whose last session has ended."""
        for led in [led for led in self._led.values() if led.key.group_id == group_id]:
            if led.leader == node_id:
                self._drop(led)

    def drop_all(self) -> None:
        """Drops all share partitions, as when share groups are disabled."""
        for led in list(self._led.values()):
            self._drop(led)

    def _drop(self, led: Led) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]
        if led.timer is not None:
            led.timer.cancel()
            led.timer = None
        wake_all(led.waiters)

    # --- records -------------------------------------------------------------------------------------------------

    def count_fetch(self, group_id: str, since_ns: int, acquirable: int, partitions: int) -> None:
        """Counts a share fetch that began at a time and can now acquire records of some of its partitions."""
        found = self.fetches.get(group_id)
        if found is None:
            found = self.fetches[group_id] = GroupFetches()
        found.acquire_time.add(self.timer() - since_ns)
        found.ratio.add(100 * acquirable // partitions)

    def acquire(
        self, led: Led, wanted: Acquisition, max_records: int, fetch_offset: int, fetched: Fetched
    ) -> list[Acquired]:
        """Acquires records that were read, until their locks expire."""
        now_ms = self._clock.now_ms()
        acquired = led.machine.acquire(wanted, max_records, fetch_offset, fetched, now_ms)
        if acquired:
            self._schedule(led, now_ms + self._configs.lock_ms(led.key.group_id))
        return acquired

    def acknowledge(
        self, led: Led, member: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Outcome | asyncio.Future[Outcome]:
        """Acknowledges records. A future is done when that is stored."""
        now_ms = self._clock.now_ms()
        try:
            transition = led.machine.acknowledge(member, acknowledgements, now_ms)
        except Refused as refused:
            led.wake()
            return refused
        outcome = self._store(led, transition)
        if outcome is None:
            self._count(acknowledgements)
        elif isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(lambda done: done.result() is None and self._count(acknowledgements))
        return outcome

    def _count(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledged[AcknowledgeType(types[0])] += last - first + 1
            else:
                self.acknowledged.update(AcknowledgeType(kind) for kind in types)

    def release(self, led: Led, member: str) -> Outcome | asyncio.Future[Outcome]:
        """Releases all records of a member. A future is done when that is stored."""
        return self._store(led, led.machine.release(member))

    def _store(self, led: Led, transition: Transition) -> Outcome | asyncio.Future[Outcome]:
        if not transition.batches:
            led.wake()
            return None
        submitted = self._write(led, transition.batches)
        if not isinstance(submitted, asyncio.Future):
            return self._finish(led, transition, submitted)
        outcome: asyncio.Future[Outcome] = self._loop.create_future()

        def ended(error: BaseException | None) -> None:
            refused = None if error is None else Refused(_code(error))
            finished = self._finish(led, transition, refused)
            if not outcome.done():  # the client may have disconnected
                outcome.set_result(finished)

        on_settled(submitted, ended)
        return outcome

    def _finish(self, led: Led, transition: Transition, refused: Refused | None) -> Outcome:
        """Completes a transition that was stored or refused. Returns the error for the client."""
        led.machine.finish(transition, committed=refused is None, now_ms=self._clock.now_ms())
        if refused is None:
            self._bury(led, transition.dead_letters)
        outcome = None if refused is None else _for_client(refused)
        if outcome is not None and outcome.code in _DROPPED_AFTER:
            self._drop(led)
        elif refused is not None:  # locks that were taken back expire again
            self._reschedule(led)
        led.wake()
        return outcome

    def _write(self, led: Led, batches: Sequence[StateBatch]) -> Refused | asyncio.Future[Appended] | None:
        machine = led.machine
        change = StateWrite(
            led.state_epoch,
            led.leader_epoch,
            machine.start_offset,
            machine.delivery_complete_count,
            tuple(batches),
        )
        try:
            submitted = self._persister.write(led.key, change)
        except Refused as refused:
            return refused
        return submitted if isinstance(submitted, asyncio.Future) else None

    # --- locks ---------------------------------------------------------------------------------------------------

    def _schedule(self, led: Led, when_ms: int) -> None:
        """Ends locks at a time, or at the earlier one that is set already."""
        if led.timer is not None:
            if led.timer_ms <= when_ms:
                return
            led.timer.cancel()
        led.timer_ms = when_ms
        led.timer = self._clock.call_at(when_ms, self._expire, led)

    def _reschedule(self, led: Led) -> None:
        due_ms = led.machine.due_ms()
        if due_ms is not None and self._led.get(led.key) is led:
            self._schedule(led, due_ms)

    def _expire(self, led: Led) -> None:
        led.timer = None
        if not _is_current(led):
            self._drop(led)
            return
        machine = led.machine
        changed = machine.expire(self._clock.now_ms())
        if changed:
            submitted = self._write(led, changed)
            if isinstance(submitted, asyncio.Future):
                on_settled(submitted, partial(self._expired, led, changed))
            else:
                self._expired(led, changed, submitted)
        self._reschedule(led)

    def _expired(self, led: Led, changed: Iterable[StateBatch], error: object) -> None:
        """Continues after the write of expired locks, also one that failed: after a restart these are not locked."""
        if isinstance(error, Exception):
            code_of(error)  # logs unexpected errors
        dead = [one for one in changed if one.state == RecordState.ARCHIVING]
        self._bury(led, [DeadLetters(one.first, one.last, one.delivery_count, is_rejected=False) for one in dead])
        led.machine.advance()
        led.wake()

    # --- dead letters --------------------------------------------------------------------------------------------

    def _bury(self, led: Led, letters: Sequence[DeadLetters]) -> None:
        """Begins to write records to the dead-letter queue. They are archived after that, also if it fails."""
        if letters:
            task = self._loop.create_task(self._buried(led, joined(letters)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _buried(self, led: Led, letters: Iterable[DeadLetters]) -> None:
        for one in letters:
            await self._write_dead_letters(led.key.group_id, led.partition, one)
            submitted = self._write(led, [led.machine.archive_dead_letters(one)])
            if isinstance(submitted, asyncio.Future):
                try:
                    await submitted
                except Exception as error:  # after a restart they are written again
                    code_of(error)  # logs unexpected errors
            led.machine.advance()
            led.wake()

    def close(self) -> None:
        """Ends all timers and tasks. After a restart the rest of the dead letters is written."""
        for task in self._tasks:
            task.cancel()
        for led in self._led.values():
            if led.timer is not None:
                led.timer.cancel()


def _is_current(led: Led) -> bool:
    """Whether its partition is still led by the same node in the same epoch."""
    partition = led.partition
    is_there = not partition.is_gone and partition.offline is None
    return is_there and partition.leader == led.leader and partition.leader_epoch == led.leader_epoch


def _code(error: BaseException) -> ErrorCode:
    return code_of(error) if isinstance(error, Exception) else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _for_client(refused: Refused) -> Refused:
    return Refused(_FOR_CLIENTS.get(refused.code, ErrorCode.UNKNOWN_SERVER_ERROR), refused.message)
