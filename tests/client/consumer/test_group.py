"""Consumers in groups: joins, rebalances with unprocessed records, commits, leaving, groups with other clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.client.consumer.consumer import OffsetAndMetadata
from ottla.client.net.errors import ClientClosed, ClientError, KafkaError, UnsupportedVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla_testing.client.grouped import group, member_of, members, running, until
from ottla_testing.client.reading import consumer_of, read, values, write
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

WITH_GROUPS = ("0.9", "0.10.2", "0.11", "2.8", "3.9", "4.3", "ottla")


@each("release", WITH_GROUPS, strided=True)
async def test_group_shares_commits_and_continues_in_every_release(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release) as broker:
        await broker.topic("t", 2)
        write(broker, b"a0", b"a1", b"a2")
        write(broker, b"b0", b"b1", b"b2", partition=1)
        async with member_of(broker) as one:
            assert sorted(filter(None, await values(one, 6))) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
            assert one.assignment() == [("t", 0), ("t", 1)]
            await one.commit({("t", 0): 2, ("t", 1): OffsetAndMetadata(1, "why")})
            found = await one.committed([("t", 0), ("t", 1)])
            assert [(at.offset, at.metadata) for at in found.values() if at] == [(2, ""), (1, "why")]
            reading = asyncio.ensure_future(read(one, 1))
            async with member_of(broker) as two:
                await until(lambda: len(two.assignment()) == 1)
                await until(lambda: len(one.assignment()) == 1)
                assert sorted(one.assignment() + two.assignment()) == [("t", 0), ("t", 1)]
                rest = [*await reading, *await read(one, 0), *await read(two, 1)]
                assert {(r.partition, r.offset) for r in rest} == {(0, 2), (1, 1)}
            await until(lambda: len(members(broker)) == 1)  # one has left


async def test_positions_are_committed_automatically(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b", b"c", b"d")
        one = member_of(broker, enable_auto_commit=True, auto_commit_interval_ms=10)
        await one.start()
        assert await values(one, 2) == [b"a", b"b"]

        def committed() -> Any:
            return broker.state.groups.offsets("g").get(("t", 0))

        await until(committed)
        await asyncio.sleep(0.05)
        assert committed().offset == 1  # the application has not returned from processing b
        await one.getone()
        await until(lambda: committed().offset == 2)
        await one.stop()
        assert committed().offset == 3  # c is processed, since the consumer is stopped
        async with member_of(broker) as two:
            assert await values(two, 1) == [b"d"]
        assert committed().offset == 3  # two has no automatic commits


async def test_rebalance_waits_for_a_member_with_unprocessed_records(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        write(broker, b"a", b"b", b"c", b"d")
        async with member_of(broker, enable_auto_commit=True) as one:
            assert await values(one, 1) == [b"a"]
            async with member_of(broker) as two:
                await until(lambda: len(members(broker)) == 2)
                await asyncio.sleep(0.1)
                assert one.assignment() == [("t", 0), ("t", 1)] and not two.assignment()
                await one.commit({("t", 0): 1})  # commits are still possible
                more = asyncio.ensure_future(read(one, 4))
                await until(lambda: two.assignment() and len(one.assignment()) == 1)
                reader, other = (one, two) if one.assignment() == [("t", 0)] else (two, one)
                if reader is two:
                    more.cancel()
                    assert await values(two, 3) == [b"b", b"c", b"d"]
                else:
                    write(broker, b"e")
                    assert [record.value for record in await more] == [b"b", b"c", b"d", b"e"]
                assert other.assignment() == [("t", 1)]


async def test_member_exceeding_max_poll_interval_leaves_and_may_return(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with member_of(broker, max_poll_interval_ms=100) as one:
            assert await values(one, 1) == [b"a"]
            await until(lambda: not members(broker))
            with pytest.raises(KafkaError) as refused:
                await one.commit()
            assert refused.value.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
            assert await values(one, 2) == [b"a", b"b"]  # nothing was committed: from the start again
            assert len(members(broker)) == 1


async def test_commit_of_an_old_generation_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with member_of(broker, heartbeat_interval_ms=40_000) as one:
            assert await values(one, 1) == [b"a"]
            (member,) = members(broker)
            client = await broker.client()
            await client.call(LeaveGroupRequest(group_id="g", member_id=member.member_id), 0)
            with pytest.raises(KafkaError) as refused:
                await one.commit()
            assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await values(one, 2) == [b"a", b"b"]  # it has rejoined
            await one.commit()
            result = (await one.committed([("t", 0)]))["t", 0]
            assert result is not None and result.offset == 2


async def test_member_forgotten_by_the_coordinator_rejoins(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        async with member_of(broker) as one:
            waiting = asyncio.ensure_future(read(one, 1))
            await until(lambda: one.assignment())
            first = members(broker)[0].member_id
            client = await broker.client()
            await client.call(LeaveGroupRequest(group_id="g", member_id=first), 0)
            await until(lambda: members(broker) and members(broker)[0].member_id != first)
            write(broker, b"a")
            assert [record.value for record in await waiting] == [b"a"]


async def test_committed_offsets_are_requested_until_the_coordinator_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with member_of(broker) as one:
            assert await values(one, 2) == [b"a", b"b"]
            await one.commit()
            where = GROUP_OFFSETS_TOPIC, broker.state.groups.partition_of("g")
            broker.state.topology.take_offline(*where)
            fetching = asyncio.ensure_future(one.committed([("t", 0)]))
            await broker.settle()
            assert not fetching.done()
            broker.state.topology.bring_online(*where)
            result = (await fetching)["t", 0]
            assert result is not None and result.offset == 2


async def test_static_member_returns_without_a_rebalance(tmp_path: Path) -> None:
    async with running(tmp_path, "3.9") as broker:
        await broker.topic("t", 2)
        write(broker, b"a", b"b")
        one = member_of(broker, group_instance_id="first")
        await one.start()
        assert await values(one, 1) == [b"a"]
        await one.commit()
        generation = group(broker).generation_id
        await one.stop()
        assert len(members(broker)) == 1  # it has not left
        async with member_of(broker, group_instance_id="first") as again:
            assert await values(again, 1) == [b"b"]
            assert again.assignment() == [("t", 0), ("t", 1)]
            assert group(broker).generation_id == generation
            # Another member with the same instance id fences the first one.
            async with member_of(broker, group_instance_id="first") as third:
                assert await values(third, 1) == [b"b"]
                with pytest.raises(KafkaError) as fenced:
                    await read(again, 9)
                assert fenced.value.code == ErrorCode.FENCED_INSTANCE_ID
    async with running(tmp_path / "old", "2.0") as broker:
        await broker.topic("t")
        async with member_of(broker, group_instance_id="first") as one:
            with pytest.raises(UnsupportedVersion, match="static"):
                await read(one, 1)


async def test_new_partitions_and_topics_are_assigned(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        options: dict[str, Any] = {"metadata_max_age_ms": 50, "allow_auto_create_topics": False}
        async with member_of(broker, "t", "later", **options) as one:
            waiting = asyncio.ensure_future(read(one, 2))
            await until(lambda: one.assignment() == [("t", 0)])
            await broker.topic("later", 2)
            await until(lambda: len(one.assignment()) == 3)
            write(broker, b"x", topic="later", partition=1)
            write(broker, b"y")
            assert {(r.topic, r.value) for r in await waiting} == {("later", b"x"), ("t", b"y")}


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
async def test_group_is_shared_with_aiokafka(assignor: str, tmp_path: Path) -> None:
    async with running(tmp_path, "3.9") as broker:
        await broker.topic("t", 3)
        for partition in range(3):
            write(broker, b"a", b"b", partition=partition)
        async with member_of(broker, assignor=assignor) as ours:
            reading = asyncio.ensure_future(read(ours, 6))
            await reading
            await ours.commit()
            back = asyncio.ensure_future(read(ours, 1))  # polls, so that a rebalance need not wait
            theirs = AIOKafkaConsumer(
                "t",
                bootstrap_servers=f"127.0.0.1:{broker.ports[0]}",
                group_id="g",
                heartbeat_interval_ms=20,
                retry_backoff_ms=10,
            )
            await theirs.start()
            try:
                await until(lambda: theirs.assignment() and 0 < len(ours.assignment()) < 3)
                shared = [(tp.topic, tp.partition) for tp in theirs.assignment()]
                assert sorted(shared + ours.assignment()) == [("t", 0), ("t", 1), ("t", 2)]
                for partition in range(3):
                    write(broker, b"c%d" % partition, partition=partition)
                async with asyncio.timeout(PATIENCE_S):
                    found = [(await theirs.getone()) for _ in shared]
                assert {(r.partition, r.value) for r in found} == {(p, b"c%d" % p) for _, p in shared}
                assert (await back)[0].offset == 2
            finally:
                await theirs.stop()
            # The others have left: all partitions return to ours, from the committed offsets.
            back = asyncio.ensure_future(read(ours, 1))
            await until(lambda: len(ours.assignment()) == 3)
            await back


async def test_offsets_are_committed_without_membership(tmp_path: Path) -> None:
    for release in ("0.8.2", "ottla"):
        async with running(tmp_path / release, release) as broker:
            await broker.topic("t")
            write(broker, b"a", b"b", b"c")
            options: dict[str, Any] = {"assign": [("t", 0)], "group": "g"}
            async with consumer_of(broker, **options) as one:
                assert await values(one, 2) == [b"a", b"b"]
                assert await one.committed([("t", 0)]) == {("t", 0): None}
            async with consumer_of(broker, **options, enable_auto_commit=False) as two:
                assert await values(two, 1) == [b"c"]  # the first one has committed at its end
                await two.commit({("t", 0): 0})
            async with consumer_of(broker, **options) as three:
                assert await values(three, 1) == [b"a"]


async def test_broker_without_group_membership_raises_unsupported_version(tmp_path: Path) -> None:
    async with running(tmp_path, "0.8.2") as broker:
        await broker.topic("t")
        async with member_of(broker) as one:
            with pytest.raises(UnsupportedVersion, match=r"before Kafka 0\.9"):
                await read(one, 1)


async def test_end_of_membership_is_raised_by_the_next_read(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"group.initial.rebalance.delay.ms": "0"}) as broker:
        await broker.topic("t")
        async with member_of(broker, session_timeout_ms=1000) as one:
            for _ in range(2):
                with pytest.raises(KafkaError) as refused:
                    await read(one, 1)
                assert refused.value.code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_deleted_committed_offset_is_reset_by_the_policy(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with member_of(broker, offset_reset="none") as one:
            for _ in range(2):
                with pytest.raises(KafkaError, match="no committed offset") as refused:
                    await read(one, 1)
                assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
            one.seek("t", 0, 1)
            assert await values(one, 1) == [b"b"]


async def test_stopped_member_refuses_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one = member_of(broker)
        await one.start()
        waiting = asyncio.ensure_future(one.getone())
        await until(lambda: one.assignment())
        await one.stop()
        with pytest.raises(ClientClosed):
            await waiting
        assert not members(broker)
        with pytest.raises(ClientError):
            await one.commit()
        await one.stop()
