"""A partition as the broker serves it: its log, those who wait for it, and the order of its appends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode
from ...protocol.records import validate
from ...storage.errors import DirectoryFailed, DuplicateSequence, StorageError
from ...storage.log.results import Appended
from ..cooperative import in_thread
from ..errors import Refused
from .assignment import NO_LEADER, Assignment
from .purgatory import wake_all
from .refused_batches import RefusedBatches

if TYPE_CHECKING:
    from ...protocol.records.batch import BatchHeader
    from ...protocol.records.validate import Prepared
    from ...storage.partition_log import LogConfig, PartitionLog
    from ...storage.producers.verification_guard import Guard
    from ..cooperative import Cooperative
    from .flush import Durability, LogSync
    from .log_dirs import LogDir
    from .purgatory import FetchWaiter

LEADER_EPOCH = 0  # the first one; what was adopted keeps the epoch that it had

Records = bytes | bytearray | memoryview
Submitted = Appended | asyncio.Future[Appended]
"""The result of an append, or the future of its sync."""


class NotLed(Refused):
    """A client asked a node that does not lead the partition, or it knows of another epoch than the leader's."""

    def __init__(self, code: ErrorCode, partition: Partition) -> None:
        super().__init__(code)
        self.partition = partition


def _pass_on(result: asyncio.Future[Appended], ended: asyncio.Future[Appended] | asyncio.Future[Submitted]) -> None:
    """Ends `result` as `ended`, or as the sync that `ended` returned."""
    if result.done():  # a waiter was cancelled
        return
    if ended.cancelled():
        result.cancel()
    elif (error := ended.exception()) is not None:
        result.set_exception(error)
        result.exception()  # all clients that waited may be gone
    elif isinstance(appended := ended.result(), asyncio.Future):
        appended.add_done_callback(partial(_pass_on, result))
    else:
        result.set_result(appended)


class Partition:
    """One partition. Appending through it wakes the fetches that wait for it."""

    __slots__ = (
        "_epoch",
        "_is_gone",
        "_last",
        "_log",
        "_refused_batches",
        "_syncs",
        "assignment",
        "directory",
        "index",
        "is_held",
        "leader",
        "offline",
        "topic",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog | None,
        durability: Durability,
        offline: str | None = None,
        assignment: Assignment | None = None,
    ) -> None:
        """Without a log it is offline; `offline` says why, and the assignment's epoch is the one to tell."""
        self.topic = topic
        self.index = index
        self._log = log
        self.assignment = assignment or Assignment((), (), NO_LEADER)
        """Who has it. The epoch of its log is at least this one's, and the one that counts."""
        self.leader = self.assignment.leader
        """The node that leads it, -1 without one."""
        self.is_held = False
        """Whether it is to have no leader."""
        self._epoch = self.assignment.leader_epoch
        self.directory: bytes | None = None
        """The id of the directory that it lies in, where that is known."""
        self.offline = offline
        """Why nothing can be read or written: its directory has failed."""
        self.waiters: dict[FetchWaiter, None] = {}
        self._syncs: LogSync | None = None
        if log is not None:
            self._syncs = durability.of(log, self.wake)
            log.on_roll = self._syncs.soon
        self._last: asyncio.Task[Submitted] | None = None  # the newest append that needs turns, while it is under way
        self._is_gone = False
        self._refused_batches: RefusedBatches | None = None  # since one was refused

    @property
    def log(self) -> PartitionLog:
        """Its log. Raises StorageError where the partition is offline."""
        if self._log is None:
            raise DirectoryFailed(f"{self.topic}-{self.index} is offline: {self.offline}")
        return self._log

    @property
    def syncs(self) -> LogSync:
        """The syncs of its log. Raises StorageError where the partition is offline."""
        if self._log is None or self._syncs is None:
            raise DirectoryFailed(f"{self.topic}-{self.index} is offline: {self.offline}")
        return self._syncs

    def append(self, records: Records, now_ms: int, produce_version: int) -> Submitted:
        """Appends what a client sent, here and now; the future is of its sync. Raises what `PartitionLog.append`
        raises."""
        log = self.log
        prepared = validate.prepare(records, log.config.rules, now_ms, produce_version, log.log_end_offset)
        return self._adopt(log, prepared, now_ms)

    def submit(
        self,
        records: Records,
        now_ms: int,
        produce_version: int,
        scheduler: Cooperative,
        guard: Guard | asyncio.Future[Guard] | None = None,
        compares_log_start: bool = False,
    ) -> Submitted:
        """Appends what a client sent: at once, or in a task where that takes several turns of the loop.

        Appends keep the order in which they were submitted. The task ends its work even if the client is gone, as after
        a request with acks=0. The future is done when the sync that the append waits for has ended. Raises, or the
        future does, what `PartitionLog.append` raises.

        `guard` is from `verify`, or a future of it while the coordinator's answer is awaited, behind which the append
        waits, and whose error is the append's; without one a batch of a transaction may begin it. `compares_log_start`
        is as in `PartitionLog.append_prepared`.
        """
        if self._last is None and not isinstance(guard, asyncio.Future):
            log = self.log
            prepared = validate.prepare_in_one_step(
                records, log.config.rules, now_ms, produce_version, log.log_end_offset
            )
            if prepared is not None:
                try:
                    return self._adopt(log, prepared, now_ms, guard, compares_log_start)
                except DuplicateSequence as refused:
                    return self._begin(self._find_copy(prepared.header, refused, scheduler))
        # Begun anew over a copy: the memory of a request is used again as soon as its handler waits.
        later = self._append_later(
            self._last, bytearray(records), now_ms, produce_version, scheduler, guard, compares_log_start
        )
        return self._begin(later)

    def _begin(self, later: Coroutine[Any, Any, Submitted]) -> asyncio.Future[Appended]:
        """Starts work that all later appends of this partition wait for; they do not wait for its sync."""
        loop = asyncio.get_running_loop()
        self._last = loop.create_task(later)
        self._last.add_done_callback(self._done)
        result: asyncio.Future[Appended] = loop.create_future()
        self._last.add_done_callback(partial(_pass_on, result))
        return result

    async def _append_later(
        self,
        before: asyncio.Task[Any] | None,
        records: bytearray,
        now_ms: int,
        produce_version: int,
        scheduler: Cooperative,
        guard: Guard | asyncio.Future[Guard] | None,
        compares_log_start: bool,
    ) -> Submitted:
        if before is not None:
            await asyncio.wait([before])
        if isinstance(guard, asyncio.Future):
            await asyncio.wait([guard])  # others may wait for it, so nobody is to cancel it
            guard = guard.result()
        log = self.log
        steps = validate.preparing(records, log.config.rules, now_ms, produce_version, log.log_end_offset)
        prepared = await scheduler.run(steps)
        if self._is_gone:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            return self._adopt(self.log, prepared, now_ms, guard, compares_log_start)
        except DuplicateSequence as refused:
            return await self._find_copy(prepared.header, refused, scheduler)

    async def _find_copy(self, header: BatchHeader, refused: DuplicateSequence, scheduler: Cooperative) -> Submitted:
        """Looks for the batch in the tail of the log, in a thread, where the broker does that (KAFKA-5494)."""
        log = self.log
        scan = log.duplicate_scan(header)
        try:
            found = await scheduler.run(in_thread(scan)) if scan is not None else None
        except StorageError as error:
            log.report(error)
            raise
        if self._is_gone:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.syncs.after(self.log.answer_copy(found, refused))

    def _adopt(
        self,
        log: PartitionLog,
        prepared: Prepared,
        now_ms: int,
        guard: Guard | None = None,
        compares_log_start: bool = False,
    ) -> Submitted:
        if self._refused_batches is not None and prepared.headers:
            self._refused_batches.check(prepared.header, log)
        try:
            appended = log.append_prepared(prepared, now_ms=now_ms, guard=guard, compares_log_start=compares_log_start)
        except StorageError:
            if prepared.headers:
                self.refused_batches.note(prepared.header)
            raise
        if appended.last_offset >= self._syncs.due_at or self.waiters:  # type: ignore[union-attr]
            return self.appended(appended)
        return appended

    @property
    def refused_batches(self) -> RefusedBatches:
        """Where to note batches that were refused for a moment."""
        if self._refused_batches is None:
            self._refused_batches = RefusedBatches()
        return self._refused_batches

    def appended(self, appended: Appended) -> Submitted:
        """To be called with what an append to the log came to: shows it to consumers, at once or when it is synced,
        for which the future waits."""
        syncs = self._syncs
        if syncs is not None and appended.last_offset >= syncs.due_at:
            later = syncs.after(appended)
            if later is not appended:
                return later
        if self.waiters:
            self.wake()
        return appended

    def verify(
        self, producer_id: int, producer_epoch: int, sequence: int = 0, *, bumps_epoch: bool = False, now_ms: int = 0
    ) -> Guard:
        """As `PartitionLog.verify`: what lets a batch begin a transaction here, for `submit`."""
        return self.log.verify(producer_id, producer_epoch, sequence, bumps_epoch=bumps_epoch, now_ms=now_ms)

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """As `PartitionLog.refuse`, where there is a log."""
        if self._log is not None:
            self._log.refuse(producer_id, producer_epoch)

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Submitted:
        """Ends a producer's transaction here, at once: it waits for no append, and one that takes several turns finds
        its transaction over. The future is of the sync. Raises what `PartitionLog.append_marker` raises."""
        return self.appended(
            self.log.append_marker(
                producer_id,
                producer_epoch,
                committed=committed,
                coordinator_epoch=coordinator_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
        )

    def configure(self, config: LogConfig) -> None:
        """Takes new settings for its log."""
        self.log.configure(config)
        self.syncs.reckon()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if self._last is task:
            self._last = None
        if not task.cancelled():
            task.exception()  # whoever awaits it sees it too; nobody may be left to

    @property
    def unfinished(self) -> asyncio.Task[Submitted] | None:
        """The newest append that is not done; those before it end before it does."""
        return self._last

    def wake(self) -> None:
        """Lets the waiting fetches look again."""
        for waiter in list(self.waiters):
            waiter.check()

    def gone(self) -> None:
        """The partition was deleted: waiting fetches answer so at once."""
        self._is_gone = True
        if self._syncs is not None:
            self._syncs.end(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        wake_all(self.waiters)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The nodes that have it, the preferred leader first."""
        return self.assignment.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        """Those that are in sync."""
        return self.assignment.isr

    def assign(self, assignment: Assignment) -> None:
        """Takes over who has it now, and a new leader's epoch."""
        self.assignment = assignment
        self.leader = assignment.leader
        if self._log is None:
            self._epoch = assignment.leader_epoch
        else:
            self._log.leader_epoch = assignment.leader_epoch

    def release(self) -> None:
        """Its leader changed: who waits for it is answered at once."""
        wake_all(self.waiters)

    def check_leader(self, node_id: int, current_leader_epoch: int = -1) -> None:
        """Refuses a client that asks another node than the leader, or knows of another epoch. As in Kafka a node that
        has the partition looks at the epoch first. StorageError if offline and asked with an epoch."""
        if self.leader != node_id:
            if current_leader_epoch != -1 and node_id in self.assignment.replicas:
                self.check_epoch(current_leader_epoch)
            raise NotLed(ErrorCode.NOT_LEADER_OR_FOLLOWER, self)

    def check_in_sync(self, least: int, *, at_most_replicas: bool) -> None:
        """Refuses where fewer replicas are in sync than `min.insync.replicas` asks for; with `at_most_replicas` all are
        enough where there are fewer."""
        if at_most_replicas:
            least = min(least, len(self.assignment.replicas))
        if len(self.assignment.isr) < least:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)

    def lies_in(self, log_dir: LogDir) -> bool:
        """Whether its log is open there."""
        return self._log is not None and log_dir.holds(self._log)

    def replace_log(self, log: PartitionLog, durability: Durability, directory: bytes) -> None:
        """Goes on in another log of that directory, which holds all that this one does, durably."""
        syncs = self._syncs
        self._log, self.directory = log, directory
        self._syncs = durability.of(log, self.wake)
        log.on_roll = self._syncs.soon
        if syncs is not None:
            syncs.take_over()
        self.wake()

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted."""
        return self._is_gone

    def go_offline(self, reason: str) -> None:
        """Its directory has failed: all who wait are told so at once, as is whoever comes later."""
        self._epoch = self.leader_epoch
        self.offline = reason
        self._log = None
        if self._syncs is not None:
            self._syncs.end(DirectoryFailed(reason))
        wake_all(self.waiters)

    @property
    def leader_epoch(self) -> int:
        """The epoch that clients are told, and that batches get."""
        return self._epoch if self._log is None else self._log.leader_epoch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses a client that knows of another leader epoch; -1 does not ask (KIP-320). StorageError if offline."""
        leader_epoch = self.log.leader_epoch
        if current_leader_epoch in (-1, leader_epoch):
            return
        if current_leader_epoch < leader_epoch:
            raise NotLed(ErrorCode.FENCED_LEADER_EPOCH, self)
        raise NotLed(ErrorCode.UNKNOWN_LEADER_EPOCH, self)
