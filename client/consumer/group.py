"""Membership of a consumer group: what both protocols have in common.

Owns the state that the consumer reads, the task of the membership and its end. Reading and committing belong to the
consumer, which is notified through `Reader`. `classic_group` and `consumer_group` are the protocols.

A rebalance waits until the application has processed its returned records, as in Java, where both run in one thread: so
a rebalance alone causes no duplicates. Heartbeats continue meanwhile. A member whose application requests no records
for `max_poll_interval_ms` leaves the group.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Protocol

from ..net.cluster import Cluster
from ..net.errors import ClientClosed, ClientError
from .group_offsets import NOT_A_MEMBER
from .list_offsets import TopicPartition
from .options import ConsumerOptions

_log = logging.getLogger("ottla.client")


class Reader(Protocol):
    """The consumer as its group sees it."""

    def is_idle(self) -> bool:
        """Returns whether the application has processed all returned records."""
        ...

    def is_absent(self) -> bool:
        """Returns whether it has requested no records for longer than `max_poll_interval_ms`."""
        ...

    async def revoke(self, is_lost: bool, kept: Collection[TopicPartition] = ()) -> None:
        """Commits processed records (with automatic commits, unless `is_lost`), and revokes all partitions but
        `kept`."""
        ...

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Starts reading partitions."""
        ...

    def follow(self, topics: frozenset[str]) -> None:
        """Keeps the metadata of topics up to date."""
        ...


class Group(ABC):
    """A member of a group. `is_changing`: it has no assignment or must revoke some; `settled` waits for the next."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: list[str], reader: Reader) -> None:
        assert options.group is not None
        self.group = options.group
        self.is_changing = True
        self.is_joining = True  # not a member of the group
        self.membership = NOT_A_MEMBER._replace(instance_id=options.group_instance_id)
        self._cluster = cluster
        self._options = options
        self._topics = topics
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._stable = asyncio.Event()
        self._nudged = asyncio.Event()  # set when the application has processed its records, or the state has changed
        self._failure: ClientError | None = None
        self._is_gone = False  # the coordinator has removed this member
        self._attempts = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts joining."""
        self._reader.follow(frozenset(self._topics))
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
            self._reader.assign([])

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
        while not self._reader.is_idle():
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
