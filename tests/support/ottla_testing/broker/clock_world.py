"""Random days of a broker under a virtual clock: once with every tick, once with only those that have an effect.

Producers of all kinds write, transactions begin and stay open, groups gain and lose members, offsets and records age,
topics are compacted and deleted: between advances of the clock, and within them at random times. After each advance the
files and the state of groups, producers and transactions are noted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.groups.classic.state import Group, GroupState, JoinRequest
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.metadata.topics import Topic
from ottla.broker.metrics import client_ledger
from ottla.broker.network import router
from ottla.broker.virtual_clock import VirtualClock
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch
from ottla.storage.errors import ProducerRefused
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.harness import options
from ottla_testing.protocol.batches import batch_of

T0 = 1_700_000_000_000  # the timestamp of the harness's records
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
DATA = "/data"
OVERRIDES = {  # intervals that meet seldom, and often enough for a run with every tick to be quick
    "log.retention.check.interval.ms": str(7 * MINUTE_MS),
    "producer.id.expiration.check.interval.ms": str(11 * MINUTE_MS),
    "producer.id.expiration.ms": str(5 * HOUR_MS),
    "offsets.retention.check.interval.ms": str(13 * MINUTE_MS),
    "offsets.retention.minutes": "600",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(3 * MINUTE_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": str(29 * MINUTE_MS),
    "transactional.id.expiration.ms": str(7 * HOUR_MS),
    "log.cleaner.backoff.ms": str(5 * MINUTE_MS),
    "log.flush.scheduler.interval.ms": str(17 * MINUTE_MS),
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
}
TOPICS: dict[str, dict[str, str]] = {
    "short": {"retention.ms": str(3 * HOUR_MS), "segment.ms": str(HOUR_MS), "file.delete.delay.ms": "90000"},
    "small": {"retention.bytes": "3000", "segment.bytes": "1000", "flush.ms": str(20 * MINUTE_MS)},
    "compact": {
        "cleanup.policy": "compact",
        "segment.bytes": "2000",
        "min.cleanable.dirty.ratio": "0.3",
        "min.compaction.lag.ms": str(45 * MINUTE_MS),
        "delete.retention.ms": str(HOUR_MS),
    },
    "both": {
        "cleanup.policy": "compact,delete",
        "segment.ms": str(40 * MINUTE_MS),
        "max.compaction.lag.ms": str(2 * HOUR_MS),
        "min.cleanable.dirty.ratio": "1",
        "retention.ms": str(9 * HOUR_MS),
    },
}
PARTITIONS = 2
NODES = 3
OURS = ("meta.properties", "partition.metadata")  # with ids that are drawn
OPTIONS = options([Path(DATA)], OVERRIDES, "3.9", NODES)
APIS = router.apis_of(OPTIONS.config.profile)


class World:
    """One run. `skips` is the clock's; `notes` are the states after each advance."""

    def __init__(self, seed: int, *, skips: bool) -> None:
        self.rng = random.Random(seed)
        self.skips = skips
        self.notes: list[Any] = []
        self.done: set[str] = set()
        self._numbers = itertools.count()
        self._sequences: dict[tuple[int, int, str, int], int] = {}
        self._owners: dict[str, tuple[int, int]] = {}
        self._members: dict[str, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.settled = 0

    # The run

    async def run(self, moves: int) -> None:
        """Advances the clock this number of times, with a restart somewhere."""
        self.clock = VirtualClock(asyncio.get_running_loop(), skips=self.skips)
        self.clock.freeze()
        await self.clock.set(T0)
        self.files = MemoryFiles(lambda: self.clock.now_ms() * 1_000_000)
        self.files.make_directory(DATA)
        self._open()
        for name, configs in TOPICS.items():
            self.state.topics.create(name, PARTITIONS, configs, self.clock.now_ms())
        restart = self.rng.randrange(moves)
        for number in range(moves):
            for _ in range(self.rng.randrange(4)):
                self.act()
                await self.settle()
            ms = self.rng.choice(
                (self.rng.randrange(MINUTE_MS), self.rng.randrange(HOUR_MS), self.rng.randrange(DAY_MS))
            )
            for _ in range(self.rng.randrange(8)):  # what happens on the way
                self.clock.call_at(self.clock.now_ms() + self.rng.randrange(ms + 1), self.act)
            if self.rng.random() < 0.2:
                self.state.groups.refresh_members(self.clock.now_ms() + ms)
            await self.clock.advance(ms, self.settle)
            self.state.groups.refreshed()
            self.note()
            if number == restart:
                await self._close()
                self.clock = self.clock.renewed()
                self._open()
                self.note()
        await self._close()
        self.note_files()

    def _open(self) -> None:
        waits = ManualClock(T0)
        self.state = BrokerState.open(OPTIONS, {}, APIS, self.clock, self.clock._loop, self.files, waits)
        self.state.groups._new_uuid = lambda: f"id{next(self._numbers)}"
        ledger = self.state.clients
        self.library = ledger.library("PLAINTEXT")

    async def _close(self) -> None:
        self.state.begin_stop()
        await self.settle()
        await self.state.finish_appends(5)
        self.state.close()
        self._members.clear()

    async def settle(self) -> None:
        """Waits for the broker, and for the joins of members."""
        self.settled += 1
        await self.state.settle()
        for _ in range(5):
            await asyncio.sleep(0)
        await self.state.settle()

    # What happens

    def act(self) -> None:
        """Runs a random operation."""
        acts: tuple[Callable[[], None], ...] = (
            *(self.write, self.write, self.write_numbered, self.begin_transaction, self.begin_transaction),
            *(self.end_transaction, self.commit, self.commit, self.join, self.heartbeat, self.leave),
            *(self.notice, self.notice, self.delete_a_topic, self.verify, self.move_a_leader),
        )
        self.rng.choice(acts)()

    def _some_partition(self) -> Any:
        topics = [topic for topic in self.state.topics if not topic.is_internal]
        topic: Topic = self.rng.choice(sorted(topics, key=lambda topic: topic.name))
        return topic.partitions[self.rng.randrange(PARTITIONS)]

    def _time(self) -> int:
        return self.clock.now_ms() - self.rng.choice((0, 0, self.rng.randrange(4 * HOUR_MS)))

    def _append(self, partition: Any, **fields: Any) -> None:
        records = [
            batch.Record(delta, self._time(), b"k%d" % self.rng.randrange(5), self._value())
            for delta in range(self.rng.randrange(1, 4))
        ]
        producer_id, epoch = fields.get("producer_id", -1), fields.get("producer_epoch", -1)
        key = producer_id, epoch, partition.topic, partition.index
        if producer_id >= 0:
            fields["base_sequence"] = self._sequences.get(key, 0)
        try:
            partition.append(batch_of(records, **fields), self.clock.now_ms(), 13)
        except ProducerRefused:  # it was forgotten
            self._sequences.pop(key, None)
            self.done.add("refused")
        else:
            self._sequences[key] = fields.get("base_sequence", 0) + len(records)

    def _value(self) -> bytes | None:
        return None if self.rng.random() < 0.2 else bytes(self.rng.randrange(300))

    def write(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            self._append(self._some_partition())

    def write_numbered(self) -> None:
        self._append(self._some_partition(), producer_id=self.rng.randrange(10_000, 10_004), producer_epoch=0)

    def begin_transaction(self) -> None:
        name = f"tx{self.rng.randrange(3)}"
        transactions = self.state.transactions
        if name not in self._owners or self.rng.random() < 0.3:
            response = transactions.init_producer_id(name, timeout_ms=self.rng.choice((30_000, 10 * MINUTE_MS)))
            assert not isinstance(response, asyncio.Future)
            if response.error is not ErrorCode.NONE:
                return
            self._owners[name] = response.producer_id, response.producer_epoch
        owner, partition = self._owners[name], self._some_partition()
        where = partition.topic, partition.index
        response = transactions.add_partitions(name, *owner, [where], client_version=0)
        assert not isinstance(response, asyncio.Future)
        if response.error is not ErrorCode.NONE:  # it was timed out, or forgotten
            del self._owners[name]
            self.done.add(response.error.name)
            return
        self._append(partition, producer_id=owner[0], producer_epoch=owner[1], transactional=True)
        if self.rng.random() < 0.3:
            transactions.add_offsets(name, *owner, "g0", client_version=0)
            self._commit("g0", producer=owner)

    def end_transaction(self) -> None:
        for name, owner in self._owners.items():
            if self.rng.random() < 0.5:
                self.state.transactions.end(name, *owner, committed=self.rng.random() < 0.6, client_version=0)

    def commit(self) -> None:
        group = f"g{self.rng.randrange(4)}"
        member_id, generation = self._members.get(group, ("", -1))
        self._commit(group, member_id=member_id, generation_id=generation)

    def _commit(self, group: str, member_id: str = "", generation_id: int = -1, producer: Any = None) -> None:
        now_ms = self.clock.now_ms()
        expires_ms = now_ms + self.rng.randrange(DAY_MS) if self.rng.random() < 0.3 else None
        partition = self._some_partition()
        committed = CommittedOffset(7, commit_timestamp_ms=now_ms, expire_timestamp_ms=expires_ms)
        self.state.groups.commit(
            group,
            member_id=member_id,
            instance_id=None,
            generation_id=generation_id,
            commits=[((partition.topic, partition.index), committed)],
            producer=producer,
        )

    def join(self) -> None:
        group = f"g{self.rng.randrange(3)}"
        task = asyncio.get_running_loop().create_task(self._member(group, self._members.pop(group, ("", -1))[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _member(self, group: str, member_id: str) -> None:
        groups = self.state.groups
        reply = await groups.join(
            group,
            JoinRequest(
                member_id=member_id,
                instance_id=None,
                client_id="c",
                client_host="/h",
                session_timeout_ms=30_000,
                rebalance_timeout_ms=40_000,
                protocol_type="consumer",
                protocols=(("range", b"\0\0\0\0\0\1\0\5short\xff\xff\xff\xff"),),
            ),
        )
        if reply.error is not ErrorCode.NONE:
            return
        if reply.members:
            assignments = [(member.member_id, b"a") for member in reply.members]
            await groups.sync(
                group,
                member_id=reply.member_id,
                instance_id=None,
                generation_id=reply.generation_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
        self._members[group] = reply.member_id, reply.generation_id

    def heartbeat(self) -> None:
        for group, (member_id, generation) in list(self._members.items()):
            code = self.state.groups.heartbeat(group, member_id=member_id, instance_id=None, generation_id=generation)
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.done.add("session expired")
                del self._members[group]

    def leave(self) -> None:
        for group in list(self._members):
            if self.rng.random() < 0.3:
                self.state.groups.leave(group, [(self._members.pop(group)[0], None)])

    def notice(self) -> None:
        """Calls as a client now, and again later."""
        key = f"c{self.rng.randrange(3)}", self.rng.randrange(3), 5
        for minutes in range(0, 30, 6):
            self.clock.call_at(self.clock.now_ms() + minutes * MINUTE_MS, self._call, key)

    def _call(self, key: tuple[str, int, int]) -> None:
        if key not in self.library.seen:
            self.state.clients.note(self.library, *key)

    def verify(self) -> None:
        """Verifies a batch whose producer then fails: its verification guard ages."""
        self._some_partition().log.verify(self.rng.randrange(20_000, 20_050), 0, now_ms=self.clock.now_ms())

    def delete_a_topic(self) -> None:
        if self.rng.random() < 0.2:
            name, now_ms = self.rng.choice(sorted(TOPICS)), self.clock.now_ms()
            self.state.topics.delete(self.state.topics.named(name), now_ms)
            self.state.groups.forget_topic(name)
            self.state.topics.create(name, PARTITIONS, TOPICS[name], now_ms)

    def move_a_leader(self) -> None:
        """Moves a leader, also of internal topics: another node's coordinator loads their logs."""
        topic: Topic = self.rng.choice(sorted(self.state.topics, key=lambda topic: topic.name))
        partition = self.rng.choice(topic.partitions)
        self.state.topology.move_leader(topic.name, partition.index, 1 + self.rng.randrange(NODES))

    # What is seen

    def note(self) -> None:
        """Notes the state and the files."""
        state = self.state
        partitions = [partition for topic in state.topics for partition in topic.partitions]
        for name in [f"g{number}" for number in range(4)]:
            group = state.groups.group(name)
            self.notes.append((self.clock.now_ms(), name, group, state.groups.offsets(name)))
            if isinstance(group, Group) and group.state is GroupState.EMPTY and group.generation_id > 1:
                self.done.add("emptied")
        for number in range(3):
            self.notes.append(state.transactions.describe(f"tx{number}"))
        for partition in sorted(partitions, key=lambda one: (one.topic, one.index)):
            log = partition.log
            offsets = log.log_start_offset, log.last_stable_offset, log.log_end_offset
            # Looking at producers loads them, so not always.
            producers = log.producers() if self.rng.random() < 0.3 else None
            self.notes.append((partition.topic, partition.index, offsets, producers, len(log._guards)))
            if log.log_start_offset:
                self.done.add("retained")
        self.note_files()

    def note_files(self) -> None:
        """Notes each file's name and contents."""
        for path in walk(self.files, DATA):
            name = os.path.basename(path)
            if "__cluster_metadata" not in path and name not in OURS and not path.endswith(".lock"):
                # A deleted partition's folder has a drawn name.
                result = path if "-delete" not in path else path.split(".")[0]
                self.notes.append((result, self.files.read_bytes(path)))
                if name == "cleaner-offset-checkpoint" and b"both" in self.notes[-1][1]:
                    self.done.add("cleaned")
                if path.endswith(".deleted") or "-delete" in path:
                    self.done.add("files wait")


def walk(files: MemoryFiles, folder: str) -> Iterator[str]:
    """Yields all files below a folder, in the order of their names."""
    for name in sorted(files.list(folder)):
        path = f"{folder}/{name}"
        try:
            below = list(walk(files, path))
        except NotADirectoryError:
            yield path
        else:
            yield from below


def play(seed: int, moves: int, *, skips: bool) -> World:
    """Runs one world to its end."""
    world = World(seed, skips=skips)
    with mock.patch.object(client_ledger, "TICK_MS", 4 * MINUTE_MS):
        asyncio.run(world.run(moves))
    return world
