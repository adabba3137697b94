"""A partition as the broker serves it: its log, its waiting fetches, and the order of its appends."""

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
from .flush import LogSync
from .purgatory import wake_all
from .refused_batches import RefusedBatches

if TYPE_CHECKING:
    from ...protocol.records.batch import BatchHeader
    from ...protocol.records.validate import Prepared
    from ...storage.log.append_run import AppendRun
    from ...storage.log_dir.directory import DataDirectory
    from ...storage.partition_log import LogConfig, PartitionLog
    from ...storage.producers.verification_guard import Guard
    from ..cooperative import Cooperative
    from .flush import Durability
    from .purgatory import FetchWaiter

LEADER_EPOCH = 0  # the first one; adopted data keeps its epoch
PRODUCE_VERSION = 13  # of the broker's own records, as of a current producer: topics of all message formats accept them

Records = bytes | bytearray | memoryview
Submitted = Appended | asyncio.Future[Appended]
"""The result of an append, or the future of its sync."""


class NotLed(Refused):
    """Raised for a client that requests a partition from a node that does not lead it, or with another leader epoch."""

    def __init__(self, code: ErrorCode, partition: Partition) -> None:
        super().__init__(code)
        self.partition = partition


def _pass_on(result: asyncio.Future[Appended], ended: asyncio.Future[Appended] | asyncio.Future[Submitted]) -> None:
    """Completes `result` like `ended`, or like the sync that `ended` returned."""
    if result.done():  # a waiter was cancelled
        return
    if ended.cancelled():
        result.cancel()
    elif (error := ended.exception()) is not None:
        result.set_exception(error)
        result.exception()  # else asyncio logs an error that no waiter has retrieved
    elif isinstance(appended := ended.result(), asyncio.Future):
        appended.add_done_callback(partial(_pass_on, result))
    else:
        result.set_result(appended)


class Partition:
    """One partition. Appends through it wake its waiting fetches."""

    __slots__ = (
        "_epoch",
        "_log",
        "_refused_batches",
        "_syncs",
        "assignment",
        "directory",
        "index",
        "is_gone",
        "is_held",
        "leader",
        "offline",
        "topic",
        "unfinished",
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
        """Without a log the partition is offline: `offline` is the reason, and the assignment has the leader epoch."""
        self.topic = topic
        self.index = index
        self._log = log
        self.assignment = assignment or Assignment((), (), NO_LEADER)
        """The replicas and the leader. The epoch of the log is at least this one's, and takes precedence."""
        self.leader = self.assignment.leader
        """The node id of the leader, or -1."""
        self.is_held = False
        """Whether a test keeps the partition without a leader."""
        self._epoch = self.assignment.leader_epoch
        self.directory: bytes | None = None
        """The id of its log directory, if known."""
        self.offline = offline
        """The reason why the partition is offline: its directory has failed."""
        self.waiters: dict[FetchWaiter, None] = {}
        self._syncs: LogSync | None = None
        if log is not None:
            self._syncs = LogSync(durability, log, self.wake)
            log.on_roll = self._syncs.soon
        self.unfinished: asyncio.Task[Submitted] | None = None
        """The newest append that is under way, in several steps; earlier ones end before it."""
        self.is_gone = False
        """Whether the partition was deleted."""
        self._refused_batches: RefusedBatches | None = None  # set by the first refused batch

    @property
    def log(self) -> PartitionLog:
        """The partition's log. Raises StorageError if the partition is offline."""
        if self._log is None:
            raise DirectoryFailed(f"{self.topic}-{self.index} is offline: {self.offline}")
        return self._log

    @property
    def syncs(self) -> LogSync:
        """The syncs of the log. Raises StorageError if the partition is offline."""
        if self._log is None or self._syncs is None:
            raise DirectoryFailed(f"{self.topic}-{self.index} is offline: {self.offline}")
        return self._syncs

    def append(self, records: Records, now_ms: int, produce_version: int) -> Submitted:
        """Appends a client's records now. A future is done after the sync. Raises what `PartitionLog.append` raises."""
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
        """Appends a client's records: now, or in a task if that takes several cooperative steps.

        Appends keep the order of their submission. The task completes even if the client has closed its connection, as
        after a request with acks=0. The future is done after the sync that the append waits for. This method, or the
        future, raises what `PartitionLog.append` raises.

        `guard` is the result of `PartitionLog.verify`, or a future of it while the transaction coordinator verifies the
        partition: the append waits for the future, and fails with its error. Without a guard a transactional batch may
        begin the transaction. `compares_log_start` is that of `PartitionLog.append_prepared`.
        """
        if self.unfinished is None and not isinstance(guard, asyncio.Future):
            log = self.log
            prepared = validate.prepare_in_one_step(
                records, log.config.rules, now_ms, produce_version, log.log_end_offset
            )
            if prepared is not None:
                try:
                    return self._adopt(log, prepared, now_ms, guard, compares_log_start)
                except DuplicateSequence as refused:
                    return self._begin(self._find_copy(prepared.header, refused, scheduler))
        # Works on a copy: the request's buffer is reused as soon as its handler waits.
        later = self._append_later(
            self.unfinished, bytearray(records), now_ms, produce_version, scheduler, guard, compares_log_start
        )
        return self._begin(later)

    def begin_run(self, node_id: int) -> AppendRun | None:
        """Returns an empty run of plain batches that a node may append at once, or None if an append has more to do
        first. Drop it unless it `is_current` before `append_run`.
        """
        if (
            self._log is None
            or self._syncs is None
            or self.is_gone
            or self.leader != node_id
            or self.unfinished is not None
            or self._refused_batches
        ):
            return None
        return self._log.begin_run(self._syncs.due_at)

    def is_current(self, run: AppendRun, node_id: int | None = None) -> bool:
        """Whether `begin_run` would return the same run, but empty; of any node without `node_id`."""
        return (
            self._log is not None
            and self._syncs is not None
            and not self.is_gone
            and (node_id is None or self.leader == node_id)
            and self.unfinished is None
            and not self._refused_batches
            and self._log.is_current(run, self._syncs.due_at)
        )

    def append_run(self, run: AppendRun, now_ms: int) -> None:
        """Writes a run. Raises StorageError, which is that of its first batch; nothing is appended then, and the other
        batches are to be appended one by one.
        """
        log = self.log
        try:
            log.append_run(run, now_ms)
        except StorageError:
            self.refused_batches.note(run.headers[0])
            raise
        if self.waiters:
            self.wake()

    def _begin(self, later: Coroutine[Any, Any, Submitted]) -> asyncio.Future[Appended]:
        """Starts work that all later appends of this partition wait for; they do not wait for its sync."""
        loop = asyncio.get_running_loop()
        self.unfinished = loop.create_task(later)
        self.unfinished.add_done_callback(self._done)
        result: asyncio.Future[Appended] = loop.create_future()
        self.unfinished.add_done_callback(partial(_pass_on, result))
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
            await asyncio.wait([guard])  # shared with other appends: asyncio.wait does not cancel it
            guard = guard.result()
        log = self.log
        steps = validate.preparing(records, log.config.rules, now_ms, produce_version, log.log_end_offset)
        prepared = await scheduler.run(steps)
        if self.is_gone:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            return self._adopt(self.log, prepared, now_ms, guard, compares_log_start)
        except DuplicateSequence as refused:
            return await self._find_copy(prepared.header, refused, scheduler)

    async def _find_copy(self, header: BatchHeader, refused: DuplicateSequence, scheduler: Cooperative) -> Submitted:
        """Looks for a copy of the batch in the tail of the log, in a thread, in releases that do so (KAFKA-5494)."""
        log = self.log
        scan = log.duplicate_scan(header)
        try:
            found = await scheduler.run(in_thread(scan)) if scan is not None else None
        except StorageError as error:
            log.report(error)
            raise
        if self.is_gone:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.syncs.after(self.log.resolve_duplicate(found, refused))

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
        """The refused batches of the partition, created at first use."""
        if self._refused_batches is None:
            self._refused_batches = RefusedBatches()
        return self._refused_batches

    def appended(self, appended: Appended) -> Submitted:
        """Makes appended records visible to consumers, now or after their sync. Returns the result, or the future of
        the sync.
        """
        syncs = self._syncs
        if syncs is not None and appended.last_offset >= syncs.due_at:
            later = syncs.after(appended)
            if later is not appended:
                return later
        if self.waiters:
            self.wake()
        return appended

    def refuse(self, producer_id: int, producer_epoch: int) -> None:
        """Invalidates a producer's guard, as `PartitionLog.refuse`; does nothing if the partition is offline."""
        if self._log is not None:
            self._log.refuse(producer_id, producer_epoch)

    def configure(self, config: LogConfig) -> None:
        """Applies new settings to the log."""
        self.log.configure(config)
        self.syncs.reckon()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if self.unfinished is task:
            self.unfinished = None
        if not task.cancelled():
            task.exception()  # else asyncio logs an error that no waiter has retrieved

    def wake(self) -> None:
        """Lets waiting fetches check for enough bytes."""
        for waiter in list(self.waiters):
            waiter.check()

    def gone(self) -> None:
        """Ends waits after the partition was deleted: fetches return an error at once."""
        self.is_gone = True
        if self._syncs is not None:
            self._syncs.end(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        wake_all(self.waiters)

    @property
    def replicas(self) -> tuple[int, ...]:
        """The replicas, the preferred leader first."""
        return self.assignment.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        """The node ids of the ISR."""
        return self.assignment.isr

    def assign(self, assignment: Assignment) -> None:
        """Applies a new assignment, and a new leader's epoch."""
        self.assignment = assignment
        self.leader = assignment.leader
        if self._log is None:
            self._epoch = assignment.leader_epoch
        else:
            self._log.leader_epoch = assignment.leader_epoch

    def hold(self, *, is_held: bool) -> None:
        """Keeps the high watermark where it is while fewer replicas than min.insync.replicas are in sync, and moves it
        to the end of the log afterwards.
        """
        log = self._log
        if log is None or is_held == (log.unreplicated_from is not None):
            return
        log.hold_unreplicated(log.high_watermark if is_held else None)
        if not is_held:
            self.wake()

    def is_replica(self, node_id: int) -> bool:
        """Returns whether a node may serve reads: a replica of a partition that has a leader."""
        return self.leader != NO_LEADER and node_id in self.assignment.replicas

    def check_leader(self, node_id: int, current_leader_epoch: int = -1) -> None:
        """Refuses requests to a node that does not lead the partition, or with another leader epoch.

        As in Kafka, a replica checks the epoch first. Raises StorageError if the partition is offline and an epoch is
        given.
        """
        if self.leader != node_id:
            if current_leader_epoch != -1 and node_id in self.assignment.replicas:
                self.check_epoch(current_leader_epoch)
            raise NotLed(ErrorCode.NOT_LEADER_OR_FOLLOWER, self)

    def check_in_sync(self, least: int, *, at_most_replicas: bool) -> None:
        """Raises NOT_ENOUGH_REPLICAS if the ISR is smaller than `least`, the value of min.insync.replicas. With
        `at_most_replicas`, all replicas are enough where there are fewer.
        """
        if at_most_replicas:
            least = min(least, len(self.assignment.replicas))
        if len(self.assignment.isr) < least:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS)

    def lies_in(self, log_dir: DataDirectory) -> bool:
        """Returns whether its log is open in a directory."""
        return self._log is not None and log_dir.holds(self._log)

    def replace_log(self, log: PartitionLog, durability: Durability, directory: bytes) -> None:
        """Continues in another log, of the given directory, which has all records of this one durably."""
        syncs = self._syncs
        if self._log is not None:
            log.hold_unreplicated(self._log.unreplicated_from)
        self._log, self.directory = log, directory
        self._syncs = LogSync(durability, log, self.wake)
        log.on_roll = self._syncs.soon
        if syncs is not None:
            syncs.take_over()
        self.wake()

    def go_offline(self, reason: str) -> None:
        """Takes the partition offline after a failure of its directory: waiting and later requests get an error."""
        self._epoch = self.leader_epoch
        self.offline = reason
        self._log = None
        if self._syncs is not None:
            self._syncs.end(DirectoryFailed(reason))
        wake_all(self.waiters)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch for clients and for appended batches."""
        return self._epoch if self._log is None else self._log.leader_epoch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Refuses requests with another leader epoch; -1 skips the check (KIP-320). Raises StorageError if offline."""
        leader_epoch = self.log.leader_epoch
        if current_leader_epoch in (-1, leader_epoch):
            return
        if current_leader_epoch < leader_epoch:
            raise NotLed(ErrorCode.FENCED_LEADER_EPOCH, self)
        raise NotLed(ErrorCode.UNKNOWN_LEADER_EPOCH, self)
