"""How far the application has come: which records it holds, what may be committed, and committing it.

Owns the difference between handed out and done. A record is done when the application asks for the next ones, or stops
the consumer; only that is committed by itself, every `auto_commit_interval_ms`, before a rebalance and at the end. An
explicit commit without offsets takes all that was handed out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ...protocol.errors import ErrorCode
from ..net.errors import ClientError, KafkaError
from .fetcher import Fetcher
from .group import Group
from .group_offsets import NOT_A_MEMBER, GroupOffsets, OffsetAndMetadata
from .list_offsets import TopicPartition
from .options import ConsumerOptions
from .positions import PartitionState

__all__ = ["Progress"]

_log = logging.getLogger("ottla.client")


class Progress:
    """Of one consumer. `held` are the partitions of which the application has records; `offsets` is None without a
    group. To a `Group` it is its `Reader`."""

    def __init__(self, fetcher: Fetcher, options: ConsumerOptions, offsets: GroupOffsets | None) -> None:
        self.held: list[PartitionState] = []
        self.group: Group | None = None
        self._fetcher = fetcher
        self._options = options
        self._offsets = offsets
        self._loop = asyncio.get_running_loop()
        self._handed_at_s = self._loop.time()
        self._committing = asyncio.Lock()  # one after the other: an older one tried again must not undo a newer one
        self._task: asyncio.Task[None] | None = None
        if offsets is not None and options.enable_auto_commit:
            self._task = self._loop.create_task(self._commit_by_itself())

    async def close(self) -> None:
        """Ends the commits by itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def handed(self, state: PartitionState) -> None:
        """The application gets records of a partition."""
        self.held.append(state)
        self._handed_at_s = self._loop.time()

    def come_back(self) -> None:
        """The application is done with what it got last."""
        for state in self.held:
            state.committable = state.position
        self.held.clear()

    # What a group asks

    def is_idle(self) -> bool:
        """See `Reader`."""
        return not self.held

    def is_absent(self) -> bool:
        """See `Reader`."""
        return bool(self.held) and self._loop.time() - self._handed_at_s > self._options.max_poll_interval_ms / 1000

    async def revoke(self, is_lost: bool) -> None:
        """See `Reader`."""
        if not is_lost and self._task is not None:
            # No heartbeats are sent meanwhile, so that this must not take as long as the session.
            await self.commit_done(self._options.session_timeout_ms / 2000)
        self._fetcher.assign([])
        self.held.clear()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """See `Reader`."""
        self._fetcher.assign(partitions)

    def follow(self, topics: frozenset[str]) -> None:
        """See `Reader`."""
        self._fetcher.follow(topics)

    # Committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float) -> None:
        """Commits these, or all that was handed out. Raises KafkaError."""
        if offsets is None:
            for state in self._fetcher.states.values():
                state.committable = state.position
            offsets = self._done()
        await self._commit(offsets, timeout_s)

    async def commit_done(self, timeout_s: float) -> None:
        """Commits what is done and not committed yet; a failure is logged, and the next time makes up for it."""
        states = self._fetcher.states
        offsets = {where: told for where, told in self._done().items() if states[where].committed != told.offset}
        if not offsets:
            return
        try:
            await self._commit(offsets, timeout_s)
        except ClientError as error:
            _log.warning("group %s: what is done could not be committed: %s", self._options.group, error)

    def _done(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            where: OffsetAndMetadata(state.committable, "", -1 if state.is_held else state.leader_epoch)
            for where, state in self._fetcher.states.items()
            if state.committable >= 0
        }

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float) -> None:
        if self._offsets is None:
            raise ClientError("nothing can be committed without a group")
        group = self.group
        generation = group.membership.generation if group is not None else None
        async with self._committing:
            if group is not None and (group.is_joining or group.membership.generation != generation):
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the partitions may be others' by now")
            try:
                membership = group.membership if group is not None else NOT_A_MEMBER
                await self._offsets.commit(offsets, membership, timeout_s)
            except KafkaError as error:
                if group is not None:
                    group.lost(error.code)
                raise
        for where, told in offsets.items():
            if where in self._fetcher.states:
                self._fetcher.states[where].committed = told.offset

    async def _commit_by_itself(self) -> None:
        interval_s = self._options.auto_commit_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_s)
            if self.group is None or not self.group.is_joining:
                await self.commit_done(self._options.default_api_timeout_ms / 1000)
