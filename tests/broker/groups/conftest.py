"""A coordinator with a log in memory, a manual clock, and group members that send requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.groups.classic.state import Group, JoinReply, JoinRequest, LeaveReply, SyncReply
from ottla.broker.groups.coordinator import GroupCoordinator, TopicLookup
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.records import LogEntry, TransactionalRecord, TransactionEnd
from ottla.broker.groups.settings import CoordinatorSettings
from ottla.protocol.errors import ErrorCode

T = TypeVar("T")


class Harness:
    """`log` has the appended records by partition; with `fail_with` set every append raises it."""

    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.clock = ManualClock()
        self.log: dict[int, list[LogEntry]] = {}
        self.transactional: list[tuple[int, int, int]] = []
        self.fail_with: ErrorCode | None = None
        self.ids = 0
        self.topics = {"t": 3, "u": 1}
        self.settings = settings or CoordinatorSettings()
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        return GroupCoordinator(
            append=self.append,
            partitions=50,
            clock=self.clock,
            topics=TopicLookup(
                has_partition=lambda topic, index: 0 <= index < self.topics.get(topic, 0),
                name_of=lambda topic_id: {b"T" * 16: "t"}.get(topic_id),
                id_of=lambda topic: {"t": b"T" * 16}.get(topic),
            ),
            settings=self.settings,
            new_uuid=self.new_uuid,
            append_transactional=self.append_transactional,
            error_code=lambda error: error.args[0],
        )

    def restart(self) -> GroupCoordinator:
        """Creates a new coordinator on the same log, and stops the timers of the old one."""
        self.coordinator.close()
        self.coordinator = self.make()
        for partition, records in self.log.items():
            assert self.coordinator.load(partition, list(records)) is ErrorCode.NONE
        return self.coordinator

    def append(self, partition_index: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> None:
        if self.fail_with is not None:
            raise RuntimeError(self.fail_with)
        assert records
        assert now_ms == self.clock.now_ms()
        self.log.setdefault(partition_index, []).extend(records)

    def append_transactional(
        self, partition_index: int, records: list[Any], now_ms: int, producer_id: int, producer_epoch: int
    ) -> None:
        self.transactional.append((partition_index, producer_id, producer_epoch))
        self.log.setdefault(partition_index, []).extend(TransactionalRecord(producer_id, *one) for one in records)

    def end(self, producer_id: int, committed: bool, group_id: str = "g") -> None:
        """Writes the producer's marker to the partition of the group."""
        partition_index = self.coordinator.partition_of(group_id)
        self.log.setdefault(partition_index, []).append(TransactionEnd(producer_id, committed))
        self.coordinator.end_transaction(partition_index, producer_id, committed=committed)

    def new_uuid(self) -> str:
        self.ids += 1
        return f"{self.ids:04}"

    def group(self, group_id: str = "g") -> Group:
        group = self.coordinator.group(group_id)
        assert isinstance(group, Group)
        return group

    async def advance(self, ms: int) -> None:
        await settle()
        self.clock.advance(ms)
        await settle()

    def join(self, member_id: str = "", group_id: str = "g", **changes: Any) -> asyncio.Task[JoinReply]:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"),),
        }
        fields |= changes
        request = JoinRequest(**{**fields, "protocols": tuple(fields["protocols"])})
        return start(self.coordinator.join(group_id, request))

    def sync(self, member_id: str, generation_id: int, group_id: str = "g", **changes: Any) -> asyncio.Task[SyncReply]:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "generation_id": generation_id,
            "protocol_type": None,
            "protocol_name": None,
            "assignments": [],
        }
        return start(self.coordinator.sync(group_id, **{**fields, **changes}))

    def heartbeat(self, member_id: str, generation_id: int, instance_id: str | None = None) -> ErrorCode:
        return self.coordinator.heartbeat(
            "g", member_id=member_id, instance_id=instance_id, generation_id=generation_id
        )

    def leave(self, *members: tuple[str, str | None]) -> LeaveReply:
        return self.coordinator.leave("g", members)

    def commit(
        self, offset: int, member_id: str = "", generation_id: int = -1, group_id: str = "g", **changes: Any
    ) -> ErrorCode:
        committed = CommittedOffset(offset, commit_timestamp_ms=self.clock.now_ms(), **changes)
        return self.coordinator.commit(
            group_id,
            member_id=member_id,
            instance_id=None,
            generation_id=generation_id,
            commits=[(("t", 0), committed)],
        )

    async def stable(self, count: int = 1, **changes: Any) -> list[str]:
        """Creates a Stable group of `count` members, the leader first; each member's assignment is its own id."""
        joins = [self.join(**{**changes, **_static(changes, n)}) for n in range(count)]
        await settle()
        await self.advance(self.settings.initial_rebalance_delay_ms)
        if count > 1:  # extended once for members that joined later
            await self.advance(self.settings.initial_rebalance_delay_ms)
        ids = [(await soon(join)).member_id for join in joins]
        await self.settle_generation(ids)
        return ids

    async def settle_generation(self, ids: list[str]) -> None:
        generation, leader = self.group().generation_id, self.group().leader
        assert leader is not None
        given = [(name, name.encode()) for name in ids]
        syncs = [
            self.sync(name, generation, assignments=given if name == leader else [])
            for name in sorted(ids, key=lambda name: name == leader)
        ]
        for sync in syncs:
            assert (await soon(sync)).error is ErrorCode.NONE


def _static(changes: dict[str, Any], n: int) -> dict[str, Any]:
    return {"instance_id": f"{changes['instance_id']}{n}"} if changes.get("instance_id") else {}


def start(call: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(call)


async def settle() -> None:
    """Runs everything that can run without a clock move."""
    for _ in range(5):
        await asyncio.sleep(0)


async def soon(call: Awaitable[T]) -> T:
    """Returns the result, which must be available without a clock move."""
    task = asyncio.ensure_future(call)
    await settle()
    assert task.done(), "still delayed"
    return task.result()


@pytest.fixture
def make_harness() -> type[Harness]:
    return Harness


@pytest.fixture
def h(make_harness: type[Harness]) -> Harness:
    return make_harness()


@pytest.fixture(name="soon")
def _soon() -> Any:
    return soon


@pytest.fixture(name="settle")
def _settle() -> Any:
    return settle
