"""The share coordinator: epochs, snapshots, pruning, failed writes, and a crash after each record."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.errors import Refused
from ottla.broker.groups.share.state import SharePartitionKey
from ottla.broker.share.state_coordinator import StateCoordinator, StateSettings, StateWrite
from ottla.broker.share.values import StateBatch, StoredState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import Record
from ottla.storage.errors import StorageError
from ottla.storage.log.results import Appended

TOPIC = b"t" * 16
KEYS = [SharePartitionKey(group, TOPIC, index) for group in ("g", "h") for index in range(2)]
KEY = KEYS[0]


class World:
    """A coordinator with one partition of its log, a list of records."""

    def __init__(self, records: list[Record] | None = None, *, updates: int = 3) -> None:
        self.records = records or []
        self.start = 0
        self.clock = ManualClock()
        self.failing = False
        self.topics = {TOPIC: 2}
        self.coordinator = StateCoordinator(
            append=self.append,
            prune=self.prune,
            has_partition=lambda topic_id, index: index < self.topics.get(topic_id, 0),
            partitions=1,
            clock=self.clock,
            settings=StateSettings(updates_per_snapshot=updates),
        )
        assert self.coordinator.load(0, list(self.records)) is ErrorCode.NONE
        self.coordinator.start()

    def append(self, index: int, records: list[tuple[bytes, bytes | None]], now_ms: int) -> Appended:
        if self.failing:
            raise StorageError("full")
        first = self.records[-1].offset + 1 if self.records else 0
        self.records += [Record(first + n, now_ms, key, value, ()) for n, (key, value) in enumerate(records)]
        return Appended(first, self.records[-1].offset, -1, 0, False)

    def prune(self, index: int, offset: int) -> None:
        self.records = [record for record in self.records if record.offset >= offset]
        self.start = offset

    def read(self, key: SharePartitionKey = KEY) -> StoredState:
        return self.coordinator.read(key, -1)[0]

    def write(self, *batches: tuple[int, int, int, int], start: int = -1, key: SharePartitionKey = KEY) -> None:
        self.coordinator.write(key, StateWrite(-1, -1, start, 0, tuple(StateBatch(*one) for one in batches)))


def refused(code: ErrorCode, act: Callable[[], object]) -> None:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.code is code


def test_state_must_be_initialized() -> None:
    world = World()
    refused(ErrorCode.INVALID_REQUEST, world.read)
    refused(ErrorCode.INVALID_REQUEST, lambda: world.write((0, 1, 2, 1)))
    assert world.coordinator.summary(KEY) is None and world.coordinator.delete(KEY) is None
    world.coordinator.initialize(KEY, 0, -1)
    assert world.read() == (0, -1, ())


def test_epochs_are_checked() -> None:
    coordinator = (world := World()).coordinator
    coordinator.initialize(KEY, 5, 0)
    refused(ErrorCode.FENCED_STATE_EPOCH, lambda: coordinator.initialize(KEY, 4, 0))
    coordinator.initialize(KEY, -1, 0)
    coordinator.initialize(KEY, 5, 0)
    assert coordinator.read(KEY, 7)[1] is not None, "the leader epoch was raised"
    assert coordinator.read(KEY, 7)[1] is None
    refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: coordinator.read(KEY, 6))
    refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: coordinator.write(KEY, StateWrite(5, 6, -1, 0, ())))
    refused(ErrorCode.FENCED_STATE_EPOCH, lambda: coordinator.write(KEY, StateWrite(4, 7, -1, 0, ())))
    coordinator.write(KEY, StateWrite(5, 7, 3, 0, ()))
    again = World(world.records).coordinator
    assert again.read(KEY, -1)[0].start_offset == 3
    refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: again.read(KEY, 6))


def test_unknown_partitions_are_refused() -> None:
    world = World()
    for key in (KEY._replace(partition=2), KEY._replace(topic_id=b"u" * 16)):
        for act in (
            lambda key=key: world.coordinator.initialize(key, 0, 0),
            lambda key=key: world.coordinator.delete(key),
            lambda key=key: world.coordinator.summary(key),
        ):
            refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, act)
    refused(ErrorCode.INVALID_REQUEST, lambda: world.coordinator.initialize(KEY._replace(partition=-1), 0, 0))


def test_snapshot_follows_the_updates() -> None:
    world = World(updates=2)
    world.coordinator.initialize(KEY, 0, 0)
    for number in range(7):
        world.write((number, number, 2, 1))
    kinds = [record.key[1] for record in world.records if record.key]
    assert kinds == [0, 1, 1, 0, 1, 1, 0, 1]
    assert world.read().batches == (StateBatch(0, 6, 2, 1),)
    world.clock.advance(300_000)
    assert world.start >= 6 and World(world.records).read().batches == (StateBatch(0, 6, 2, 1),)


def test_idle_states_do_not_keep_old_records() -> None:
    world = World(updates=500)
    for key in KEYS:
        world.coordinator.initialize(key, 0, 0)
    for number in range(50):
        world.write((number, number, 2, 1))
    before = len(world.records)
    world.clock.advance(1_200_000)
    assert world.start >= before and len(world.records) <= len(KEYS)
    again = World(world.records)
    assert again.read().batches == (StateBatch(0, 49, 2, 1),)
    assert [again.read(key).start_offset for key in KEYS] == [0] * 4


def test_failed_write_changes_nothing() -> None:
    world = World()
    world.coordinator.initialize(KEY, 0, 0)
    world.failing = True
    refused(ErrorCode.NOT_COORDINATOR, lambda: world.write((0, 1, 2, 1)))
    refused(ErrorCode.NOT_COORDINATOR, lambda: world.coordinator.delete(KEY))
    assert world.read() == (0, 0, ())


def test_deleted_topic_has_no_state() -> None:
    world = World()
    for key in KEYS:
        world.coordinator.initialize(key, 0, 0)
    world.topics.clear()
    world.coordinator.topic_deleted(TOPIC)
    assert [record.value for record in world.records[4:]] == [None] * 4
    world.clock.advance(600_000)
    assert world.start == 7
    again = World(world.records)
    refused(ErrorCode.INVALID_REQUEST, again.read)


def test_resigned_partition_is_refused() -> None:
    world = World()
    world.coordinator.initialize(KEY, 0, 0)
    world.coordinator.resign(0)
    refused(ErrorCode.NOT_COORDINATOR, world.read)
    assert world.coordinator.load(0, world.records) is ErrorCode.NONE
    assert world.read() == (0, 0, ())
    assert world.coordinator.load(0, [Record(0, 0, b"", b"", ())]) is ErrorCode.INVALID_REQUEST
    refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, world.read)


def test_crash_after_each_record(scaled: Callable[[int], int]) -> None:
    """After a crash the state is that of the records which were written, wherever it happens."""
    for seed in range(scaled(20)):
        draw = random.Random(seed)
        world = World(updates=draw.choice([0, 1, 3, 500]))
        expected: list[dict[SharePartitionKey, StoredState | None]] = [{}]
        for _ in range(60):
            key = draw.choice(KEYS)
            if world.coordinator.summary(key) is None or draw.random() < 0.05:
                world.coordinator.initialize(key, 0, draw.choice([-1, 0, 5]))
            elif draw.random() < 0.05:
                world.coordinator.delete(key)
            else:
                first = draw.randrange(20)
                batch = (first, first + draw.randrange(5), draw.choice([0, 2, 4]), draw.randrange(1, 5))
                world.write(batch, start=draw.choice([-1, draw.randrange(20)]), key=key)
            now = {one: world.read(one) for one in KEYS if world.coordinator.summary(one) is not None}
            expected.append(now)  # type: ignore[arg-type]
        for count, state in enumerate(expected):
            again = World(world.records[:count])
            found = {one: again.read(one) for one in KEYS if again.coordinator.summary(one) is not None}
            assert found == state, (seed, count)
