"""The progress of the application: the records that it has, the offsets that may be committed, and the commits.

Owns the distinction between returned and processed records. A record counts as processed when the application requests
the next records, or stops the consumer. The automatic commit includes processed records only; it runs every
`auto_commit_interval_ms`, before a rebalance, and at the end. An explicit commit without offsets includes all returned
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from ...protocol.errors import ErrorCode
from ..net.errors import ClientError, KafkaError
from .fetcher import Fetcher
from .group import Group
from .group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from .list_offsets import TopicPartition
from .options import ConsumerOptions
from .positions import PartitionState

_log = logging.getLogger("ottla.client")


class Progress:
    """The progress of one consumer; implements `Reader` for its `Group`.

    `held` are the partitions with returned records that are not processed yet. `offsets` is None without a group.
    """

    def __init__(self, fetcher: Fetcher, options: ConsumerOptions, offsets: GroupOffsets | None) -> None:
        self.held: list[PartitionState] = []
        self.group: Group | None = None
        self._fetcher = fetcher
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

    # Reader

    def is_idle(self) -> bool:
        """Implements `Reader.is_idle`."""
        return not self.held

    def is_absent(self) -> bool:
        """Implements `Reader.is_absent`."""
        return bool(self.held) and self._loop.time() - self._handed_at_s > self._options.max_poll_interval_ms / 1000

    async def revoke(self, is_lost: bool, kept: Collection[TopicPartition] = ()) -> None:
        """Implements `Reader.revoke`."""
        if not is_lost and self._task is not None:
            # No heartbeats are sent during a commit; one as long as the session timeout would end the membership.
            await self.commit_done(self._options.session_timeout_ms / 2000)
        self._fetcher.assign(kept)
        self.held.clear()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Implements `Reader.assign`."""
        self._fetcher.assign(partitions)

    def follow(self, topics: frozenset[str]) -> None:
        """Implements `Reader.follow`."""
        self._fetcher.follow(topics)

    # Committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commits offsets, by default of all returned records. Raises KafkaError."""
        if offsets is None:
            for state in self._fetcher.states.values():
                state.committable = state.position
            offsets = self._done()
        await self._commit(offsets, timeout_s)

    async def commit_done(self, timeout_s: float) -> None:
        """Commits processed records that are not committed yet. A failure is logged; the next commit includes them."""
        states = self._fetcher.states
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
            for where, state in self._fetcher.states.items()
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
            if where in self._fetcher.states:
                self._fetcher.states[where].committed = committed.offset

    async def _commit_by_itself(self) -> None:
        interval_s = self._options.auto_commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self.group is None or not self.group.is_joining:
                await self.commit_done(self._options.default_api_timeout_ms / 1000)
