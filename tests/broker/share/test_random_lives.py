"""Random lives of a share partition against a model that is a Python list of records.

Members fetch, acknowledge, die and come back late; writes fail; the broker crashes and continues from what was stored.
No record is lost, none is delivered to two members at a time, none more often than the limit, and an acknowledged one
never again. With a dead-letter queue, each record that is given up is in it, and none that was accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.broker.errors import Refused
from ottla.broker.share.share_partition import Acquisition, Fetched, SharePartition, ShareRules
from ottla.broker.share.state_coordinator import combined
from ottla.broker.share.values import Acknowledgement, DeadLetters, FetchedBatch, RecordState, StateBatch, StoredState

LOCK_MS = 1000
MEMBERS = ("a", "b", "c")


@dataclass(eq=False)
class Record:
    """The model of a record: how often it was delivered since the state was lost, its owner, and whether it is done."""

    batch: int
    is_aborted: bool = False
    deliveries: int = 0
    owner: str | None = None
    deadline_ms: int = 0
    done: bool = False


@dataclass
class World:
    random: random.Random
    records: list[Record] = field(default_factory=list[Record])
    log_start: int = 0
    now_ms: int = 0
    writes: int = 0
    redelivered: int = 0
    exhausted: int = 0
    letters: list[DeadLetters] = field(default_factory=list[DeadLetters])  # on their way to the queue
    given_up: set[int] = field(default_factory=set[int])  # offsets, as they are stored
    queue: set[int] = field(default_factory=set[int])
    accepted: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        draw = self.random
        self.rules = ShareRules(
            max_in_flight=draw.choice([3, 20, 200]),
            delivery_limit=draw.choice([2, 3, 5, 8]),
            lock_ms=LOCK_MS,
            shrinks=draw.random() < 0.7,
            has_dead_letters=draw.random() < 0.6,
        )
        self.stored = StoredState(0, 0, [])
        self.machine = SharePartition(self.stored, lambda: self.rules)

    # --- the log

    def append(self) -> None:
        first, aborted = len(self.records), self.random.random() < 0.2
        self.records += [Record(first, aborted) for _ in range(self.random.randrange(1, 9))]

    def read(self, offset: int) -> Fetched:
        """Reads some batches from the one that contains the offset on; each aborted batch is a transaction."""
        firsts = sorted({record.batch for record in self.records[offset:]})[: self.random.randrange(1, 5)]
        batches: list[FetchedBatch] = []
        for first in firsts:
            last = max(i for i, record in enumerate(self.records) if record.batch == first)
            is_aborted = self.records[first].is_aborted
            batches.append(FetchedBatch(first, last, first if is_aborted else -1, is_aborted, False, False))
        return Fetched(batches, [(b.producer_id, b.first) for b in batches if b.is_transactional])

    def delete(self) -> None:
        """Moves the log start to a later batch."""
        firsts = [record.batch for record in self.records if record.batch > self.log_start]
        if firsts:
            self.log_start = self.random.choice(firsts[:10])
            self.machine.log_start_moved(self.log_start)
            for record in self.records[: self.log_start]:
                record.done = record.done or record.owner is None

    # --- members

    def fetch(self) -> None:
        machine, member, strict = self.machine, self.random.choice(MEMBERS), self.random.random() < 0.5
        most = self.random.choice([1, 3, 10, 100])
        offset = machine.next_fetch_offset()
        if not machine.can_acquire() or offset >= len(self.records):
            return
        assert offset >= machine.start_offset
        wanted = Acquisition(member, strict, self.random.choice([1, 4, 100]))
        acquired = machine.acquire(wanted, most, offset, self.read(offset), self.now_ms)
        total = sum(last - first + 1 for first, last, _ in acquired)
        assert not strict or total <= most
        for first, last, count in acquired:
            for record in self.records[first : last + 1]:
                assert record.owner is None and not record.done and not record.is_aborted
                record.deliveries += 1
                assert record.deliveries <= self.rules.delivery_limit and count == record.deliveries
                self.redelivered += count > 1
                record.owner, record.deadline_ms = member, self.now_ms + LOCK_MS

    def acknowledge(self) -> None:
        """Acknowledges a run of offsets of one member, sometimes with one that it does not own."""
        owned = [i for i, record in enumerate(self.records) if record.owner is not None]
        if not owned:
            return
        first = self.random.choice(owned)
        member, last = self.records[first].owner or "", first
        while last + 1 < len(self.records) and self.records[last + 1].owner == member and self.random.random() < 0.8:
            last += 1
        oversteps = self.random.random() < 0.1
        last += oversteps
        size = last - first + 1
        choice = [0, 1, 1, 2, 2, 3] + [4] * (not oversteps)  # renewals are not taken back
        kinds = [self.random.choice(choice) for _ in range(size if self.random.random() < 0.5 else 1)]
        below = max(first, self.machine.start_offset)
        concerned = self.records[below : last + 1]
        is_valid = last < len(self.records) and all(record.owner == member for record in concerned)
        try:
            transition = self.machine.acknowledge(member, [Acknowledgement(first, last, kinds)], self.now_ms)
        except Refused:
            assert not is_valid
            return
        assert is_valid or last < self.machine.start_offset
        every = kinds if len(kinds) > 1 else kinds * size
        committed = self.store(transition.batches)
        self.machine.finish(transition, committed=committed, now_ms=self.now_ms)
        self.give_up(transition.dead_letters if committed else ())
        for offset in range(below, last + 1):
            record, kind = self.records[offset], every[offset - first]
            if kind == 1 and committed:
                self.accepted.add(offset)
            if kind == 4:
                record.deadline_ms = self.now_ms + LOCK_MS
            elif committed:
                self.let_go(record, done=kind != 2)

    def let_go(self, record: Record, *, done: bool) -> None:
        record.owner = None
        offset = self.records.index(record)
        if not done and record.deliveries >= self.rules.delivery_limit:
            self.exhausted += 1
            done = True
        record.done = done or offset < self.log_start

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        transition = self.machine.release(member)
        committed = self.store(transition.batches)
        self.machine.finish(transition, committed=committed, now_ms=self.now_ms)
        self.give_up(transition.dead_letters if committed else ())
        for record in self.records if committed else ():
            if record.owner == member:
                self.let_go(record, done=False)

    def wait(self) -> None:
        self.now_ms += self.random.choice([1, 300, 1000])
        self.expire()
        for record in self.records:
            if record.owner is not None and record.deadline_ms <= self.now_ms:
                self.let_go(record, done=False)

    def expire(self) -> None:
        changed = self.machine.expire(self.now_ms)
        stored = self.store(changed)
        dead = [one for one in changed if one.state == RecordState.ARCHIVING]
        self.give_up([DeadLetters(one.first, one.last, one.delivery_count, is_rejected=False) for one in dead], stored)
        self.machine.advance()

    # --- the dead-letter queue

    def give_up(self, letters: Iterable[DeadLetters], stored: bool = True) -> None:
        for one in letters:
            assert self.rules.has_dead_letters
            self.letters.append(one)
            self.given_up |= set(range(one.first, one.last + 1)) if stored else set()

    def post(self) -> None:
        if self.letters:
            one = self.letters.pop(self.random.randrange(len(self.letters)))
            self.queue |= set(range(one.first, one.last + 1))
            self.store([self.machine.archive_dead_letters(one)])
            self.machine.advance()

    # --- stored state

    def store(self, batches: list[StateBatch]) -> bool:
        """Stores state, as the share coordinator does; now and then it fails."""
        if not batches:
            return True
        self.writes += 1
        if self.random.random() < 0.1:
            return False
        start = self.machine.start_offset
        self.stored = StoredState(0, start, combined(self.stored.batches, batches, start))
        return True

    def crash(self) -> None:
        """Continues from stored state. Records whose state is not in it are delivered again, with a new count."""
        self.machine = SharePartition(self.stored, lambda: self.rules)
        self.letters = list(self.machine.unwritten)
        known = {offset: b for b in self.stored.batches for offset in range(b.first, b.last + 1)}
        for offset, record in enumerate(self.records):
            record.owner = None
            batch = known.get(offset)
            record.done = offset < self.stored.start_offset or (batch is not None and batch.state in (2, 3, 4))
            record.deliveries = 0 if batch is None else batch.delivery_count
        if self.machine.start_offset < self.log_start:  # as a read below the log start does
            self.machine.log_start_moved(self.log_start)
        for record in self.records[: self.log_start]:
            record.done = True

    # --- the end

    def drain(self) -> None:
        """All members live on and acknowledge everything: no record is left over."""
        for _ in range(20 * len(self.records) + 20):
            self.now_ms += LOCK_MS
            self.expire()
            while self.letters:
                self.post()
            for record in self.records:
                if record.owner is not None:
                    self.let_go(record, done=False)
            offset = self.machine.next_fetch_offset()
            if offset >= len(self.records):
                break
            wanted = Acquisition("a", False, 100)
            for first, last, _ in self.machine.acquire(wanted, 100, offset, self.read(offset), self.now_ms):
                for record in self.records[first : last + 1]:
                    assert not record.done and record.owner is None
                    record.deliveries += 1
                    record.done = True
                transition = self.machine.acknowledge("a", [Acknowledgement(first, last, [1])], self.now_ms)
                self.machine.finish(transition, committed=True, now_ms=self.now_ms)
        assert self.machine.start_offset == self.machine.end_offset == len(self.records)
        assert all(record.done or record.is_aborted for record in self.records), "a record was lost"
        assert not self.queue & self.accepted
        assert {offset for offset in self.given_up - self.queue if offset >= self.log_start} == set()

    def check(self) -> None:
        machine = self.machine
        states = {o: b for b in machine.batches for o in range(b.first, b.last + 1)}
        for offset, record in enumerate(self.records):
            state = states.get(offset)
            if offset < machine.start_offset:
                assert record.done or record.is_aborted or record.owner is not None
            elif record.owner is not None:
                assert state is not None and state.state == 1 and state.delivery_count == record.deliveries
            elif record.done:
                assert state is not None and state.state in (2, 3, 4)
        complete = sum(1 for o, b in states.items() if o >= machine.start_offset and b.state in (2, 4))
        assert machine.delivery_complete_count == complete


def live(seed: int, steps: int) -> World:
    world = World(random.Random(seed))
    acts: list[Callable[[], None]] = [world.fetch, world.acknowledge, world.acknowledge, world.append, world.wait]
    acts.append(world.post)
    for _ in range(steps):
        world.random.choice([*acts * 4, world.leave, world.leave, world.crash, world.delete])()
        world.check()
    world.drain()
    return world


def test_random_lives(scaled: Callable[[int], int]) -> None:
    worlds: list[World] = []
    for seed in range(scaled(100)):
        try:
            worlds.append(live(seed, 100))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert sum(world.redelivered for world in worlds) > len(worlds)
    assert sum(world.exhausted for world in worlds) >= len(worlds) // 10
    assert sum(len(world.queue) for world in worlds) >= len(worlds) // 5
    assert sum(world.writes for world in worlds) > 5 * len(worlds)
