"""Members of the consumer protocol (KIP-848): joins, incremental rebalances, fencing, commits, static members, and
groups with members of the classic protocol.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.groups.classic.state import Group as ClassicGroup
from ottla.client import Consumer
from ottla.client.consumer.options import ConsumerOptions
from ottla.client.net.errors import ConfigError, KafkaError, UnsupportedVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla_testing.client.grouped import group, member_of, members, running, until
from ottla_testing.client.reading import read, values, write
from ottla_testing.each import each

QUICK = {
    "group.consumer.heartbeat.interval.ms": "20",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}


def consumer(broker: Any, *topics: str, **options: Any) -> Consumer:
    classic_only: dict[str, Any] = {"heartbeat_interval_ms": 3_000}
    return member_of(broker, *topics, **{"group_protocol": "consumer", **classic_only, **options})


def settings(release: str) -> dict[str, str]:
    has_interval = release not in ("3.9", "4.0")
    found = {name: value for name, value in QUICK.items() if has_interval or "assignment.interval" not in name}
    return found | ({"group.coordinator.rebalance.protocols": "classic,consumer"} if release == "3.9" else {})


@each("release", ["3.9", "4.0", "4.4", "ottla"], strided=True)
async def test_group_shares_commits_and_continues_in_releases_with_the_protocol(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release, settings(release)) as broker:
        await broker.topic("t", 2)
        write(broker, b"a0", b"a1", b"a2")
        write(broker, b"b0", b"b1", b"b2", partition=1)
        async with consumer(broker) as one:
            assert sorted(filter(None, await values(one, 6))) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
            assert one.assignment() == [("t", 0), ("t", 1)] and group(broker).kind == "consumer"
            await one.commit({("t", 0): 2, ("t", 1): 1})
            reading = asyncio.ensure_future(read(one, 1))
            async with consumer(broker) as two:
                await until(lambda: len(two.assignment()) == 1 and len(one.assignment()) == 1)
                assert sorted(one.assignment() + two.assignment()) == [("t", 0), ("t", 1)]
                (taken,) = two.assignment()
                again = await read(two, 1)  # what `one` has committed, in the partition that it gave away
                assert [(r.partition, r.offset) for r in again] == [(taken[1], 2 if taken[1] == 0 else 1)]
                write(broker, b"c", partition=1 - taken[1])
                assert [record.value for record in await reading] == [b"c"]  # the other one is not read again
            await until(lambda: len(members(broker)) == 1)  # two has left


async def test_partitions_are_revoked_when_their_records_are_processed_and_others_stay(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t", 2)
        write(broker, b"a", b"b")
        async with consumer(broker, enable_auto_commit=True) as one:
            assert await values(one, 1) == [b"a"]
            async with consumer(broker) as two:
                await until(lambda: len(members(broker)) == 2)
                await asyncio.sleep(0.1)
                assert one.assignment() == [("t", 0), ("t", 1)] and not two.assignment()
                await one.commit({("t", 0): 1})  # commits are still possible
                kept = one._fetcher.states.copy()  # type: ignore[union-attr]
                more = asyncio.ensure_future(read(one, 1))
                await until(lambda: two.assignment() and len(one.assignment()) == 1)
                (where,) = one.assignment()
                assert one._fetcher.states[where] is kept[where]  # type: ignore[union-attr]
                more.cancel()


async def test_fenced_member_joins_again_from_the_committed_offset(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with consumer(broker) as one:
            assert await values(one, 2) == [b"a", b"b"]
            await one.commit({("t", 0): 1})
            (member,) = members(broker)
            client = await broker.client()
            leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=-1)
            assert (await client.call(leaving, 1)).error_code == 0
            assert await values(one, 1) == [b"b"]
            assert [one.member_id for one in members(broker)] == [member.member_id]


async def test_commit_of_a_removed_member_is_refused_and_it_rejoins(tmp_path: Path) -> None:
    slow = QUICK | {"group.consumer.heartbeat.interval.ms": "10000"}
    async with running(tmp_path, "4.4", slow) as broker:
        await broker.topic("t")
        write(broker, b"a")
        async with consumer(broker) as one:
            assert await values(one, 1) == [b"a"]
            (member,) = members(broker)
            client = await broker.client()
            leaving = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member.member_id, member_epoch=-1)
            assert (await client.call(leaving, 1)).error_code == 0
            with pytest.raises(KafkaError) as refused:
                await one.commit()
            assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await values(one, 1) == [b"a"]
            await one.commit()


async def test_commit_with_the_epoch_before_a_heartbeat_in_flight_is_sent_again(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t", 4)
        write(broker, b"a")
        async with consumer(broker) as one:
            assert await values(one, 1) == [b"a"]
            for _ in range(20):  # each member that comes and goes changes the epoch
                async with consumer(broker):
                    await one.commit({("t", 0): 1})
                    await one.getmany(timeout_ms=20)
            assert one.group_metadata().generation > 20


async def test_member_exceeding_max_poll_interval_leaves_and_may_return(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with consumer(broker, max_poll_interval_ms=100) as one:
            assert await values(one, 1) == [b"a"]
            await until(lambda: not members(broker))
            with pytest.raises(KafkaError) as refused:
                await one.commit()
            assert refused.value.code == ErrorCode.REBALANCE_IN_PROGRESS
            assert await values(one, 2) == [b"a", b"b"]  # nothing was committed: from the start again
            assert len(members(broker)) == 1


async def test_static_member_returns_to_its_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t", 2)
        async with consumer(broker, group_instance_id="second") as two:
            reading = asyncio.ensure_future(read(two, 1))
            one = consumer(broker, group_instance_id="first")
            await one.start()
            await until(lambda: len(one.assignment()) == 1 and len(two.assignment()) == 1)
            before, epoch = one.assignment(), group(broker).epoch
            await one.stop()
            assert len(members(broker)) == 2  # it has not left
            async with consumer(broker, group_instance_id="first") as again:
                await until(again.assignment)
                assert again.assignment() == before and group(broker).epoch == epoch
                third = consumer(broker, group_instance_id="first")
                await third.start()
                with pytest.raises(KafkaError) as refused:
                    await read(third, 1)
                assert refused.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
                await third.stop()
            reading.cancel()


async def test_topic_created_later_is_assigned(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK | {"auto.create.topics.enable": "false"}) as broker:
        await broker.topic("t")
        async with consumer(broker, "t", "later") as one:
            reading = asyncio.ensure_future(read(one, 1))
            await until(one.assignment)
            await broker.topic("later", 2)
            await until(lambda: len(one.assignment()) == 3)
            write(broker, b"a", topic="later")
            assert [record.value for record in await reading] == [b"a"]


async def test_members_of_both_protocols_share_a_group(tmp_path: Path) -> None:
    async with running(tmp_path, "4.4", QUICK) as broker:
        await broker.topic("t", 2)
        async with member_of(broker) as classic:
            first = asyncio.ensure_future(read(classic, 1))
            await until(classic.assignment)
            async with consumer(broker) as one:
                second = asyncio.ensure_future(read(one, 1))
                await until(lambda: len(one.assignment()) == 1 and len(classic.assignment()) == 1)
                assert group(broker).kind == "consumer"
                assert sorted(one.assignment() + classic.assignment()) == [("t", 0), ("t", 1)]
                second.cancel()
            await until(lambda: isinstance(group(broker), ClassicGroup) and len(classic.assignment()) == 2)
            first.cancel()


async def test_broker_without_the_protocol_is_named(tmp_path: Path) -> None:
    async with running(tmp_path, "2.8", {}) as broker:
        await broker.topic("t")
        async with consumer(broker) as one:
            with pytest.raises(UnsupportedVersion, match=r"before Kafka 4\.0"):
                await read(one, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group_protocol": "consumer", "session_timeout_ms": 10_000}, "it is a config of the broker"),
        ({"group_protocol": "consumer", "assignor": "roundrobin"}, "it is a config of the broker"),
        ({"group_remote_assignor": "range"}, "needs group_protocol=consumer"),
        ({"group_protocol": "new"}, "must be one of classic, consumer"),
    ],
)
def test_options_of_the_other_protocol_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ConsumerOptions(group="g", **options)
