"""Consumer groups of KIP-848 and share groups on a simulated disk, crashed at every write and sync, and restarted.

Members join, send heartbeats, commit offsets, acquire and acknowledge records, and leave, several at once. At every
step that changes the disk the broker is crashed, by a kill or by a power loss, and started again. Then, of what was
acknowledged: members continue with their epochs, and no epoch goes back; a partition is given to no member while
another one may own it; offsets are committed; records of share groups that were accepted or rejected are not
delivered, all others are, with a delivery count above that of an acknowledged release.

Power losses are only injected if `flush.messages` is 1 for all topics; otherwise only kills are survivable. With
`failing` writes find the disk full at times: what is refused then has no effect.
"""

from __future__ import annotations

import asyncio
import errno
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.config.resource_types import GROUP
from ottla.broker.errors import Refused
from ottla.broker.futures import settled
from ottla.broker.groups.common_events import MemberLeave
from ottla.broker.groups.consumer.events import MemberHeartbeat
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.share.events import Heartbeat
from ottla.broker.groups.share.state import SharePartitionKey
from ottla.broker.handlers.share.share_fetch import fetched
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC
from ottla.broker.network import router
from ottla.broker.share.share_partition import Acquisition
from ottla.broker.share.share_partitions import Led
from ottla.broker.share.values import Acknowledgement
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch
from ottla_testing.broker.harness import options
from ottla_testing.storage.crash_world import Violation, demand
from ottla_testing.storage.simulated_files import SimulatedFiles, Step

NOW_MS = 1_700_000_000_000
DATA = "/data"
TOPIC, PARTITIONS, RECORDS = "t", 3, 12
ROUNDS = 5
OVERRIDES = {
    "log.cleaner.enable": "false",  # it works in a thread
    "log.segment.delete.delay.ms": "1",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    **{
        f"group.{kind}.{limit}session.timeout.ms": "3600000"  # only locks end
        for kind in ("consumer", "share")
        for limit in ("", "max.")
    },
}
OPTIONS = options([Path(DATA)], OVERRIDES)
SYNCED = options([Path(DATA)], {**OVERRIDES, "log.flush.interval.messages": "1"})
APIS = router.apis_of(OPTIONS.config.profile)
NONE = ErrorCode.NONE
FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
TOPIC_PATH = f"/{TOPIC}-"
ACCEPT, RELEASE, REJECT = 1, 2, 3
Partitions = dict[bytes, frozenset[int]]
Offset = tuple[int, int]  # partition, offset


def start(files: SimulatedFiles, clock: ManualClock, with_options: Any = OPTIONS) -> BrokerState:
    return BrokerState.open(with_options, {}, APIS, clock, asyncio.get_running_loop(), files)


@dataclass
class Member:
    """A member of a group: its acknowledged epoch (0: it has not joined) and partitions; `busy` during a request."""

    group: str
    name: str
    epoch: int = 0
    owned: Partitions = field(default_factory=dict[bytes, frozenset[int]])
    busy: str = ""

    def copy(self) -> Member:
        return replace(self)


@dataclass
class Shared:
    """A record of a share group: whether it is done (None: unknown), and the count of its last acknowledged release."""

    done: bool | None = False
    released: int = 0


@dataclass
class Known:
    """The acknowledged state."""

    members: dict[str, Member] = field(default_factory=dict[str, Member])
    highest: dict[str, int] = field(default_factory=dict[str, int])  # member epoch by group
    commits: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    committing: str = ""
    shared: dict[Offset, Shared] = field(default_factory=dict[Offset, Shared])

    def copy(self) -> Known:
        return Known(
            {name: member.copy() for name, member in self.members.items()},
            dict(self.highest),
            {group: list(offsets) for group, offsets in self.commits.items()},
            self.committing,
            {where: replace(one) for where, one in self.shared.items()},
        )


class World:
    """A run of random work, checked at its crashes. With `synced` every response waits for syncs; with `failing` some
    writes find the disk full.
    """

    def __init__(self, seed: int, synced: bool, stop_chance: float = 1.0, failing: bool = False) -> None:
        self.rng = random.Random(seed)
        self.chance = random.Random(seed + 1)
        self.synced, self.stop_chance = synced, stop_chance
        self.files = SimulatedFiles()
        self.clock = ManualClock(NOW_MS)
        self.known = Known()
        self.rolls = self.rng.random() < 0.5
        self.counter = 0
        self.failing = failing
        self.failures = 0
        self.stops = 0
        self.violations: list[Violation] = []
        self.acknowledged = 0
        for number in range(3):
            self.known.members[f"c{number}"] = Member("c", f"c{number}")
            self.known.members[f"s{number}"] = Member("s", f"s{number}")

    async def run(self) -> None:
        names = random.Random(self.chance.random())
        with mock.patch("ottla.storage.io.random_ids.uuid4", lambda: names.randbytes(16)):
            self.start()
            self.state.named_configs.set(GROUP, "s", {"share.auto.offset.reset": "earliest"}, NOW_MS)
            topic = self.state.topics.create(TOPIC, PARTITIONS, {}, NOW_MS)
            for name in (SHARE_STATE_TOPIC, GROUP_OFFSETS_TOPIC):
                self.state.internal_topic(name, NOW_MS)
            for partition in topic.partitions:
                data = batch.build([batch.Record(n, NOW_MS, None, b"%d" % n) for n in range(RECORDS)])
                await settled(partition.append(data, NOW_MS, 9))
                self.known.shared |= {(partition.index, offset): Shared() for offset in range(RECORDS)}
            self.roll_often()
            self.files.on_step = self.on_step
            for _ in range(ROUNDS):
                await asyncio.gather(*(self.session(member) for member in self.known.members.values()))
                await self.rng.choice((self.restart, self.wait, self.checkpoint, self.checkpoint))()
            await self.stop()

    async def session(self, member: Member) -> None:
        for _ in range(self.rng.randint(1, 4)):
            await self.act(member)

    async def act(self, member: Member) -> None:
        """Runs a random possible action of a member."""
        if member.epoch == 0 or self.rng.random() < 0.4:
            await heartbeat(self, member)
        elif self.rng.random() < 0.08:
            await leave(self, member)
        elif member.group == "c":
            await commit(self, member)
        else:
            await share(self, member)

    async def wait(self) -> None:
        """Lets locks end, but no session."""
        self.clock.advance(31_000)
        await self.idle()

    async def checkpoint(self) -> None:
        self.state.logs.directories[0].write_checkpoints()

    async def idle(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        if self.rng.random() < 0.5:
            await self.idle()
        self.state.begin_stop()
        await self.state.finish_appends(5)
        self.state.close()

    async def restart(self) -> None:
        await self.stop()
        self.clock = ManualClock(self.clock.now_ms())
        self.start()

    def start(self) -> None:
        self.state = start(self.files, self.clock, SYNCED if self.synced else OPTIONS)
        self.roll_often()

    def roll_often(self) -> None:
        """Sets segments of a few batches in some runs."""
        for topic in self.state.topics if self.rolls else ():
            for partition in topic.partitions:
                partition.configure(replace(partition.log.config, segment_bytes=700))

    def may_fail(self, error: ErrorCode, *facts: object) -> None:
        """Accepts an error of a write that failed."""
        demand(self.failures > 0 and error in FAILURES, "response", error.name, *facts)

    def on_step(self, step: Step) -> None:
        if self.chance.random() < self.stop_chance:
            self.stop_here(step)
        is_write = step.operation == "write" and step.path.endswith(".log")
        if is_write and self.failing and TOPIC_PATH not in step.path and self.chance.random() < 0.1:
            self.failures += 1
            raise OSError(errno.ENOSPC, "the disk is full", step.path)

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
            check(fork, self.known.copy(), self.chance, self.clock.now_ms())
        except Exception as error:
            kind = "kill" if powered else "power loss"
            where = f"after a {kind} at step {step.number}: {step.operation} {step.path}"
            violation = Violation(f"{type(error).__name__}: {error}\n{where}")
            self.violations.append(violation)  # within a sync, it would be a failure of the disk only
            raise violation from error


# -- the work


def consumer_beat(member: Member, *, full: bool) -> MemberHeartbeat:
    joins = member.epoch == 0
    return MemberHeartbeat(
        member_id=member.name,
        epoch=member.epoch,
        rebalance_timeout_ms=300_000 if joins or full else -1,
        topics=frozenset({TOPIC}) if joins or full else None,
        owned={} if joins else member.owned,
    )


def share_beat(member: Member, *, full: bool) -> Heartbeat:
    return Heartbeat(member.name, member.epoch, topics=frozenset({TOPIC}) if member.epoch == 0 or full else None)


def beat(state: BrokerState, member: Member, *, full: bool = False) -> Any:
    if member.group == "c":
        return state.groups.member_heartbeat("consumer", "c", consumer_beat(member, full=full))
    return state.groups.member_heartbeat("share", "s", share_beat(member, full=full))


async def heartbeat(world: World, member: Member) -> None:
    member.busy = "heartbeat"
    reply = beat(world.state, member, full=world.rng.random() < 0.2)
    if reply.error is not NONE:
        world.may_fail(reply.error, member, reply)
        member.busy = ""
        return
    demand(await world.state.group_records_durable(member.group) is NONE, "not durable", member)
    demand(member.epoch == 0 or reply.epoch >= member.epoch, "an epoch went back", member, reply)
    member.epoch = reply.epoch
    if reply.assignment is not None:
        member.owned = dict(reply.assignment)
    world.known.highest[member.group] = max(world.known.highest.get(member.group, 0), reply.epoch)
    member.busy = ""


async def leave(world: World, member: Member) -> None:
    member.busy = "leave"
    if member.group == "c":
        reply: Any = world.state.groups.member_heartbeat("consumer", "c", MemberLeave(member.name))
    else:
        reply = world.state.groups.member_heartbeat("share", "s", MemberLeave(member.name))
    if reply.error is not NONE:
        world.may_fail(reply.error, member, reply)
        member.busy = ""
        return
    demand(await world.state.group_records_durable(member.group) is NONE, "not durable", member)
    member.epoch, member.owned, member.busy = 0, {}, ""


async def commit(world: World, member: Member) -> None:
    """Commits for one partition; one member at a time, so that the order is known."""
    if world.known.committing:
        return
    world.known.committing = member.name
    world.counter += 1
    world.known.commits.setdefault("c", []).append(world.counter)
    code = world.state.groups.commit(
        "c",
        member_id=member.name,
        instance_id=None,
        generation_id=member.epoch,
        commits=[((TOPIC, 0), CommittedOffset(world.counter, commit_timestamp_ms=NOW_MS))],
        api_version=9,
    )
    code = code or await world.state.group_records_durable("c")
    if code is not NONE:
        world.may_fail(code, member)
        world.known.commits["c"].remove(world.counter)
    world.known.committing = ""


def led_of(state: BrokerState, index: int) -> Led:
    """Returns the share partition. Raises Refused."""
    topic = state.topics.named(TOPIC)
    return state.share_partitions.get_or_create(SharePartitionKey("s", topic.id, index), topic.partitions[index])


def take(state: BrokerState, led: Led, member: str, most: int) -> list[tuple[int, int]]:
    """Acquires records as ShareFetch does; returns (offset, delivery count)."""
    if not led.machine.can_acquire():
        return []
    offset = led.machine.next_fetch_offset()
    found = led.partition.log.read(offset, 1 << 20)
    if not len(found.records):
        return []
    wanted = Acquisition(member, True, 500)
    acquired = state.share_partitions.acquire(led, wanted, most, offset, fetched(found, committed=False))
    return [(one, count) for first, last, count in acquired for one in range(first, last + 1)]


async def share(world: World, member: Member) -> None:
    """Acquires records of a partition that the member owns, and acknowledges some of them, or none."""
    owned = sorted(index for indexes in member.owned.values() for index in indexes)
    if not owned:
        return
    index = world.rng.choice(owned)
    try:
        led = led_of(world.state, index)
    except Refused as refused:
        world.may_fail(refused.code, member)
        return
    if not led.is_ready:
        await world.idle()
    records = take(world.state, led, member.name, world.rng.randint(1, 5))
    for offset, count in records:
        one = world.known.shared[index, offset]
        demand(one.done is False and count > one.released, "delivered", index, offset, count, one)
    some = world.rng.sample(records, world.rng.randint(0, len(records)))
    if not some:
        return
    kinds = {offset: world.rng.choice((ACCEPT, ACCEPT, RELEASE, REJECT)) for offset, _ in some}
    for offset, kind in kinds.items():
        if kind != RELEASE or dict(records)[offset] >= 5:
            world.known.shared[index, offset].done = None
    given = [Acknowledgement(offset, offset, [kind]) for offset, kind in sorted(kinds.items())]
    outcome = await settled(world.state.share_partitions.acknowledge(led, member.name, given))
    if outcome is not None:
        world.may_fail(outcome.code, member, outcome)
        for offset in kinds:
            world.known.shared[index, offset].done = False
        return
    world.acknowledged += len(kinds)
    for offset, kind in kinds.items():
        one = world.known.shared[index, offset]
        if kind == RELEASE:
            one.released = dict(records)[offset]
        if one.done is None:
            one.done = True


# -- after a crash


def check(files: SimulatedFiles, known: Known, rng: random.Random, now_ms: int) -> None:
    """Starts a broker on the disk and compares it with the acknowledged state."""
    state = start(files, ManualClock(now_ms))
    check_commits(state, known)
    check_members(state, known, rng)
    check_shared(state, known)
    state.begin_stop()
    state.logs.release()


def check_commits(state: BrokerState, known: Known) -> None:
    tried = known.commits.get("c", [])
    found = state.groups.offsets("c").get((TOPIC, 0))
    allowed = [None, *tried][len(tried) - bool(known.committing) :]
    demand((found.offset if found else None) in allowed, "committed", found, allowed)


def check_members(state: BrokerState, known: Known, rng: random.Random) -> None:
    """Lets all members continue, and one more join, until the groups are stable."""
    for member in known.members.values():
        if member.epoch == 0 or member.busy == "leave":
            member.epoch, member.owned = 0, {}
    for member in known.members.values():
        if member.epoch == 0:
            continue
        reply = beat(state, member, full=True)
        demand(reply.error is NONE, "a member cannot continue", member, reply)
        demand(reply.epoch >= member.epoch, "an epoch went back", member, reply)
        settle(known, member, reply)
    late = Member("c", "late")
    known.members["late"] = late
    joined = beat(state, late)
    demand(joined.error is NONE, "no new member can join", joined)
    demand(joined.epoch >= known.highest.get("c", 0), "a new member has an older epoch", joined, known.highest)
    for _ in range(8):
        for member in rng.sample(list(known.members.values()), len(known.members)):
            if member.epoch or member is late:
                settle(known, member, beat(state, member))
    owners = [one for one in known.members.values() if one.group == "c" and (one.epoch or one is late)]
    held = sorted(index for one in owners for indexes in one.owned.values() for index in indexes)
    # Members whose leave may be stored or not are counted in until their sessions end.
    is_whole = not any(one.group == "c" and one.busy for one in known.members.values())
    demand(not is_whole or held == list(range(PARTITIONS)), "partitions are owned", held, owners)


def settle(known: Known, member: Member, reply: Any) -> None:
    """Takes over an assignment; fails if another member may still own a partition of it."""
    demand(reply.error is NONE, "a heartbeat returned", member, reply)
    member.epoch = reply.epoch
    if reply.assignment is None:
        return
    for other in known.members.values() if member.group == "c" else ():
        if other is member or other.group != "c":
            continue
        for topic_id, indexes in reply.assignment.items():
            twice = indexes & other.owned.get(topic_id, frozenset())
            demand(not twice, "a partition is given to a second member", member, other, twice)
    member.owned = dict(reply.assignment)


def check_shared(state: BrokerState, known: Known) -> None:
    """Acquires everything that is left."""
    topic = state.topics.named(TOPIC)
    assigned = {i for one in known.members.values() if one.group == "s" for found in one.owned.values() for i in found}
    touched = {index for (index, _), one in known.shared.items() if one.done is not False or one.released}
    for index in sorted(assigned | touched):
        demand(state.share_state.summary(SharePartitionKey("s", topic.id, index)) is not None, "no state", index)
        led = led_of(state, index)
        got: dict[int, int] = {}
        for _ in range(10 * RECORDS):
            records = take(state, led, "check", 500)
            if not records:
                break
            demand(not got.keys() & dict(records).keys(), "delivered twice", index, got, records)
            got |= dict(records)
        for offset in range(RECORDS):
            one = known.shared[index, offset]
            if one.done is not None:
                demand(one.done == (offset not in got), "delivered" if one.done else "lost", index, offset, one, got)
            demand(got.get(offset, 9) > one.released, "a release is not stored", index, offset, one, got)


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
        if world.violations:
            raise world.violations[0]
    except BaseException as error:
        cause = (*world.violations, *errors, error)[0]
        raise AssertionError(f"OTTLA_CRASH_SEED={seed} shows it again: {cause}") from error
    return world
