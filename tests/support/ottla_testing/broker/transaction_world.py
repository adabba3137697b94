"""Random transactions on a simulated disk, crashed at every write and sync, and restarted.

Producers with transactional ids take ownership, add partitions and groups' offsets, write, commit, abort and time out,
several at once. At every step that changes the disk the broker is crashed, by a kill or by a power loss, and restarted;
open transactions are timed out or fenced. Then: transactions acknowledged as committed are readable in all partitions
by read_committed consumers, and so are their offsets; undecided and aborted ones are readable nowhere; unacknowledged
decisions are one or the other in all partitions. No transaction stays open, and no epoch is used twice.

Power losses are only injected if `flush.messages` is 1 for all topics; otherwise only kills are survivable. With
`failing` calls find the disk full at times: requests are repeated until they succeed.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary, WeakSet

import pytest

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.futures import settled
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.network import router
from ottla.broker.replica.flush import Durability
from ottla.broker.transactions.state import Response, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch, formats
from ottla.storage.errors import StorageError
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers.txn_index import ABORT, read_marker
from ottla_testing.broker.harness import options
from ottla_testing.storage.crash_world import Violation, demand
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 30_000
DATA = "/data"
PARTITIONS = 3
CLIENTS = 3
ROUNDS = 5
OVERRIDES = {
    "log.cleaner.enable": "false",  # it works in a thread
    "log.segment.delete.delay.ms": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "2",
}
OPTIONS = options([Path(DATA)], OVERRIDES)
SYNCED = options([Path(DATA)], {**OVERRIDES, "log.flush.interval.messages": "1"})
APIS = router.apis_of(OPTIONS.config.profile)
NONE = ErrorCode.NONE
FAILING: WeakKeyDictionary[Durability, World] = WeakKeyDictionary()
ENDED: WeakSet[Durability] = WeakSet()  # what was left when its disk had been checked
DECIDED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def start(files: SimulatedFiles, clock: ManualClock | None = None, with_options: Any = OPTIONS) -> BrokerState:
    return BrokerState.open(with_options, {}, APIS, clock or ManualClock(NOW_MS), asyncio.get_running_loop(), files)


@dataclass
class Transaction:
    """The expected state of a transaction. `outcome` is `open`, `committing` or `aborting` once that is requested,
    `committed` or `aborted` once that is acknowledged. `values` and `offset` are acknowledged.
    """

    values: dict[int, list[bytes]] = field(default_factory=dict)
    offset: int | None = None
    outcome: str = "open"

    @property
    def all_values(self) -> set[bytes]:
        return {value for values in self.values.values() for value in values}


class Client:
    """A producer with a transactional id and its own group; `version` as in EndTxn."""

    def __init__(self, world: World, number: int, version: int) -> None:
        self.world = world
        self.name, self.group, self.version = f"tx{number}", f"g{number}", version
        self.owner: tuple[int, int] = (-1, -1)
        self.given: list[tuple[int, int]] = []
        self.sequences: dict[tuple[int, int, int], int] = {}
        self.transactions: list[Transaction] = []
        self.plain: list[tuple[int, bytes]] = []
        self.tried: list[tuple[int, bytes]] = []  # all values ever sent

    @property
    def running(self) -> Transaction | None:
        last = self.transactions[-1] if self.transactions else None
        return last if last is not None and last.outcome == "open" else None

    @property
    def state(self) -> BrokerState:
        return self.world.state

    async def act(self) -> None:
        """Runs a random possible action."""
        rng = self.world.rng
        if self.owner[0] < 0 or rng.random() < 0.08:
            await self.init()
        elif self.running is None or rng.random() < 0.5:
            await rng.choice((self.produce, self.produce, self.commit_offset))()
        else:
            await self.end(rng.random() < 0.6)

    def give(self, producer_id: int, epoch: int) -> None:
        demand((producer_id, epoch) not in self.given, "an epoch was given twice", self.name, producer_id, epoch)
        self.owner = producer_id, epoch
        self.given.append(self.owner)

    async def init(self) -> None:
        if (running := self.running) is not None:
            running.outcome = "aborting"
        response = await self.repeated(
            lambda: self.state.transactions.init_producer_id(self.name, timeout_ms=self.world.timeout_ms)
        )
        if running is not None:
            running.outcome = "aborted"
        self.give(response.producer_id, response.producer_epoch)

    async def repeated(self, send: Callable[[], Any]) -> Response:
        """Returns the response to a request that is repeated while the previous transaction is being completed."""
        for _ in range(1000):
            response = await final(send())
            if response.error is NONE:
                return response
            self.world.may_fail(response.error)
            await asyncio.sleep(0)
        raise Violation(f"{self.name} gets a retriable error forever")

    async def sent(self, index: int, data: bytearray) -> None:
        """Called once the batch is written: a retry may be a duplicate."""
        for _ in range(1000):
            try:
                await settled(self.state.topics.partition("t", index).append(bytearray(data), NOW_MS, 9))
                return
            except StorageError:
                self.world.may_fail(ErrorCode.KAFKA_STORAGE_ERROR)
        raise Violation(f"{self.name} cannot write")

    def begin(self) -> Transaction:
        if self.running is None:
            self.transactions.append(Transaction())
        return self.transactions[-1]

    async def produce(self) -> None:
        running = self.begin()
        indexes = self.world.rng.sample(range(PARTITIONS), self.world.rng.randint(1, PARTITIONS))
        coordinator = self.state.transactions
        await self.repeated(
            lambda: coordinator.add_partitions(
                self.name, *self.owner, [("t", index) for index in indexes], client_version=self.version
            )
        )
        for index in indexes:
            sequence = self.sequences.get((*self.owner, index), 0)
            values = [self.world.new_value() for _ in range(self.world.rng.randint(1, 2))]
            self.tried += [(index, value) for value in values]
            data = batch.build(
                [batch.Record(n, NOW_MS, None, value) for n, value in enumerate(values)],
                batch.BatchFields(
                    producer_id=self.owner[0], producer_epoch=self.owner[1], base_sequence=sequence, transactional=True
                ),
            )
            await self.sent(index, data)
            self.sequences[*self.owner, index] = sequence + len(values)
            running.values.setdefault(index, []).extend(values)

    async def commit_offset(self) -> None:
        running = self.begin()
        coordinator = self.state.transactions
        await self.repeated(
            lambda: coordinator.add_offsets(self.name, *self.owner, self.group, client_version=self.version)
        )
        self.world.counter += 1
        offset = self.world.counter
        for _ in range(1000):
            code = self.state.groups.commit(
                self.group,
                member_id="",
                instance_id=None,
                generation_id=-1,
                commits=[(("t", 0), CommittedOffset(offset, commit_timestamp_ms=NOW_MS))],
                producer=self.owner,
            )
            code = code or await self.state.group_records_durable(self.group)
            if code is NONE:
                break
            self.world.may_fail(code)
        demand(code is NONE, "a commit of offsets got", code)
        running.offset = offset

    async def end(self, committed: bool) -> None:
        running = self.running
        assert running is not None
        running.outcome = "committing" if committed else "aborting"
        coordinator = self.state.transactions
        response = await self.repeated(
            lambda: coordinator.end(self.name, *self.owner, committed=committed, client_version=self.version)
        )
        running.outcome = "committed" if committed else "aborted"
        if committed and running.offset is not None and not (self.world.synced or self.world.failing):
            found = self.state.groups.offsets(self.group).get(("t", 0))
            demand(found is not None and found.offset == running.offset, "not committed yet", self.group, found)
        if self.version == 2:
            self.give(response.producer_id, response.producer_epoch)

    async def send_plain(self) -> None:
        index, value = self.world.rng.randrange(PARTITIONS), self.world.new_value()
        self.tried.append((index, value))
        data = batch.build([batch.Record(0, NOW_MS, None, value)])
        try:
            await settled(self.state.topics.partition("t", index).append(data, NOW_MS, 9))
        except StorageError:
            self.world.may_fail(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self.plain.append((index, value))


async def final(response: Any) -> Response:
    return await response if isinstance(response, asyncio.Future) else response


class World:
    """A run of random work, checked at its crashes. With `synced` every response waits for syncs; with `failing` calls
    find the disk full.
    """

    def __init__(self, seed: int, synced: bool, stop_chance: float = 1.0, failing: bool = False) -> None:
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.synced, self.stop_chance = synced, stop_chance
        self.files = SimulatedFiles()
        self.clock = ManualClock(NOW_MS)
        version = self.rng.choice((0, 2))
        self.clients = [Client(self, number, version) for number in range(CLIENTS)]
        self.rolls = self.rng.random() < 0.5
        self.counter = 0
        self.stops = 0
        self.failing = failing
        self.failures = 0
        # A failed sync is retried by the clock, which must not reach the owners' timeout.
        self.timeout_ms = 900_000 if failing else TIMEOUT_MS

    def may_fail(self, error: ErrorCode) -> None:
        """Accepts an error response; the request is repeated a moment later."""
        if error is not BUSY:
            demand(self.failures > 0 and error in FAILURES, "response", error.name)
        if self.failures:
            self.clock.advance(1001)

    def new_value(self) -> bytes:
        self.counter += 1
        return b"%d" % self.counter

    async def run(self) -> None:
        names = random.Random(self.chance.random())
        with mock.patch("ottla.storage.io.random_ids.uuid4", lambda: names.randbytes(16)):
            failing, self.failing = self.failing, False
            self.start()
            self.state.topics.create("t", PARTITIONS, {}, NOW_MS)
            for name in (TRANSACTION_STATE_TOPIC, GROUP_OFFSETS_TOPIC):
                self.state.internal_topic(name, NOW_MS)
            self.roll_often()
            self.failing = failing
            self.files.on_step = self.on_step
            for _ in range(ROUNDS):
                ticking = asyncio.ensure_future(self.tick())
                await asyncio.gather(*(self.session(client) for client in self.clients))
                ticking.cancel()
                await self.rng.choice((self.restart, self.time_out, self.checkpoint, self.checkpoint))()
            await self.stop()

    async def tick(self) -> None:
        """Advances the clock if nothing else happens: a failed sync is retried after a second."""
        while True:
            steps = self.files.steps
            for _ in range(500):
                await asyncio.sleep(0)
            if self.files.steps == steps and self.failures:
                self.clock.advance(1001)

    async def session(self, client: Client) -> None:
        for _ in range(self.rng.randint(1, 4)):
            await client.act()
            if self.rng.random() < 0.15:
                await client.send_plain()

    async def time_out(self) -> None:
        for client in self.clients:
            if client.running is not None:
                client.running.outcome = "aborting"
                client.owner = -1, -1
        self.clock.advance(self.timeout_ms + 10_001)
        await self.idle()
        for client in self.clients:
            for one in client.transactions:
                if one.outcome == "aborting":
                    one.outcome = "aborted"

    async def checkpoint(self) -> None:
        self.state.logs.directories[0].write_checkpoints()

    async def idle(self) -> None:
        """Runs the event loop until nothing is left to do."""
        for _ in range(100):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        if self.rng.random() < 0.5:
            await self.idle()
        failing, self.failing = self.failing, False
        self.state.begin_stop()
        await self.state.finish_appends(5)
        self.state.close()
        self.failing = failing

    async def restart(self) -> None:
        await self.stop()
        self.clock = ManualClock(self.clock.now_ms())
        self.start()

    def start(self) -> None:
        self.state = start(self.files, self.clock, SYNCED if self.synced else OPTIONS)
        FAILING[self.state.durability] = self
        self.roll_often()

    def roll_often(self) -> None:
        """Sets segments of a few batches in some runs."""
        for topic in self.state.topics if self.rolls else ():
            for partition in topic.partitions:
                partition.configure(replace(partition.log.config, segment_bytes=700))

    def on_step(self, step: Step) -> None:
        if self.chance.random() < self.stop_chance:
            self.stop_here(step)
        if step.operation == "write" and step.path.endswith(".log") and self.fails():
            raise OSError(errno.ENOSPC, "the disk is full", step.path)

    def fails(self) -> bool:
        """Decides whether the next write or sync fails."""
        fails = self.failing and self.chance.random() < 0.07
        self.failures += fails
        return fails

    def stop_here(self, step: Step) -> None:
        """Forks the disk as after a crash here, and checks the fork."""
        size = len(step.change.data or b"") if step.change is not None else 0
        fork = self.files.fork(step, self.chance.choice((0, size, self.chance.randint(0, size))))
        powered = not self.synced or self.chance.random() < 0.3
        if powered:
            fork.restart()
        else:
            fork.crash(self.chance)
        self.stops += 1
        try:
            check(fork, self)
        except Exception as error:
            kind = "kill" if powered else "power loss"
            where = f"after a {kind} at step {step.number}: {step.operation} {step.path}"
            raise Violation(f"{type(error).__name__}: {error}\n{where}") from error


# -- after a crash


def committed_values(log: PartitionLog) -> list[bytes]:
    """Returns the values that a read_committed consumer gets: it drops those in the list of aborted transactions
    (KIP-98).
    """
    found: list[bytes] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 300, committed=True)
        waiting = sorted(read.aborted, key=lambda one: one.first_offset)
        dropping: set[int] = set()
        for position, header in formats.headers(read.records):
            while waiting and waiting[0].first_offset <= header.last_offset:
                dropping.add(waiting.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(read.records, position, header)
                if marker is not None and marker.kind == ABORT:
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                records = formats.records(read.records, position)
                found += [record.value or b"" for record in records if record.offset >= offset]
            last = header
        if not len(read.records):
            return found
        offset = last.next_offset


def check(files: SimulatedFiles, world: World) -> None:
    """Starts a broker on the disk and compares it with the expected state."""
    rng = world.chance
    if rng.random() < 0.2:
        stop_the_start(files, rng)
    clock = ManualClock(NOW_MS)
    state = start(files, clock)
    if rng.random() < 0.5:  # the owners' transactions time out, otherwise the owners are fenced by their restart
        clock.advance(world.timeout_ms + 10_001)
    check_owners(state, world)
    check_transactions(state, world)
    check_going_on(state, world)
    state.begin_stop()
    state.logs.release()
    ENDED.add(state.durability)


def stop_the_start(files: SimulatedFiles, rng: random.Random) -> None:
    """Crashes the start at one of its steps as well; the next start continues from there."""
    files.fail_at, files.killing = files.steps + rng.randrange(12), True
    state = None
    try:
        state = start(files)
    except BaseException as error:
        if type(error).__name__ != "Killed":
            raise
    if state is not None:
        state.begin_stop()
    files.restart()


def check_owners(state: BrokerState, world: World) -> None:
    """Checks that each owner gets an unused epoch, which aborts its open transaction."""
    for client in world.clients:
        for _ in range(3):
            response = state.transactions.init_producer_id(client.name, timeout_ms=TIMEOUT_MS)
            assert isinstance(response, Response)
            if response.error is not BUSY:
                break
        demand(response.error is NONE, "after a start an id responds", client.name, response.error.name)
        given = response.producer_id, response.producer_epoch
        demand(given not in client.given, "an epoch is given again", client.name, *given)
        for owner in client.given[-1:]:
            response = state.transactions.end(client.name, *owner, committed=True, client_version=client.version)
            assert isinstance(response, Response)
            demand(response.error is not NONE, "an owner of old may commit", client.name, *owner)


def check_transactions(state: BrokerState, world: World) -> None:
    topic = state.topics.named("t")
    shown = [committed_values(partition.log) for partition in topic.partitions]
    for partition, values in zip(topic.partitions, shown, strict=True):
        log = partition.log
        demand(not log.open_transactions(), "open for ever", partition.index, log.open_transactions())
        demand(log.last_stable_offset == log.high_watermark, "held back for ever", partition.index)
        demand(len(values) == len(set(values)), "a value is there twice", partition.index)
    seen = {(index, value) for index, values in enumerate(shown) for value in values}
    tried = {one for client in world.clients for one in client.tried}
    demand(seen <= tried, "a value that was never sent is there", seen - tried)
    for client in world.clients:
        demand(seen >= set(client.plain), "a plain record is lost", client.name)
        found = state.groups.offsets(client.group).get(("t", 0))
        offset = found.offset if found else None
        allowed: set[int | None] = {None}
        for number, one in enumerate(client.transactions):
            values = {(index, value) for index, values in one.values.items() for value in values}
            repeated = client.name, number, one
            if one.outcome == "committed":
                demand(values <= seen, "committed and lost", values - seen, *repeated)
            elif one.outcome == "committing":
                demand(not values & seen or values <= seen, "half committed", values - seen, *repeated)
            else:
                demand(not values & seen, "read although it was never committed", values & seen, *repeated)
            if one.offset is not None:
                allowed = offsets_after(allowed, one, bool(values & seen), bool(values))
        demand(offset in allowed, "of the group is committed", client.group, offset, allowed)


def offsets_after(allowed: set[int | None], one: Transaction, is_seen: bool, has_values: bool) -> set[int | None]:
    """Returns the possible offsets of the group after this transaction, given those before it."""
    if one.outcome == "committed" or (one.outcome == "committing" and is_seen):
        return {one.offset}
    if one.outcome == "committing" and not has_values:
        return {*allowed, one.offset}
    return allowed


def check_going_on(state: BrokerState, world: World) -> None:
    """Runs a transaction over all partitions, which must succeed."""
    name, value = world.clients[0].name, b"new"
    response = state.transactions.init_producer_id(name, timeout_ms=TIMEOUT_MS)
    assert isinstance(response, Response)
    owner = response.producer_id, response.producer_epoch
    held = [("t", index) for index in range(PARTITIONS)]
    assert state.transactions.add_partitions(name, *owner, held, client_version=2) == Response(NONE)
    for index in range(PARTITIONS):
        data = batch.build(
            [batch.Record(0, NOW_MS, None, value)],
            batch.BatchFields(producer_id=owner[0], producer_epoch=owner[1], base_sequence=0, transactional=True),
        )
        state.topics.partition("t", index).append(data, NOW_MS, 9)
    response = state.transactions.end(name, *owner, committed=True, client_version=2)
    assert isinstance(response, Response)
    demand(response.error is NONE, "no new transaction can be committed", response)
    for partition in state.topics.named("t").partitions:
        demand(committed_values(partition.log)[-1:] == [value], "a new committed transaction cannot be read")


# -- runs


def syncs_in_turn(patch: pytest.MonkeyPatch) -> None:
    """Runs syncs on the event loop, each in its own iteration, so that a seed determines the order of everything."""

    def submit(self: Durability, pool: Any, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._under_way += 1
        error = None

        def sync() -> None:
            nonlocal error
            if self in ENDED:
                return
            try:
                if self in FAILING and FAILING[self].fails():
                    raise StorageError("no descriptor is left")
                work()
            except Exception as raised:
                error = raised
            self.loop.call_soon(self._finished, done, error)

        self.loop.call_soon(sync)

    patch.setattr(Durability, "_submit", submit)


def run(seed: int, synced: bool, stop_chance: float = 1.0, failing: bool = False) -> World:
    world = World(seed, synced, stop_chance, failing)
    errors: list[BaseException] = []

    async def run_and_catch() -> None:
        # An exception in a callback of the event loop is a failure as well.
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: errors.append(context.get("exception") or AssertionError(context["message"]))
        )
        await world.run()

    try:
        asyncio.run(run_and_catch())
        if errors:
            raise errors[0]
    except BaseException as error:
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {errors[0] if errors else error}") from error
    return world
