"""ShareFetch and ShareAcknowledge through the wire: sessions, acquisition, waits, errors, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.metadata.topics import SHARE_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla_testing.broker.harness import Broker, Closed, only, produce, records, running
from ottla_testing.broker.held_syncs import begun, holding, still_waits
from ottla_testing.broker.sharing import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    configure,
    initialize,
    initializing,
    shared,
    written,
)
from ottla_testing.each import each

LOCK_MS = 30_000
SMALL = {"share.coordinator.state.topic.num.partitions": "2"}
NOT_FOUND, WRONG_EPOCH = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH
STATE, INVALID = ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST


@each("version", [1, 2])
async def test_records_are_acquired_acknowledged_and_done(version: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1", b"2")
        a, b = await Member.join(broker), await Member.join(broker, "b")
        assert await a.fetch(p, version=version) == {p: ([(0, 2, 1)], {0: b"0", 1: b"1", 2: b"2"})}
        assert a.response.acquisition_lock_timeout_ms == LOCK_MS
        assert await b.fetch(p, version=version) == {} and b.response.error_code == 0
        assert await a.acknowledge({p: [(0, 1, [ACCEPT])]}, version=version) == {p: 0}
        assert await a.acknowledge({p: [(2, 2, [RELEASE])]}, version=version) == {p: 0}
        assert await b.fetch(version=version) == {p: ([(2, 2, 2)], {2: b"2"})}
        assert await b.fetch(acks={p: [(2, 2, [REJECT])]}, version=version) == {}
        assert b.codes == {p: (0, 0)}
        assert await a.fetch(version=version) == {}
        await written(broker, b"3")
        assert await a.fetch(version=version) == {p: ([(3, 3, 1)], {3: b"3"})}


async def test_release_4_1_shares_with_its_feature_and_4_0_never(tmp_path: Path) -> None:
    sharing = SMALL | {"ottla.features": "share.version=1"}
    for release, overrides, works in (("4.1", sharing, True), ("4.1", SMALL, False), ("4.0", {}, None)):
        async with running(tmp_path / f"{release}-{works}", release=release, overrides=overrides) as broker:
            member = await Member.join(broker)
            topic_id = await broker.topic("t")
            await written(broker, b"0")
            if works is None:
                with pytest.raises(Closed):
                    await member.fetch((topic_id, 0), version=1)
                continue
            if works:
                await initialize(await broker.client(), (topic_id, 0), start=0)
            fetched = await member.fetch((topic_id, 0), version=1)
            assert member.response.error_code == (0 if works else ErrorCode.UNSUPPORTED_VERSION)
            assert bool(fetched) == works


async def test_fetch_waits_for_records(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker)
        a = await Member.join(broker)
        fetching = asyncio.create_task(a.fetch(p, max_wait_ms=1_000_000))
        await broker.settle()
        assert not fetching.done()
        await written(broker, b"0")
        assert await fetching == {p: ([(0, 0, 1)], {0: b"0"})}


async def test_fetch_waits_for_min_bytes_or_its_time(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker)
        a = await Member.join(broker)
        fetching = asyncio.create_task(a.fetch(p, max_wait_ms=5000, min_bytes=100_000))
        await broker.settle()
        await written(broker, b"0")
        await broker.settle()
        assert not fetching.done()
        broker.clock.advance(5000)
        assert await fetching == {p: ([(0, 0, 1)], {0: b"0"})}


@each("way", ["release", "expire", "close", "disconnect"])
async def test_waiting_fetch_gets_records_that_become_available(way: str, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a, b = await Member.join(broker), await Member.join(broker, "b")
        await a.fetch(p)
        fetching = asyncio.create_task(b.fetch(p, max_wait_ms=1_000_000))
        await broker.settle()
        assert not fetching.done()
        if way == "release":
            assert await a.acknowledge({p: [(0, 0, [RELEASE])]}) == {p: 0}
        elif way == "expire":
            broker.clock.advance(LOCK_MS)
        elif way == "close":
            assert await a.acknowledge({}, epoch=-1) == {}
        else:
            a.client.close()
        assert await fetching == {p: ([(0, 0, 2)], {0: b"0"})}


async def test_acknowledgement_after_the_lock_expired_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        broker.clock.advance(LOCK_MS)
        assert await a.acknowledge({p: [(0, 0, [ACCEPT])]}) == {p: STATE}
        assert await a.fetch() == {p: ([(0, 0, 2)], {0: b"0"})}


async def test_renewed_lock(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        broker.clock.advance(LOCK_MS - 1)
        assert await a.acknowledge({p: [(0, 0, [RENEW])]}) == {p: INVALID}, "the request is not a renewal"
        assert await a.acknowledge({p: [(0, 0, [RENEW])]}, renews=True) == {p: 0}
        broker.clock.advance(LOCK_MS - 1)
        nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
        await a.fetch(acks={p: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing)
        assert a.codes == {p: (0, 0)}
        broker.clock.advance(LOCK_MS - 1)
        assert await a.acknowledge({p: [(0, 0, [ACCEPT])]}) == {p: 0}
        for name in nothing:
            await a.fetch(is_renew_ack=True, **{**nothing, name: 1})
            assert a.response.error_code == INVALID
        await configure(broker, share_renew_acknowledge_enable="false")
        await written(broker, b"1")
        await a.fetch()
        assert await a.acknowledge({p: [(1, 1, [RENEW])]}, renews=True) == {p: STATE}


async def test_strict_limit_of_records(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1", b"2")
        a = await Member.join(broker)
        assert await a.fetch(p, max_records=2, share_acquire_mode=1) == {p: ([(0, 1, 1)], {0: b"0", 1: b"1"})}
        assert await a.fetch(max_records=1) == {p: ([(2, 2, 1)], {2: b"2"})}


async def test_session_epochs(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1")
        a = await Member.join(broker)
        for epoch in (1, -1):
            await a.fetch(p, epoch=epoch)
            assert a.response.error_code == NOT_FOUND
            await a.acknowledge({p: [(0, 0, [ACCEPT])]}, epoch=epoch)
            assert a.response.error_code == NOT_FOUND
        await a.fetch(epoch=0, acks={p: [(0, 0, [ACCEPT])]})
        assert a.response.error_code == INVALID
        await a.fetch(p)
        for epoch in (2, 5):
            await a.fetch(epoch=epoch)
            assert a.response.error_code == WRONG_EPOCH
        await a.acknowledge({p: [(0, 0, [ACCEPT])]}, epoch=0)
        assert a.response.error_code == WRONG_EPOCH
        a.epoch = 1
        assert await a.acknowledge({p: [(0, 0, [ACCEPT])]}) == {p: 0}
        await a.fetch()
        assert a.response.error_code == 0 and a.epoch == 3
        a.epoch = 0
        await a.fetch(p)
        assert a.response.error_code == 0, "a full request opens the session again"
        assert await a.acknowledge({p: [(1, 1, [ACCEPT])]}, epoch=-1) == {p: 0}, "the records were not released"
        await a.fetch()
        assert a.response.error_code == NOT_FOUND


async def test_session_belongs_to_its_connection(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        other = Member(await broker.client())
        other.epoch = 1
        await other.fetch()
        assert other.response.error_code == 0, "any connection continues it"
        a.client.close()
        await broker.settle()
        await other.fetch()
        assert other.response.error_code == NOT_FOUND
        assert len(broker.state.share_partitions) == 0, "the group has no session left"


async def test_session_adds_and_forgets_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, partitions=2)
        q = p[0], 1
        a = await Member.join(broker)
        await a.fetch(p)
        assert a.codes == {p: (0, 0)}, "a full response has all that were read"
        await a.fetch(q)
        assert a.codes == {q: (0, 0)}, "a new one is in one response"
        await a.fetch()
        assert a.codes == {}
        await a.fetch(forget=[p])
        await written(broker, b"0")
        await written(broker, b"1", partition=1)
        assert await a.fetch() == {q: ([(0, 0, 1)], {0: b"1"})}


async def test_limit_of_sessions(tmp_path: Path) -> None:
    one = {"group.share.max.share.sessions": "1", "group.share.max.size": "1"}  # no more members than sessions
    async with running(tmp_path, overrides=SMALL | one) as broker:
        p = await shared(broker, b"0")
        a, b = await Member.join(broker), await Member.join(broker, "b")
        await a.fetch(p)
        fetching = asyncio.create_task(b.fetch(p, max_wait_ms=700))
        await broker.settle()
        assert not fetching.done()
        broker.clock.advance(700)
        await fetching
        assert b.response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await a.acknowledge({}, epoch=-1)
        assert await b.fetch(p) == {p: ([(0, 0, 2)], {0: b"0"})}


async def test_errors_of_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        nowhere, beyond = (b"x" * 16, 0), (p[0], 7)
        a = await Member.join(broker)
        await a.fetch(p, nowhere, beyond)
        assert a.codes == {p: (0, 0), nowhere: (100, 0), beyond: (3, 0)}
        await a.fetch()
        assert a.codes == {nowhere: (100, 0), beyond: (3, 0)}
        given = [(0, 0, [ACCEPT])]
        assert await a.acknowledge({p: given, nowhere: given, beyond: given}) == {p: 0, nowhere: 100, beyond: 3}
        await a.fetch(acks={p: given, nowhere: given})
        assert a.codes == {p: (0, 0), nowhere: (100, 100), beyond: (3, 0)}, "offsets that are done are ignored"


async def test_uninitialized_share_partition(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        topic_id = await broker.topic("t")
        a = await Member.join(broker)
        await a.fetch((topic_id, 0))
        assert a.codes == {(topic_id, 0): (ErrorCode.UNKNOWN_SERVER_ERROR, 0)}
        assert await a.acknowledge({(topic_id, 0): [(0, 0, [ACCEPT])]}) == {(topic_id, 0): 3}


@each(
    "given",
    [
        [(1, 0, [1])],
        [(0, 1, [])],
        [(0, 2, [1, 1])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(1, 1, [1]), (0, 0, [1])],
        [(-1, 0, [1]), (-5, -2, [1])],
    ],
)
async def test_malformed_acknowledgements(given: list[tuple[int, int, list[int]]], tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1", b"2")
        a = await Member.join(broker)
        await a.fetch(p)
        assert await a.acknowledge({p: given}) == {p: INVALID}
        await a.fetch(acks={p: given})
        assert a.codes == {p: (0, INVALID)}
        assert await a.acknowledge({p: [(0, 2, [1])]}) == {p: 0}


async def test_acknowledgement_types_of_version_1(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        assert await a.acknowledge({p: [(0, 0, [RENEW])]}, version=1) == {p: INVALID}


@each("name", ["", "x" * 37])
async def test_invalid_member(name: str, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker)
        a = await Member.join(broker, name)
        await a.fetch(p)
        assert a.response.error_code == INVALID
        await a.acknowledge({p: []})
        assert a.response.error_code == INVALID


async def test_missing_group_and_member(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker)
        a: Any = await Member.join(broker)
        a.group = None
        await a.fetch(p)
        assert a.response.error_code == INVALID
        a.group, a.name = GROUP, None
        await a.acknowledge({p: []})
        assert a.response.error_code == INVALID


# --- configs


@each(("reset", "first"), [("latest", 3), ("earliest", 0), ("by_duration:PT0S", None), ("by_duration:P1000DT1H", 0)])
async def test_start_offset_of_a_new_group(reset: str, first: int | None, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1", b"2", start=-1)
        await configure(broker, share_auto_offset_reset=reset)
        broker.clock.advance(1)
        a = await Member.join(broker)
        await a.fetch(p)
        if first is None:
            assert a.codes == {p: (ErrorCode.OFFSET_NOT_AVAILABLE, 0)}
            return
        led = next(iter(broker.state.share_partitions._led.values()))  # pyright: ignore[reportPrivateUsage]
        assert led.machine.start_offset == first


async def test_configs_of_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        await configure(broker, share_delivery_count_limit="2", share_record_lock_duration_ms="20000")
        a = await Member.join(broker)
        assert await a.fetch(p) != {} and a.response.acquisition_lock_timeout_ms == 20_000
        broker.clock.advance(20_000)
        assert await a.fetch() == {p: ([(0, 0, 2)], {0: b"0"})}
        broker.clock.advance(20_000)
        assert await a.fetch() == {}, "archived after the second delivery"


async def test_limit_of_records_in_flight(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker)
        await configure(broker, share_partition_max_record_locks="100")
        for _ in range(3):
            await written(broker, *[b""] * 60)
        a = await Member.join(broker)
        assert (await a.fetch(p))[p].ranges == [(0, 119, 1)]
        assert await a.fetch() == {}
        await a.acknowledge({p: [(0, 59, [ACCEPT])]})
        assert (await a.fetch())[p].ranges == [(120, 179, 1)]


async def test_read_committed_leaves_aborted_records_out(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        partition = broker.state.topics.partition("t", 0)
        client = await broker.client()
        for number, committed in enumerate((False, True, None)):
            data = records(b"x", producer_id=50 + number, producer_epoch=0, base_sequence=0, transactional=True)
            now_ms = broker.clock.now_ms()
            guard = partition.log.verify(50 + number, 0, now_ms=now_ms)
            partition.log.append_prepared(partition_prepared(partition, data, now_ms), now_ms=now_ms, guard=guard)
            if committed is not None:
                partition.log.append_marker(
                    50 + number, 0, committed=committed, coordinator_epoch=0, now_ms=broker.clock.now_ms()
                )
        await written(broker, b"6", client=client)
        a = await Member.join(broker)
        await configure(broker, share_isolation_level="read_committed")
        assert await a.fetch(p) == {p: ([(0, 0, 1), (2, 4, 1)], {0: b"0", 3: b"x"})}, "up to the last stable offset"
        await configure(broker, share_isolation_level="read_uncommitted")
        assert (await a.fetch())[p].values == {5: b"x", 6: b"6"}


def partition_prepared(partition: Any, data: bytearray, now_ms: int) -> Any:
    from ottla.protocol.records import validate

    log = partition.log
    return validate.prepare(data, log.config.rules, now_ms, 9, log.log_end_offset)


# --- the log


async def test_deleted_records_are_skipped(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0", b"1")
        await written(broker, b"2", b"3")
        a = await Member.join(broker)
        made = DeleteRecordsRequest.DeleteRecordsTopic
        request = DeleteRecordsRequest(
            topics=[made(name="t", partitions=[made.DeleteRecordsPartition(partition_index=0, offset=2)])],
            timeout_ms=1000,
        )
        response = await (await broker.client()).call(request, 2)
        assert response.topics[0].partitions[0].error_code == 0
        await a.fetch(p)
        assert a.codes == {p: (0, 0)}, "the start offset has moved"
        assert await a.fetch() == {p: ([(2, 3, 1)], {2: b"2", 3: b"3"})}


async def test_deleted_topic(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        fetching = asyncio.create_task(a.fetch(max_wait_ms=1_000_000))
        await broker.settle()
        broker.state.topics.delete(broker.state.topics.named("t"), broker.clock.now_ms())
        await fetching
        await a.fetch()
        assert a.codes == {p: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
        client = await broker.client()
        made = ReadShareGroupStateSummaryRequest.ReadStateSummaryData
        request = ReadShareGroupStateSummaryRequest(
            group_id=GROUP,
            topics=[made(topic_id=p[0], partitions=[made.PartitionData(partition=0, leader_epoch=-1)])],
        )
        result = (await client.call(request, 1)).results[0].partitions[0]
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not any(shard.states for shard in broker.state.share_state._shards.values())  # pyright: ignore[reportPrivateUsage]


# --- stored state


async def read_state(broker: Broker, p: tuple[bytes, int]) -> Any:
    made = ReadShareGroupStateRequest.ReadStateData
    request = ReadShareGroupStateRequest(
        group_id=GROUP, topics=[made(topic_id=p[0], partitions=[made.PartitionData(partition=p[1], leader_epoch=-1)])]
    )
    return (await (await broker.client()).call(request, 0)).results[0].partitions[0]


@each("killed", [False, True])
async def test_state_survives_a_restart(killed: bool, tmp_path: Path) -> None:
    values = [b"%d" % n for n in range(10)]
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, *values)
        a = await Member.join(broker)
        await a.fetch(p)
        assert await a.acknowledge({p: [(0, 1, [ACCEPT]), (3, 3, [ACCEPT]), (5, 6, [RELEASE]), (8, 8, [REJECT])]}) == {
            p: 0
        }
        state = await read_state(broker, p)
        assert [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.state_batches] == [
            (0, 1, 2, 1),
            (3, 3, 2, 1),
            (5, 6, 0, 1),
            (8, 8, 4, 1),
        ]
        if killed:  # nothing is written at the end, and connections are not closed in order
            for led in broker.state.share_partitions._led.values():  # pyright: ignore[reportPrivateUsage]
                led.machine.release = lambda member: pytest.fail("released")  # type: ignore[method-assign]
            broker.state.share_sessions.close_all()
    async with running(tmp_path, overrides=SMALL) as broker:
        a = await Member.join(broker)
        ranges = (await a.fetch(p))[p].ranges
        if killed:  # offsets 2, 4, 7 and 9 were acquired: their state was not stored
            assert ranges == [(2, 2, 1), (4, 4, 1), (5, 6, 2), (7, 7, 1), (9, 9, 1)]
        assert [offset for first, last, _ in ranges for offset in range(first, last + 1)] == [2, 4, 5, 6, 7, 9]


async def test_snapshots_and_pruning(tmp_path: Path) -> None:
    overrides = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
    }
    async with running(tmp_path, overrides=overrides) as broker:
        p = await shared(broker)
        a = await Member.join(broker)
        await a.fetch(p)
        for number in range(20):
            await written(broker, b"%d" % number)
            assert (await a.fetch())[p].ranges == [(number, number, 1)]
            assert await a.acknowledge({p: [(number, number, [ACCEPT])]}) == {p: 0}
        log = broker.log(SHARE_STATE_TOPIC)
        assert log.log_start_offset == 0 and log.log_end_offset == 21
        broker.clock.advance(300_000)
        assert 15 <= log.log_start_offset <= log.log_end_offset, "old records were deleted"
        config = broker.state.topics.named(SHARE_STATE_TOPIC).config
        assert config["cleanup.policy"] == ["delete"] and config["retention.ms"] == -1
    async with running(tmp_path, overrides=overrides) as broker:
        await written(broker, b"20")
        a = await Member.join(broker)
        assert (await a.fetch(p))[p].ranges == [(20, 20, 1)]


async def test_no_state_is_stored_without_a_persister(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={**SMALL, "group.share.persister.class.name": ""}) as broker:
        topic_id = await broker.topic("t")
        p = topic_id, 0
        a = await Member.join(broker)
        await a.fetch(p)
        await written(broker, b"0")
        assert (await a.fetch())[p].ranges == [(0, 0, 1)]
        assert await a.acknowledge({p: [(0, 0, [ACCEPT])]}) == {p: 0}
        assert broker.state.topics.get(SHARE_STATE_TOPIC) is None


# --- cluster


async def test_coordinator_of_a_share_partition(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        client = await broker.client()
        keys = [
            "g:AAAAAAAAAAAAAAAAAAAAAQ:0",
            "a:b:AAAAAAAAAAAAAAAAAAAAAQ:12",
            "g:AAAA:0",
            "g:0",
            ":AAAAAAAAAAAAAAAAAAAAAQ:0",
        ]
        response = await client.call(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6)
        assert [one.error_code for one in response.coordinators] == [0, 0, INVALID, INVALID, INVALID]
        assert broker.state.topics.get(SHARE_STATE_TOPIC) is not None
        response = await client.call(FindCoordinatorRequest(key_type=2, coordinator_keys=keys[:1]), 5)
        assert response.coordinators[0].error_code == INVALID


async def test_feature_disables_share_groups(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        p = await shared(broker, b"0")
        a = await Member.join(broker)
        await a.fetch(p)
        client = await broker.client()
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=2)
        request = UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update])
        assert (await client.call(request, 1)).error_code == 0
        await a.fetch()
        assert a.response.error_code == ErrorCode.UNSUPPORTED_VERSION
        await a.acknowledge({p: []})
        assert a.response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert len(broker.state.share_partitions) == len(broker.state.share_sessions) == 0
    async with running(tmp_path, overrides=SMALL) as broker:
        assert not broker.state.features.share_groups


async def test_another_leader_loads_the_share_partition_again(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, overrides=SMALL, brokers=2, clock=clock) as broker:
        topic_id = await broker.topic("t")
        p = topic_id, 0
        partition = broker.state.topics.partition("t", 0)
        nodes = broker.state.nodes.ids
        leader = nodes.index(partition.leader)
        client = await broker.client(leader)
        assert (await client.call(produce(records(b"0")), 9)).responses[0].partition_responses[0].error_code == 0
        broker.state.internal_topic(SHARE_STATE_TOPIC, clock.now_ms())
        for node in range(2):
            response = await (await broker.client(node)).call(initializing(p), 0)
            code = response.results[0].partitions[0].error_code
            assert code in (0, ErrorCode.NOT_COORDINATOR)
        a, other = await Member.join(broker, node=leader), await Member.join(broker, "b", node=1 - leader)
        assert (await a.fetch(p))[p].ranges == [(0, 0, 1)]
        await other.fetch(p)
        assert other.codes == {p: (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)}
        data = other.response.responses[0].partitions[0]
        assert data.current_leader.leader_id == partition.leader
        assert [one.node_id for one in other.response.node_endpoints] == [partition.leader]


async def test_acknowledgement_is_known_to_the_next_coordinator(tmp_path: Path) -> None:
    """It is in the log when that one loads it, but held back from consumers until the sync ends."""
    flushed = {"share.coordinator.state.topic.num.partitions": "1", "log.flush.interval.messages": "1"}
    async with holding(tmp_path, overrides=flushed, brokers=2) as (broker, syncs):
        syncs.let_all()
        p = await broker.topic("t", configs={"flush.messages": "1000"}), 0
        broker.state.internal_topic(SHARE_STATE_TOPIC, broker.clock.now_ms())
        for topic in ("t", SHARE_STATE_TOPIC):
            broker.state.topology.move_leader(topic, 0, 1)
        client = await broker.client(0)
        assert only(await client.call(produce(records(b"0")), 9)).error_code == 0
        assert (await client.call(initializing(p), 0)).results[0].partitions[0].error_code == 0
        a, b = await Member.join(broker, node=0), await Member.join(broker, "b", node=1)
        assert (await a.fetch(p))[p].ranges == [(0, 0, 1)]
        syncs.hold(SHARE_STATE_TOPIC)
        acknowledging = begun(a.acknowledge({p: [(0, 0, [ACCEPT])]}))
        await syncs.until(1)
        await still_waits(broker, acknowledging)
        for topic in (SHARE_STATE_TOPIC, "t"):
            broker.state.topology.move_leader(topic, 0, 2)
        syncs.let_all()
        assert await acknowledging == {p: 0}
        client = await broker.client(1)
        assert only(await client.call(produce(records(b"1")), 9)).error_code == 0
        found = await b.fetch(p)
        while not found:
            found = await b.fetch()
        assert found[p].ranges == [(1, 1, 1)]
