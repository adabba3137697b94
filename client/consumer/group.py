"""Membership of a consumer group: what both protocols have in common, and the progress of the application.

`Progress` owns the distinction between returned and processed records. A record counts as processed when the
application requests the next records, or stops the consumer. The automatic commit includes processed records only; it
runs every `auto_commit_interval_ms`, before a rebalance, and at the end. An explicit commit without offsets includes
all returned records.

`Group` owns the state that the consumer reads, the task of the membership and its end. `classic_group` and
`consumer_group` are the protocols. A rebalance waits until the application has processed its returned records, as in
Java, where both run in one thread: so a rebalance alone causes no duplicates. Heartbeats continue meanwhile. A member
whose application requests no records for `max_poll_interval_ms` leaves the group.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping

from ...protocol.errors import ErrorCode
from ..net.cluster import Cluster
from ..net.errors import ClientClosed, ClientError, KafkaError
from .fetcher import Fetcher
from .group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from .list_offsets import TopicPartition
from .options import ConsumerOptions
from .positions import PartitionState

_log = logging.getLogger("ottla.client")


class Progress:
    """The progress of one consumer.

    `held` are the partitions with returned records that are not processed yet. `offsets` is None without a group.
    """

    def __init__(self, fetcher: Fetcher, options: ConsumerOptions, offsets: GroupOffsets | None) -> None:
        self.held: list[PartitionState] = []
        self.group: Group | None = None
        self.fetcher = fetcher
        self._options = options
        self._offsets = offsets
        self._loop = asyncio.get_running_loop()
        self._handed_at_s = self._loop.time()
        self._committing = asyncio.Lock()  # one at a time: the retry of an older commit must not undo a newer one
        self._task: asyncio.Task[None] | None = None
        if offsets is not None and options.enable_auto_commit:
            self._task = self._loop.create_task(self._commit_by_itself())

    async def close(self) -> None:
        """Stops the automatic commits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def handed(self, state: PartitionState) -> None:
        """Notes that records of a partition are returned to the application."""
        self.held.append(state)
        self._handed_at_s = self._loop.time()

    def come_back(self) -> None:
        """Marks all returned records as processed."""
        for state in self.held:
            state.committable = state.position
        self.held.clear()

    # Calls of the group

    def is_absent(self) -> bool:
        """Returns whether the application has requested no records for longer than `max_poll_interval_ms`."""
        return bool(self.held) and self._loop.time() - self._handed_at_s > self._options.max_poll_interval_ms / 1000

    async def revoke(self, is_lost: bool, kept: Collection[TopicPartition] = ()) -> None:
        """Commits processed records (with automatic commits, unless `is_lost`), and revokes all partitions but
        `kept`."""
        if not is_lost and self._task is not None:
            # No heartbeats are sent during a commit; one as long as the session timeout would end the membership.
            await self.commit_done(self._options.session_timeout_ms / 2000)
        self.fetcher.assign(kept)
        self.held.clear()

    # Committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commits offsets, by default of all returned records. Raises KafkaError."""
        if offsets is None:
            for state in self.fetcher.states.values():
                state.committable = state.position
            offsets = self._done()
        await self._commit(offsets, timeout_s)

    async def commit_done(self, timeout_s: float) -> None:
        """Commits processed records that are not committed yet. A failure is logged; the next commit includes them."""
        states = self.fetcher.states
        offsets = {where: found for where, found in self._done().items() if states[where].committed != found.offset}
        if not offsets:
            return
        try:
            await self._commit(offsets, timeout_s)
        except ClientError as error:
            _log.warning("group %s: commit of processed records failed: %s", self._options.group, error)

    def _done(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            where: OffsetAndMetadata(state.committable, "", -1 if state.is_held else state.leader_epoch)
            for where, state in self.fetcher.states.items()
            if state.committable >= 0
        }

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        if self._offsets is None:
            raise ClientError("a commit needs a group: none is set")
        group = self.group
        membership = group.membership if group is not None else NOT_A_MEMBER
        async with self._committing:
            is_sent = False
            while not is_sent:
                if group is not None and not group.is_current(membership.generation):
                    text = "the partitions may be assigned to other members now"
                    raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, text)
                membership = group.membership if group is not None else NOT_A_MEMBER
                try:
                    await self._offsets.commit(offsets, membership, timeout_s)
                    is_sent = True
                except KafkaError as error:
                    if group is None or not await group.lost(error.code, membership.generation):
                        raise
        for where, committed in offsets.items():
            if where in self.fetcher.states:
                self.fetcher.states[where].committed = committed.offset

    async def _commit_by_itself(self) -> None:
        interval_s = self._options.auto_commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self.group is None or not self.group.is_joining:
                await self.commit_done(self._options.default_api_timeout_ms / 1000)


class Group(ABC):
    """A member of a group. `is_changing`: it has no assignment or must revoke some; `settled` waits for the next."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: list[str], progress: Progress) -> None:
        assert options.group is not None
        self.group = options.group
        self.is_changing = True
        self.is_joining = True  # not a member of the group
        self.membership = NOT_A_MEMBER._replace(instance_id=options.group_instance_id)
        self._cluster = cluster
        self._options = options
        self._topics = topics
        self._progress = progress
        self._fetcher = progress.fetcher
        self._loop = asyncio.get_running_loop()
        self._stable = asyncio.Event()
        self._nudged = asyncio.Event()  # set when the application has processed its records, or the state has changed
        self._failure: ClientError | None = None
        self._is_gone = False  # the coordinator has removed this member
        self._attempts = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts joining."""
        self._fetcher.follow(frozenset(self._topics))
        self._task = self._loop.create_task(self._live())

    async def settled(self) -> None:
        """Waits until there is an assignment. Raises the error that ended the membership."""
        self._nudged.set()
        await self._stable.wait()
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Ends the membership, and notifies the coordinator. A static member keeps its partitions."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._failure = self._failure or ClientClosed("the consumer is closed")
        self._stable.set()
        await self._leave("the consumer is being closed")

    async def _live(self) -> None:
        try:
            while True:
                await self._cycle()
        except Exception as error:
            failure = error if isinstance(error, ClientError) else ClientError(f"group member failed: {error!r}")
            if failure is not error:
                failure.__cause__ = error
            self._failure = failure
            self.is_changing = self.is_joining = True
            self._stable.set()
            self._fetcher.assign([])

    def _change(self, why: str) -> None:
        if not self.is_changing:
            _log.debug("group %s: rebalance, %s", self.group, why)
            self.is_changing = True
            self._stable.clear()
        self._nudged.set()

    def _settle(self) -> None:
        self.is_changing = self.is_joining = False
        self._stable.set()

    async def _until_due(self, due_s: float) -> bool:
        """Waits until that time of the loop, or until the state changes. Returns whether the time has come."""
        self._nudged.clear()
        try:
            async with asyncio.timeout_at(due_s):
                await self._nudged.wait()
        except TimeoutError:
            return True
        return False

    async def _stay_away(self) -> None:
        """Leaves the group of an application that requests no records, and returns when it does again."""
        _log.warning(
            "group %s: no records requested within max.poll.interval.ms (%d), leaving the group",
            self.group,
            self._options.max_poll_interval_ms,
        )
        self._is_gone = self.is_joining = True  # no more commits of this generation
        self._change("max.poll.interval.ms exceeded")
        await self._leave("max.poll.interval.ms exceeded")
        while self._progress.held:
            self._nudged.clear()
            await self._nudged.wait()

    @abstractmethod
    async def _cycle(self) -> None:
        """Joins, and sends heartbeats until the member must join again. Raises the error that ends the membership."""

    @abstractmethod
    async def _leave(self, reason: str) -> None:
        """Leaves the group, unless the member is static; if that fails, the session timeout removes the member."""

    @abstractmethod
    def is_current(self, generation: int) -> bool:
        """Returns whether a member that began a commit in this generation or epoch still has its partitions."""

    @abstractmethod
    async def lost(self, code: int, generation: int) -> bool:
        """Handles the error code of a commit. Returns whether the commit is to be sent again."""
