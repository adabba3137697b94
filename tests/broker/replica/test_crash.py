"""A broker's state on a simulated disk, crashed at every write, sync and rename, and started again.

Topics are created, extended, configured, deleted and created again; offsets are committed, producer ids allocated,
records appended. Acknowledged changes of metadata are durable, so they survive a power loss too; records and commits
survive a kill, and a power loss as far as they were flushed. A failure prints its seed; `OTTLA_CRASH_SEED=n` repeats
it.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.metadata.log import MetadataLog
from ottla.broker.metadata.producer_ids import ProducerIds
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, Topic
from ottla.broker.network import router
from ottla.protocol.internal_records.metadata_records import RemoveTopicRecord
from ottla.protocol.records import batch, steps
from ottla.storage.config import LogConfig
from ottla.storage.log.append_plan import Prepared
from ottla_testing.broker.harness import options
from ottla_testing.each import STRIDE, each
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.crash_check import check_log
from ottla_testing.storage.crash_world import Batch, Partition, Row, Violation, demand, next_sequence
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
ONLY = os.environ.get("OTTLA_CRASH_SEED")
NOW_MS = 1_700_000_000_000
DATA = "/data"
NAMES = ("t", "t.1", "u")
STEADY = "steady"  # the topic with committed offsets
OPTIONS = options([Path(DATA)], {"log.segment.delete.delay.ms": "1", "num.partitions": "1"})
APIS = router.apis_of(OPTIONS.config.profile)
OPERATIONS = 14


def start(files: SimulatedFiles, clock: ManualClock | None = None) -> BrokerState:
    return BrokerState.open(OPTIONS, {}, APIS, clock or ManualClock(NOW_MS), asyncio.get_running_loop(), files)


@dataclass
class KnownTopic:
    """An acknowledged topic. `partitions` has the expected records of each."""

    id: bytes
    configs: dict[str, str] = field(default_factory=dict)
    partitions: list[Partition] = field(default_factory=list)

    def copy(self) -> KnownTopic:
        return KnownTopic(self.id, dict(self.configs), [one.copy() for one in self.partitions])


@dataclass
class Known:
    """The acknowledged state, and the change under way: a topic may then also be as in `tried` (None: deleted)."""

    topics: dict[str, KnownTopic] = field(default_factory=dict)
    tried: dict[str, KnownTopic | None] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    producer_id: int = -1
    commits: dict[str, list[int]] = field(default_factory=dict)
    """All attempted commits, by group. The last one may be unacknowledged if `committing`."""
    committing: str = ""
    flushed: dict[str, int] = field(default_factory=dict)
    """The number of durable ones."""

    def copy(self) -> Known:
        return Known(
            {name: topic.copy() for name, topic in self.topics.items()},
            {name: topic.copy() if topic else None for name, topic in self.tried.items()},
            set(self.gone),
            self.producer_id,
            {group: list(offsets) for group, offsets in self.commits.items()},
            self.committing,
            dict(self.flushed),
        )


class World:
    """A run of random changes on a broker's state, checked at a crash at every `stride`-th step."""

    def __init__(self, seed: int, kinds: Collection[str] = (), stride: int = 1) -> None:
        self.seed = seed
        self.stride = stride
        self.rng = random.Random(seed)
        self.files = SimulatedFiles()
        self.clock = ManualClock(NOW_MS)
        self.known = Known()
        self.doing = ""
        self.history: list[str] = []
        self.stops = 0
        self.counter = 0
        self.work: list[tuple[int, Callable[[], None]]] = [
            (3, self.create),
            (2, self.delete),
            (2, self.grow),
            (2, self.configure),
            (6, self.produce),
            (3, self.commit),
            (2, self.allocate),
            (2, self.flush),
            (1, self.checkpoint),
            (1, self.remove_files),
            (1, self.restart),
        ]
        if kinds:
            self.work = [(weight, operation) for weight, operation in self.work if operation.__name__ in kinds]

    async def run(self) -> None:
        names = random.Random(self.seed + 1)
        with mock.patch("ottla.storage.io.random_ids.uuid4", lambda: names.randbytes(16)):
            self.files.on_step = self.on_step
            self.doing = "the first start"
            self.state = start(self.files, self.clock)
            self.make(STEADY)
            weights = [weight for weight, _ in self.work]
            for _ in range(OPERATIONS):
                operation = self.rng.choices(self.work, weights)[0][1]
                self.doing = operation.__name__
                self.history.append(self.doing)
                operation()
            self.doing = "the stop"
            self.stop()

    def on_step(self, step: Step) -> None:
        if (step.number + self.seed) % self.stride:
            return
        size = len(step.change.data or b"") if step.change is not None else 0
        chance = random.Random(self.seed + step.number)  # the same for this step at every stride
        for powered in (True, False):
            fork = self.files.fork(step, chance.choice((0, size, chance.randint(0, size))))
            if powered:
                fork.restart()
            else:
                fork.crash(chance)
            self.stops += 1
            try:
                check(fork, self.known.copy(), powered, chance)
            except Exception as error:
                kind = "kill" if powered else "power loss"
                where = f"after a {kind} in {self.doing}, at step {step.number}: {step.operation} {step.path}"
                raise Violation(f"{type(error).__name__}: {error}\n{where}") from error

    # -- the work

    def topic(self) -> tuple[KnownTopic, Topic]:
        name = self.rng.choice(sorted(self.known.topics))
        return self.known.topics[name], self.state.topics.named(name)

    def make(self, name: str) -> None:
        configs = {"segment.bytes": "1048576"} if self.rng.random() < 0.5 else {}
        count = self.rng.randint(1, 2)
        # Its id is unknown until it exists: any id is accepted before.
        self.known.tried[name] = KnownTopic(b"", configs, [new_partition() for _ in range(count)])
        made = self.state.topics.create(name, count, configs, self.clock.now_ms())
        self.known.tried.clear()
        partitions = [Partition(made.id, partition.log.config) for partition in made.partitions]
        self.known.topics[name] = KnownTopic(made.id, configs, partitions)

    def create(self) -> None:
        free = sorted(set(NAMES) - self.known.topics.keys())
        if free:
            self.make(self.rng.choice(free))

    def delete(self) -> None:
        known, topic = self.topic()
        if topic.name != STEADY:
            self.known.tried[topic.name] = None
            self.state.topics.delete(topic, self.clock.now_ms())
            self.known.tried.clear()
            del self.known.topics[topic.name]
            self.known.gone.add(known.id)

    def grow(self) -> None:
        known, topic = self.topic()
        tried = known.copy()
        tried.partitions.append(new_partition())
        self.known.tried[topic.name] = tried
        steps.run(self.state.topics.adding_partitions(topic, len(known.partitions) + 1, self.clock.now_ms()))
        self.known.tried.clear()
        known.partitions.append(Partition(topic.id, topic.partitions[-1].log.config))

    def configure(self) -> None:
        known, topic = self.topic()
        tried = known.copy()
        tried.configs = {"retention.ms": str(self.rng.randint(10**9, 10**10))}
        if self.rng.random() < 0.5:
            tried.configs["max.message.bytes"] = "2000000"
        self.known.tried[topic.name] = tried
        self.state.topics.set_configs(topic, tried.configs, self.clock.now_ms())
        self.known.tried.clear()
        known.configs = tried.configs

    def produce(self) -> None:
        known, topic = self.topic()
        index = self.rng.randrange(len(known.partitions))
        partition, log = known.partitions[index], topic.partitions[index].log
        self.counter += 1
        rows = (Row(log.log_end_offset, b"k", b"%d" % self.counter, NOW_MS),)
        reported: dict[str, Any] = {}
        producer = None
        if self.known.producer_id >= 0 and self.rng.random() < 0.6:
            producer_id = self.known.producer_id
            epoch, sequence = next_sequence(partition, producer_id, log.log_start_offset)
            reported = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
            producer = producer_id, epoch, sequence
        data = bytes(batch_of([batch.Record(0, NOW_MS, b"k", b"%d" % self.counter)], **reported))
        partition.batches.append(Batch(rows, producer, data))
        log.append(bytearray(data), now_ms=self.clock.now_ms())
        partition.acknowledged = partition.end

    def commit(self) -> None:
        group = self.rng.choice(("g1", "g2"))
        commits = self.known.commits.setdefault(group, [])
        self.counter += 1
        commits.append(self.counter)
        self.known.committing = group
        code = self.state.groups.commit(
            group,
            member_id="",
            instance_id=None,
            generation_id=-1,
            commits=[((STEADY, 0), CommittedOffset(self.counter, commit_timestamp_ms=self.clock.now_ms()))],
        )
        demand(code == 0, "a commit returned", code)
        self.known.committing = ""

    def allocate(self) -> None:
        allocated = self.state.producer_ids.allocate(self.clock.now_ms())
        demand(allocated > self.known.producer_id, "a producer id was handed out again", allocated)
        self.known.producer_id = allocated

    def flush(self) -> None:
        known, topic = self.topic()
        for partition, running in zip(known.partitions, topic.partitions, strict=True):
            running.log.flush()
            partition.flushed = partition.acknowledged
        if (offsets := self.state.topics.get(GROUP_OFFSETS_TOPIC)) is not None:
            for running in offsets.partitions:
                running.log.flush()
            self.known.flushed = {group: len(tried) for group, tried in self.known.commits.items()}

    def checkpoint(self) -> None:
        self.state.logs.directories[0].write_checkpoints()

    def remove_files(self) -> None:
        self.clock.advance(2)

    def stop(self) -> None:
        self.state.begin_stop()
        self.state.close()
        for topic in self.known.topics.values():
            for partition in topic.partitions:
                partition.flushed = partition.acknowledged
        self.known.flushed = {group: len(tried) for group, tried in self.known.commits.items()}

    def restart(self) -> None:
        self.stop()
        self.clock = ManualClock(self.clock.now_ms())
        self.state = start(self.files, self.clock)


def new_partition() -> Partition:
    return Partition(b"", LogConfig())


# -- after a crash


def check(files: SimulatedFiles, known: Known, powered: bool, rng: random.Random) -> None:
    """Starts a broker on the disk and compares it with the acknowledged state."""
    if rng.random() < 0.25:
        stop_again(files, known, powered, rng)
    state = start(files)
    files.on_step = None
    check_state(state, known, powered, rng)
    if rng.random() < 0.2:
        state.topics.create("another", 1, {}, NOW_MS)
        demand(state.producer_ids.allocate(NOW_MS) > known.producer_id, "a producer id is handed out again")
        state.begin_stop()
        state.close()
        files.crash(rng)
        state = start(files)
        demand(state.topics.get("another") is not None, "a topic is gone after a clean stop")
        check_state(state, known, powered, rng)
    state.begin_stop()
    state.logs.release()


def stop_again(files: SimulatedFiles, known: Known, powered: bool, rng: random.Random) -> None:
    """Crashes the start too, at one of its steps."""
    number = rng.randrange(20)

    def on_step(step: Step) -> None:
        if step.number == number:
            fork = files.fork(step, rng.randint(0, len(step.change.data or b"") if step.change else 0))
            stays = powered and rng.random() < 0.5
            if stays:
                fork.restart()
            else:
                fork.crash(rng)
            state = start(fork)
            check_state(state, known.copy(), stays, rng)
            state.logs.release()

    files.on_step = on_step


def check_state(state: BrokerState, known: Known, powered: bool, rng: random.Random) -> None:
    for topic in state.topics:
        demand(topic.id not in known.gone, "a deleted topic is back", topic.name)
        if topic.name not in known.topics and topic.name not in known.tried:
            demand(topic.name in (GROUP_OFFSETS_TOPIC, "another"), "a topic that was never created", topic.name)
    for name in {**known.topics, **known.tried}:
        check_topic(state.topics.get(name), known.topics.get(name), known.tried.get(name, known.topics.get(name)))
    for name, expected in known.topics.items():
        topic = state.topics.get(name)
        for partition, before in zip(topic.partitions if topic else (), expected.partitions, strict=False):
            check_log(partition.log, before, powered, rng)
    demand(state.producer_ids._next > known.producer_id, "a producer id may be handed out again", known.producer_id)
    for group, tried in known.commits.items():
        found = state.groups.offsets(group).get((STEADY, 0))
        first = known.flushed.get(group, 0)
        if powered:
            first = len(tried) - (known.committing == group)
        allowed = [None, *tried][first:]
        demand((found.offset if found else None) in allowed, "of a group is committed", group, found, allowed)


def check_topic(found: Topic | None, before: KnownTopic | None, after: KnownTopic | None) -> None:
    """The topic has its old state, or the one of the change under way."""

    def is_as(wanted: KnownTopic | None) -> bool:
        if found is None or wanted is None:
            return found is None and wanted is None
        same_id = wanted.id in (b"", found.id)
        return (
            same_id
            and found.config.overrides == wanted.configs
            and [partition.index for partition in found.partitions] == list(range(len(wanted.partitions)))
        )

    if not (is_as(before) or is_as(after)):
        reported = (found.id, found.config.overrides, len(found.partitions)) if found else None
        raise Violation(f"a topic is {reported}, and not {before} or {after}")


def run(seed: int, kinds: Collection[str] = (), stride: int = 1) -> World:
    world = World(seed, kinds, stride)
    try:
        asyncio.run(world.run())
    except BaseException as error:
        work = ", ".join(world.history)
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {error}\nthe work: {work}") from error
    return world


@pytest.mark.timeout(900 * max(1.0, SCALE))
@pytest.mark.parametrize("part", range(3 if ONLY is None and STRIDE == 1 else 1))
def test_broker_crashed_at_any_call_has_all_it_acknowledged(part: int, stride: int) -> None:
    """The number of seeds grows with the square of the scale; those of a small run and of a soak are new ones."""
    count = max(1, int(SCALE * SCALE / 2))
    first = part * count if stride == 1 and SCALE <= 1 else random.randrange(1 << 32)
    for seed in [int(ONLY)] if ONLY is not None else range(first, first + count):
        assert run(seed, stride=1 if ONLY is not None else stride).stops > 50 / stride


def forgets_to_flush(patch: pytest.MonkeyPatch) -> None:
    """Acknowledges a metadata change that is in the page cache only."""

    def write(self: MetadataLog, prepared: Prepared, now_ms: int) -> None:
        self._log.append_prepared(prepared, now_ms=now_ms)

    patch.setattr(MetadataLog, "write", write)


def uses_a_block_before_it_is_noted(patch: pytest.MonkeyPatch) -> None:
    """Allocates producer ids from memory."""

    def allocate(self: ProducerIds, now_ms: int) -> int:
        self._next += 1
        return self._next - 1

    patch.setattr(ProducerIds, "allocate", allocate)


def deletes_in_memory_first(patch: pytest.MonkeyPatch) -> None:
    """Deletes a topic without writing the record."""

    def append(self: MetadataLog, records: Sequence[Any], now_ms: int) -> None:
        if not isinstance(records[0], RemoveTopicRecord):
            original(self, records, now_ms)

    original = MetadataLog.append
    patch.setattr(MetadataLog, "append", append)


@each(
    ("plant", "kinds"),
    [
        (forgets_to_flush, ("create", "configure")),
        (uses_a_block_before_it_is_noted, ("allocate",)),
        (deletes_in_memory_first, ("create", "delete")),
    ],
    strided=True,
)
def test_crash_check_finds_planted_mistakes(
    plant: Callable[[pytest.MonkeyPatch], None], kinds: Collection[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError, match="shows it again"):
        plant(patch)
        for seed in range(10):
            run(seed, kinds)
