"""The effects of the virtual clock on a broker, each at its own time, and the effects that stay in real time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ottla.broker.admin_api.clock import LATEST_MS, ClockControl, ClockState
from ottla.broker.admin_api.views import OperationError
from ottla.broker.broker_state import BrokerState
from ottla.broker.clock import ManualClock
from ottla.broker.groups.classic.state import Group, GroupState, JoinReply, JoinRequest
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.network import server
from ottla.broker.transactions.coordinator import RETRY_MS
from ottla.broker.virtual_clock import VirtualClock
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch, formats
from ottla.storage.errors import StorageError
from ottla.storage.io.memory import MemoryFiles
from ottla.storage.partition_log import PartitionLog
from ottla_testing.broker.clock_world import APIS, DATA, DAY_MS, HOUR_MS, MINUTE_MS, OPTIONS, T0, play, walk
from ottla_testing.broker.harness import Broker, Client, fetch, only, options, ping, produce, records, running, values
from ottla_testing.broker.transacting import Owner
from ottla_testing.patience import PATIENCE_S

WEEK_MS = 7 * DAY_MS
TICK_MS = 10_000  # of the sweep for timed-out transactions


class Moved(Broker):
    """A broker in memory whose clock is frozen at T0."""

    def __init__(self, started: server.Running, clock: VirtualClock, files: MemoryFiles) -> None:
        super().__init__(started, clock)  # type: ignore[arg-type]
        self.files = files
        self.control = ClockControl(started)

    async def advance(self, ms: int, **more: Any) -> ClockState:
        """Advances the clock after the broker has processed all sent requests."""
        await self.settle()
        return await self.control.advance(ms, **more)

    def names(self, topic: str = "t") -> list[str]:
        """Returns the names of the files of its first partition."""
        return [path.rpartition("/")[2] for path in walk(self.files, f"{DATA}/{topic}-0")]

    def batches(self, topic: str = "t", partition: int = 0) -> list[Any]:
        """Returns the headers of all stored batches."""
        found, log = [], self.log(topic, partition)
        while (offset := found[-1].last_offset + 1 if found else log.log_start_offset) < log.log_end_offset:
            found += [header for _, header in formats.headers(log.read(offset, 1 << 20).records)]
        return found


@contextlib.asynccontextmanager
async def moved(overrides: Mapping[str, str] | None = None) -> AsyncIterator[Moved]:
    """Runs such a broker, of release 4.3."""
    loop = asyncio.get_running_loop()
    clock = VirtualClock(loop)
    clock.freeze()
    await clock.set(T0)
    files = MemoryFiles(lambda: clock.now_ms() * 1_000_000)
    requested = options([Path(DATA)], {"group.initial.rebalance.delay.ms": "0", **(overrides or {})}, "4.3")
    broker = Moved(await server.start(requested, loop, clock, files=files), clock, files)
    try:
        yield broker
    finally:
        await broker.stop()


async def member(broker: Moved, group: str = "g", *, session_timeout_ms: int = 45_000) -> JoinReply:
    """Returns the only member of a Stable group."""
    groups = broker.state.groups
    reply = await groups.join(
        group,
        JoinRequest(
            member_id="",
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"),),
        ),
    )
    synced = await groups.sync(
        group,
        member_id=reply.member_id,
        instance_id=None,
        generation_id=reply.generation_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[(reply.member_id, b"")],
    )
    assert (reply.error, synced.error) == (ErrorCode.NONE, ErrorCode.NONE)
    return reply


def commit(broker: Moved, joined: JoinReply | None = None, group: str = "g") -> ErrorCode:
    """Commits an offset of t-0."""
    return broker.state.groups.commit(
        group,
        member_id=joined.member_id if joined else "",
        instance_id=None,
        generation_id=joined.generation_id if joined else -1,
        commits=[(("t", 0), CommittedOffset(1, commit_timestamp_ms=broker.clock.now_ms()))],
    )


# Skipped ticks


def test_skipped_ticks_have_the_same_effects_as_ticks(scaled: Callable[[int], int]) -> None:
    """Random days, once with every tick of every check, once only with ticks that have an effect: files, groups,
    offsets, producers and transactions are the same after each advance."""
    done: set[str] = set()
    for seed in range(1, 1 + scaled(10)):  # all of that is done with the first one
        skipping, ticking = play(seed, 12, skips=True), play(seed, 12, skips=False)
        assert len(skipping.notes) == len(ticking.notes), seed
        for skipped, ticked in zip(skipping.notes, ticking.notes, strict=True):
            assert skipped == ticked, seed
        assert skipping.settled < ticking.settled / 2
        done |= skipping.done
    assert done >= {"retained", "cleaned", "emptied", "session expired", "files wait", "PRODUCER_FENCED"}


async def test_advance_by_seven_days_takes_milliseconds() -> None:
    async with moved({"offsets.topic.num.partitions": "50"}) as broker:
        for number in range(10):
            await broker.topic(f"t{number}", 2)
        client = await broker.client()
        await client.call(produce(records(b"a"), "t1"), 9)
        owner = Owner(client)
        assert await owner.init(timeout_ms=60_000) == 0
        assert await owner.add(("t0", 0)) == {("t0", 0): 0}
        assert await owner.send(b"x", topic="t0") == 0
        joined = await member(broker)
        assert commit(broker, joined) is ErrorCode.NONE
        assert len(broker.state.topics.named(GROUP_OFFSETS_TOPIC).partitions) == 50
        began = time.process_time()
        await broker.control.advance(WEEK_MS + HOUR_MS)
        assert time.process_time() - began < 2  # it takes some 10 ms
        assert broker.state.groups.group("g") is None
        assert broker.log("t1").log_start_offset == 1


# What is virtual


async def test_retention_deletes_segments_and_later_their_files() -> None:
    async with moved({"log.retention.check.interval.ms": "300000"}) as broker:
        await broker.topic("t", 1, {"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "60000"})
        client = await broker.client()
        await client.call(produce(records(b"a")), 9)
        await broker.advance(HOUR_MS)
        assert broker.log("t").log_start_offset == 0
        await broker.advance(5 * MINUTE_MS)  # the next check
        assert broker.log("t").log_start_offset == 1
        assert "00000000000000000000.log.deleted" in broker.names()
        await broker.advance(MINUTE_MS - 1)
        assert "00000000000000000000.log.deleted" in broker.names()
        await broker.advance(1)
        assert not [name for name in broker.names() if name.endswith(".deleted")]


async def test_files_of_a_deleted_topic_are_removed_after_the_delay() -> None:
    async with moved() as broker:
        await broker.topic("t")
        broker.state.topics.delete(broker.state.topics.named("t"), T0)
        assert any("-delete" in path for path in walk(broker.files, DATA))
        await broker.advance(DAY_MS)
        assert not any("-delete" in path for path in walk(broker.files, DATA))


async def test_segments_roll_by_virtual_time_and_log_append_time() -> None:
    async with moved() as broker:
        await broker.topic("t", 1, {"segment.ms": str(HOUR_MS), "message.timestamp.type": "LogAppendTime"})
        client = await broker.client()
        for _ in range(3):
            await client.call(produce(records(b"a")), 9)
            await broker.advance(HOUR_MS + 1)
        assert [header.max_timestamp for header in broker.batches()] == [T0 + n * (HOUR_MS + 1) for n in range(3)]
        assert [segment.base_offset for segment in broker.log("t").segments] == [0, 1, 2]


async def test_sessions_offsets_and_groups_expire_in_virtual_time() -> None:
    async with moved({"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "600000"}) as broker:
        await broker.topic("t")
        joined = await member(broker)
        assert commit(broker, joined) is ErrorCode.NONE
        groups = broker.state.groups
        await broker.advance(44_999)
        assert groups.group("g").state is GroupState.STABLE  # type: ignore[union-attr]
        await broker.advance(1)
        found = groups.group("g")
        assert isinstance(found, Group) and (found.state, found.state_changed_ms) == (GroupState.EMPTY, T0 + 45_000)
        await broker.advance(60 * MINUTE_MS - 1)
        assert groups.offsets("g")
        await broker.advance(10 * MINUTE_MS)
        assert groups.group("g") is None and not groups.offsets("g")
        log = groups.partition_of("g")
        # The generation, the commit, the empty group; at the first check that could, tombstones of the offset, and of
        # the group.
        stamps = [header.max_timestamp - T0 for header in broker.batches(GROUP_OFFSETS_TOPIC, log)]
        assert stamps == [0, 0, 0, 45_000, 70 * MINUTE_MS, 70 * MINUTE_MS]


async def test_rebalance_removes_a_member_that_misses_it() -> None:
    async with moved() as broker:
        await broker.topic("t")
        first = await member(broker, session_timeout_ms=300_000)
        second = asyncio.create_task(member(broker))
        await broker.settle()
        assert not second.done()
        await broker.advance(59_999)
        assert not second.done()
        await broker.advance(1)
        joined = await second
        assert joined.generation_id == 2 and [one.member_id for one in joined.members] == [joined.member_id]
        heartbeat = broker.state.groups.heartbeat
        code = heartbeat("g", member_id=first.member_id, instance_id=None, generation_id=1)
        assert code is ErrorCode.UNKNOWN_MEMBER_ID


async def test_producer_state_expires() -> None:
    async with moved() as broker:
        await broker.topic("t")
        client = await broker.client()
        data = records(b"a", timestamp=T0, producer_id=7, producer_epoch=0, base_sequence=0)
        await client.call(produce(data), 9)
        await broker.advance(DAY_MS - 1)
        assert list(broker.log("t").producers()) == [7]
        await broker.advance(600_000)
        assert not broker.log("t").producers()


async def test_producer_state_not_loaded_since_a_restart_expires() -> None:
    async with moved() as broker:
        await broker.topic("t")
        client = await broker.client()
        data = records(b"a", timestamp=T0, producer_id=7, producer_epoch=0, base_sequence=0)
        await client.call(produce(data), 9)
        clock, files = broker.clock, broker.files
    loop = asyncio.get_running_loop()
    requested = options([Path(DATA)], {}, "4.3")
    clock = clock.renewed()  # type: ignore[attr-defined]
    again = Moved(await server.start(requested, loop, clock, files=files), clock, files)
    try:
        await again.advance(DAY_MS + 600_000)
        assert not again.log("t").producers()
    finally:
        await again.stop()


async def test_transactions_time_out_and_their_ids_expire() -> None:
    async with moved({"transactional.id.expiration.ms": str(DAY_MS)}) as broker:
        await broker.topic("t")
        owner = Owner(await broker.client())
        assert await owner.init(timeout_ms=25_000) == 0
        assert await owner.add(("t", 0)) == {("t", 0): 0}
        assert await owner.send(b"x") == 0
        await broker.advance(WEEK_MS)
        _, marker = broker.batches()
        # The time of the first sweep after the timeout, not of the beginning or end of the advance.
        assert marker.is_control and marker.max_timestamp == T0 + 3 * TICK_MS
        assert broker.state.transactions.describe("x")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_cleaner_obeys_compaction_lags_in_virtual_time() -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": str(HOUR_MS),
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": str(6 * HOUR_MS),
        "delete.retention.ms": str(DAY_MS),
    }
    async with moved() as broker:
        await broker.topic("t", 1, configs)
        log = broker.log("t")

        async def write(key: bytes, value: bytes | None) -> None:
            now_ms = broker.clock.now_ms()
            broker.state.topics.partition("t", 0).append(batch.build([batch.Record(0, now_ms, key, value)]), now_ms, 13)
            await broker.advance(HOUR_MS + 1)

        def stored() -> list[int]:
            return [header.base_offset for header in broker.batches()]

        await write(b"a", b"1")
        await write(b"a", None)
        await write(b"b", b"2")
        await broker.advance(3 * HOUR_MS)
        assert stored() == [0, 1, 2]
        await broker.advance(2 * HOUR_MS)
        assert stored() == [1, 2]  # both lags have passed: the value is removed, and the tombstone stays for a day
        assert [segment.base_offset for segment in log.segments] == [0, 2]
        await broker.advance(2 * DAY_MS)
        await write(b"b", b"3")  # a pass runs only if the log has grown
        await broker.advance(DAY_MS)
        await write(b"c", b"4")
        assert stored()[0] > 1 and stored()[-1] == 4


async def test_one_advance_runs_all_effects_in_order() -> None:
    async with moved() as broker:
        await broker.topic("t", 1, {"retention.ms": str(DAY_MS)})
        owner = Owner(await broker.client())
        assert await owner.init(timeout_ms=60_000) == 0
        assert await owner.add(("t", 0)) == {("t", 0): 0}
        assert await owner.send(b"x") == 0
        joined = await member(broker)
        assert commit(broker, joined) is ErrorCode.NONE
        seen: list[tuple[int, str]] = []
        log, groups = broker.log("t"), broker.state.groups

        async def watch() -> None:
            await broker.state.settle()
            now_ms = broker.clock.now_ms() - T0
            group = groups.group("g")
            facts = {
                "a member gone": group is None or not group.members,
                "aborted": log.last_stable_offset == 2,
                "retained": log.log_start_offset == 2,
                "producer forgotten": not log.producers(),
                "offsets gone": not groups.offsets("g"),
                "id gone": broker.state.transactions.describe("x")[1] is None,
            }
            result = {name for _, name in seen}
            seen.extend((now_ms, name) for name, is_so in facts.items() if is_so and name not in result)

        await broker.settle()
        await broker.clock.advance(8 * DAY_MS, watch)  # type: ignore[call-arg]
        assert seen == [
            (45_000, "a member gone"),
            (70_000, "aborted"),
            (DAY_MS + 300_000, "retained"),
            (DAY_MS + 600_000, "producer forgotten"),  # a day after the marker
            (WEEK_MS + 600_000, "offsets gone"),
            (WEEK_MS + HOUR_MS, "id gone"),
        ]


async def test_client_ledger_uses_the_virtual_clock() -> None:
    async with moved() as broker:
        client = await broker.client()
        await client.call(fetch(max_wait_ms=0), 11)
        await broker.advance(HOUR_MS)
        await client.call(fetch(max_wait_ms=0), 11)
        (seen,) = [one for one in broker.state.clients.seen.clients.values() if (1, 11) in one.calls]
        assert (seen.calls[1, 11].first_seen_ms, seen.calls[1, 11].last_seen_ms) == (T0, T0 + HOUR_MS)


# What is real


async def test_fetch_waits_in_real_time() -> None:
    async with moved() as broker:
        await broker.topic("t")
        client = await broker.client()
        began = time.perf_counter()
        assert values(only(await client.call(fetch(("t", 0, 0), max_wait_ms=20), 11)).records) == []
        assert 0.015 < time.perf_counter() - began < PATIENCE_S

        await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        await broker.advance(WEEK_MS)
        other = await broker.client()
        got = asyncio.create_task(client.receive())
        await other.call(ping(), 0)
        assert not got.done()
        await other.call(produce(records(b"a", timestamp=T0 + WEEK_MS)), 9)
        _, response = await got
        assert values(only(response).records) == [b"a"]


async def test_checkpoints_are_written_in_real_time() -> None:
    clock, waits = VirtualClock(asyncio.get_running_loop()), ManualClock()
    clock.freeze()
    files = MemoryFiles(lambda: T0 * 1_000_000)
    state = BrokerState.open(OPTIONS, {}, APIS, clock, asyncio.get_running_loop(), files, waits)
    checkpoint = f"{DATA}/recovery-point-offset-checkpoint"
    state.topics.create("t", 1, {}, clock.now_ms())
    await clock.advance(DAY_MS, state.settle)
    assert not files.exists(checkpoint)
    waits.advance(60_000)
    await state.settle()
    assert files.exists(checkpoint)
    state.begin_stop()
    await state.finish_appends(5)
    state.close()


@pytest.mark.parametrize("moved_on", [False, True])
async def test_failed_transaction_marker_is_retried(moved_on: bool) -> None:
    """In real time, by the next sweep during an advance, and then with growing delays; no timeout gives up."""
    clock, waits = VirtualClock(asyncio.get_running_loop()), ManualClock()
    clock.freeze()
    files = MemoryFiles(lambda: T0 * 1_000_000)
    state = BrokerState.open(OPTIONS, {}, APIS, clock, asyncio.get_running_loop(), files, waits)
    state.topics.create("t", 1, {}, clock.now_ms())
    transactions = state.transactions
    owner = transactions.init_producer_id("x", timeout_ms=60_000)
    assert not isinstance(owner, asyncio.Future)
    of_x = "x", owner.producer_id, owner.producer_epoch
    transactions.add_partitions(*of_x, [("t", 0)], client_version=0)
    partition = state.topics.partition("t", 0)
    data = batch.build(
        [batch.Record(0, T0, None, b"x")],
        batch.BatchFields(
            producer_id=owner.producer_id, producer_epoch=owner.producer_epoch, base_sequence=0, transactional=True
        ),
    )
    partition.append(data, clock.now_ms(), 9)
    requested: list[int] = []

    def refuse(*_: Any, **__: Any) -> None:
        requested.append(clock.now_ms())
        raise StorageError("no space left on device")

    with mock.patch.object(PartitionLog, "append_marker", side_effect=refuse):
        transactions.end(*of_x, committed=True, client_version=0)
        await clock.advance(3 * MINUTE_MS, state.settle)  # the world's sweep
        assert len(requested) == 2
        await clock.advance(WEEK_MS, state.settle)
        assert 100 < len(requested) < 300  # of 3,360 sweeps
        tried = len(requested)
        waits.advance(RETRY_MS)
        assert len(requested) == tried + 1
    now_ms = clock.now_ms()
    if moved_on:
        await clock.advance(2 * HOUR_MS, state.settle)
    else:
        waits.advance(RETRY_MS)
    (marked,) = [header for _, header in formats.headers(partition.log.read(1, 1 << 20).records)]
    assert (now_ms < marked.max_timestamp <= now_ms + 2 * HOUR_MS) if moved_on else marked.max_timestamp == now_ms
    state.begin_stop()
    await state.finish_appends(5)
    state.close()


# The whole broker


async def test_members_survive_an_advance_with_keep_members() -> None:
    async with moved() as broker:
        await broker.topic("t", 1, {"retention.ms": str(HOUR_MS)})
        client = await broker.client()
        await client.call(produce(records(b"a")), 9)
        joined = await member(broker)
        result = await broker.advance(DAY_MS, keep_members=True)
        assert (result.now_ms, result.is_frozen) == (T0 + DAY_MS, True)
        assert broker.log("t").log_start_offset == 1
        group = broker.state.groups.group("g")
        assert group is not None and list(group.members) == [joined.member_id]
        await broker.advance(44_999)
        assert broker.state.groups.group("g") is group
        await broker.advance(1)
        group = broker.state.groups.group("g")
        assert group is not None and not group.members


async def test_heartbeat_during_an_advance_keeps_the_member() -> None:
    """Clients run in real time: heartbeats and joins can arrive during an advance."""
    async with moved() as broker:
        await broker.topic("t")
        first = await member(broker, session_timeout_ms=300_000)
        codes, joining = [], []

        def beat() -> None:
            where: dict[str, Any] = {"member_id": first.member_id, "instance_id": None, "generation_id": 1}
            codes.append(broker.state.groups.heartbeat("g", **where))

        broker.clock.call_at(T0 + HOUR_MS, beat)
        broker.clock.call_at(T0 + 2 * HOUR_MS, lambda: joining.append(asyncio.create_task(member(broker))))
        broker.clock.call_at(T0 + 3 * HOUR_MS, beat)
        await broker.advance(DAY_MS, keep_members=True)
        assert codes == [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]
        group = broker.state.groups.group("g")
        assert group is not None and first.member_id in group.members and len(group.members) == 2
        await broker.advance(59_999)
        assert first.member_id in broker.state.groups.group("g").members  # type: ignore[union-attr]
        await broker.advance(1)  # the rebalance's time is over
        assert first.member_id not in broker.state.groups.group("g").members  # type: ignore[union-attr]
        assert (await joining[0]).error is ErrorCode.NONE


async def test_queued_advance_keeps_members_until_its_own_end() -> None:
    async with moved() as broker:
        joined = await member(broker, session_timeout_ms=45_000)
        move = broker.control.advance
        await asyncio.gather(move(44_000), move(DAY_MS, keep_members=True))
        assert broker.clock.now_ms() == T0 + DAY_MS + 44_000
        await broker.advance(44_999)
        group = broker.state.groups.group("g")
        assert group is not None and list(group.members) == [joined.member_id]
        await broker.control.set(T0)  # before the end of the move, which is over
        where: dict[str, Any] = {"member_id": joined.member_id, "instance_id": None, "generation_id": 1}
        assert broker.state.groups.heartbeat("g", **where) is ErrorCode.NONE
        await broker.advance(45_000)
        group = broker.state.groups.group("g")
        assert group is not None and not group.members


async def test_clock_is_frozen_set_and_run() -> None:
    async with moved() as broker:
        await broker.topic("t", 1, {"message.timestamp.type": "LogAppendTime"})
        client = await broker.client()
        control = broker.control

        async def stamp() -> int:
            got = await client.call(produce(records(b"a", timestamp=5)), 9)
            return only(got).log_append_time_ms

        assert await stamp() == T0 == (await control.state()).now_ms
        await control.set(T0 - DAY_MS)
        assert await stamp() == T0 - DAY_MS
        result = await control.run()
        assert not result.is_frozen and abs(result.now_ms - (T0 - DAY_MS)) < 60_000
        while (later := await stamp()) == T0 - DAY_MS:
            await asyncio.sleep(0)
        assert 0 < later - (T0 - DAY_MS) < 60_000
        result = await control.advance(DAY_MS)
        assert not result.is_frozen and result.now_ms >= T0
        result = await control.freeze()
        assert result.is_frozen and result.now_ms == (await control.state()).now_ms == await stamp()
        result = await control.set(LATEST_MS)
        assert result.now_ms == LATEST_MS == await stamp()


async def test_invalid_times_are_refused() -> None:
    async with moved() as broker:
        control = broker.control
        with pytest.raises(OperationError, match="advanced by 0 ms or more, not by -1"):
            await control.advance(-1)
        for ms in (-1, LATEST_MS + 1):
            with pytest.raises(OperationError, match="is not a time between 1970 and 9999"):
                await control.set(ms)
        with pytest.raises(OperationError, match="is not a time between"):
            await control.advance(LATEST_MS)
        assert (await control.state()).now_ms == T0


async def test_machine_clock_refuses_changes(tmp_path: Path) -> None:
    async with running(tmp_path, clock=ManualClock()) as broker:
        control = ClockControl(broker.running)
        for work in (control.state, control.freeze, control.run):
            with pytest.raises(OperationError, match="uses the machine's clock"):
                await work()
        assert broker.state.waits is broker.state.clock


async def test_clock_advances_while_clients_keep_producing() -> None:
    async with moved() as broker:
        await broker.topic("t", 1, {"flush.messages": "1", "retention.ms": "0"})
        stop = asyncio.Event()

        async def write(client: Client) -> None:
            while not stop.is_set():
                await client.call(produce(records(b"a")), 9)

        writers = [asyncio.create_task(write(await broker.client())) for _ in range(4)]
        while broker.log("t").log_end_offset < 8:
            await asyncio.sleep(0)
        before = broker.log("t").log_end_offset
        await asyncio.wait_for(broker.control.advance(6 * MINUTE_MS), PATIENCE_S)
        assert broker.log("t").log_start_offset >= before
        stop.set()
        await asyncio.gather(*writers)


async def test_settle_waits_for_running_appends_and_syncs() -> None:
    """Also for responses that wait for a sync."""
    async with moved() as broker:
        await broker.topic("t", 1, {"flush.messages": "1"})
        client: Client = await broker.client()
        await client.send(produce(records(b"a")), 9)
        while not broker.log("t").log_end_offset:
            await asyncio.sleep(0)
        await broker.state.settle()
        assert broker.state.durability.is_idle and broker.log("t").high_watermark == 1
        await client.receive()
