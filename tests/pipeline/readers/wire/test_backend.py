"""A backend over brokers: partitions, ends, timestamps; and offsets committed to a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.client import Consumer, Producer
from ottla.pipeline.backend import OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.offsets import MAX_PIECES
from ottla.pipeline.readers.wire import WireBackend, commit_offsets
from ottla.pipeline.readers.wire import backend as backend_module
from ottla_testing.each import each
from ottla_testing.pipeline.wire_world import NOW_MS, config, delete_below, wanted

RELEASES = ("0.8.2", "0.9", "0.10.0", "0.10.2", "0.11", "2.4", "3.9", "4.3", "ottla")


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(brokers=2) as running:
        yield running


@each("release", RELEASES, strided=True)
def test_partitions_ends_and_times(release: str) -> None:
    timed = release not in ("0.8.2", "0.9", "0.10.0")
    with Embedded(release=release) as broker, WireBackend(config(broker)) as backend:
        a, b = broker.create_topic("a", partitions=2), broker.create_topic("b")
        for n in range(5):
            broker.send(a, b"%d" % n, partition=1, timestamp_ms=NOW_MS + 10 * n)
        a0, a1, b0 = TopicPartition(a, 0), TopicPartition(a, 1), TopicPartition(b, 0)
        assert backend.partitions(Selection()) == [a0, a1, b0]
        assert backend.partitions(Selection(topics=(b, a))) == [a0, a1, b0]
        assert backend.partitions(Selection(pattern="a.*")) == [a0, a1]
        assert backend.partitions(Selection(pattern="none")) == []
        assert backend.partitions(Selection(assigned=(a1,))) == [a1]
        assert backend.earliest([a0, a1]) == {a0: 0, a1: 0}
        for committed in (False, True):
            assert backend.latest([a0, a1, b0], committed=committed) == {a0: 0, a1: 5, b0: 0}
        assert backend.latest([TopicPartition("none", 0), a1, TopicPartition(a, 7)], committed=False) == {a1: 5}
        assert backend.earliest([]) == {}
        for lookups, expected in (
            (Selection(topics=("none", a)), "topic 'none' does not exist"),
            (Selection(assigned=(a1, TopicPartition("none", 0))), "topic 'none' does not exist"),
            (Selection(assigned=(a1, TopicPartition(a, 2))), "partition a-2 does not exist"),
        ):
            with pytest.raises(ReadError, match=rf"{expected} \(brokers at 127.0.0.1"):
                backend.partitions(lookups)
        assert {one.name for one in broker.topics()} == {a, b}  # metadata requests created none
        if not timed:
            with pytest.raises(ReadError, match=r"before Kafka 0.10.1.*127.0.0.1"):
                backend.at_times({a1: NOW_MS})
            late = wanted(from_ms=NOW_MS + 25)
            (work,) = backend.pieces([OffsetRange(*a1, 0, 5)], late, at_least=None)
            assert work.range.start == 0
            return
        lookups = {a1: NOW_MS + 11, a0: NOW_MS, b0: 0}
        assert backend.at_times(lookups) == {a1: 2, a0: None, b0: None}
        assert backend.at_times({a1: 0}) == {a1: 0}
        assert backend.at_times({a1: NOW_MS + 41}) == {a1: None}
        assert backend.at_times({a1: -1}) == {a1: 0}


def test_internal_topics_only_if_named(broker: Embedded) -> None:
    topic = broker.create_topic("outside")
    commit_offsets(config(broker), "makes-the-topic", {TopicPartition(topic, 0): 0})
    with WireBackend(config(broker)) as backend:
        assert "__consumer_offsets" not in {key.topic for key in backend.partitions(Selection())}
        assert "__consumer_offsets" not in {key.topic for key in backend.partitions(Selection(pattern=".*"))}
        named = backend.partitions(Selection(topics=("__consumer_offsets",)))
        assert {key.topic for key in named} == {"__consumer_offsets"} and len(named) > 1
    for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"):
        assert name in backend_module.INTERNAL


def test_latest_after_append(broker: Embedded) -> None:
    key = TopicPartition(broker.create_topic(), 0)
    with WireBackend(config(broker)) as backend:
        for n in range(3):
            broker.send(key.topic, b"%d" % n)
            assert backend.latest([key], committed=False) == {key: n + 1}
        delete_below(broker, key.topic, 2)
        assert backend.earliest([key]) == {key: 2}
        broker.topology.move_leader(key.topic, 0, 3 - broker.topology.leader(key.topic))
        assert backend.latest([key], committed=True) == {key: 3}
        backend.__exit__()
        assert backend.latest([key], committed=True) == {key: 3}  # connects again


def test_the_last_stable_offset(broker: Embedded) -> None:
    key = TopicPartition(broker.create_topic(), 0)

    async def work() -> None:
        async with Producer(broker.bootstrap, transactional_id=key.topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(key.topic, b"0", partition=0)
            await producer.begin()
            await producer.send_and_wait(key.topic, b"2", partition=0)
            # Within a running loop as well: the backend has its own.
            with WireBackend(config(broker)) as backend:
                assert backend.latest([key], committed=False) == {key: 3}
                assert backend.latest([key], committed=True) == {key: 2}
            await producer.abort()

    asyncio.run(work())


@pytest.mark.parametrize("api", ["Metadata", "ListOffsets"])
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [("disconnect", {}), ("error", {"code": "UNKNOWN_SERVER_ERROR"}), ("error", {"code": "LEADER_NOT_AVAILABLE"})],
)
def test_transient_failures_retried(broker: Embedded, api: str, kind: str, arguments: dict[str, Any]) -> None:
    if arguments.get("code") == "UNKNOWN_SERVER_ERROR":
        arguments = {"code": "REQUEST_TIMED_OUT"} if api == "ListOffsets" else {"code": "REBOOTSTRAP_REQUIRED"}
    key = TopicPartition(broker.create_topic(), 0)
    broker.send(key.topic, b"0")
    with getattr(broker.faults, kind)(api, times=2, **arguments) as fault, WireBackend(config(broker)) as backend:
        # Both requests may be hit: a failure must not look like a missing topic.
        assert key in backend.partitions(Selection())
        assert backend.latest([key], committed=False) == {key: 1}
    assert fault.fired == 2


def test_topic_with_describe_error_raises(broker: Embedded) -> None:
    key = TopicPartition(broker.create_topic(), 0)
    hurried = config(broker, default_api_timeout_ms=200)
    with broker.faults.error("Metadata", "LEADER_NOT_AVAILABLE"), WireBackend(hurried) as backend:
        for lookups in (
            lambda: backend.partitions(Selection(topics=(key.topic,))),
            lambda: backend.partitions(Selection(assigned=(key,))),
            lambda: backend.latest([key], committed=False),
        ):
            with pytest.raises(ReadError, match=f"LEADER_NOT_AVAILABLE .*{key.topic}"):
                lookups()
    with broker.faults.error("Metadata", "TOPIC_AUTHORIZATION_FAILED"), WireBackend(config(broker)) as backend:
        for lookups in (
            lambda: backend.partitions(Selection(topics=(key.topic,))),
            lambda: backend.latest([key], committed=False),
        ):
            with pytest.raises(ReadError, match=f"TOPIC_AUTHORIZATION_FAILED .*{key.topic}.*127.0.0.1"):
                lookups()
    with WireBackend(config(broker)) as backend, pytest.raises(ReadError, match=r"no/topic.*127.0.0.1"):
        backend.partitions(Selection(topics=("no/topic",)))


def test_silent_broker_named_before_timeout(broker: Embedded) -> None:
    hurried: Any = {"default_api_timeout_ms": 300, "request_timeout_ms": 100}
    begun = time.monotonic()
    with WireBackend(config("127.0.0.1:1", **hurried)) as backend:
        for _ in range(2):
            with pytest.raises(
                ReadError, match=r"cannot connect to the brokers at 127.0.0.1:1: .*127.0.0.1:1"
            ) as failed:
                backend.partitions(Selection())
            assert "\n" not in str(failed.value)
    key = TopicPartition(broker.create_topic(), 0)
    with (
        broker.faults.stall("ListOffsets"),
        WireBackend(config(broker, **hurried)) as backend,
        pytest.raises(ReadError, match=r"cannot fetch log end offsets: .*127.0.0.1:\d+"),
    ):
        backend.latest([key], committed=False)
    with (
        broker.faults.error("ListOffsets", "TOPIC_AUTHORIZATION_FAILED"),
        WireBackend(config(broker)) as backend,
        pytest.raises(ReadError, match=r"TOPIC_AUTHORIZATION_FAILED.*127.0.0.1:\d+"),
    ):
        backend.earliest([key])
    assert time.monotonic() - begun < 60  # the default of default.api.timeout.ms


def test_pieces(broker: Embedded) -> None:
    topic = broker.create_topic(partitions=2)
    ranges = [OffsetRange(topic, 0, 0, 30), OffsetRange(topic, 1, 5, 5)]
    with WireBackend(config(broker)) as backend:
        assert [work.range for work in backend.pieces(ranges, wanted(), at_least=None)] == ranges[:1]
        parts = [work.range for work in backend.pieces(ranges, wanted(), at_least=3)]
        assert parts == [OffsetRange(topic, 0, 10 * n, 10 * n + 10) for n in range(3)]
        with pytest.raises(ReadError, match="minPartitions"):
            backend.pieces(ranges, wanted(), at_least=MAX_PIECES + 1)


@each("release", RELEASES, strided=True)
def test_offsets_are_committed_to_a_group(release: str) -> None:
    with Embedded(release=release) as broker:
        topic = broker.create_topic(partitions=2)
        for n in range(3):
            broker.send(topic, b"%d" % n, partition=1)
        commit_offsets(config(broker), "g", {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 2})
        commit_offsets(config(broker), "g", {})
        found = {(one.topic, one.partition): one.offset for one in broker.group("g").offsets}
        assert found == {(topic, 0): 0, (topic, 1): 2}

        async def work() -> bytes | None:
            options: Any = {"topics": [topic], "group": "g", "retry_backoff_ms": 5}
            async with Consumer(broker.bootstrap, **options) as consumer:
                value = (await consumer.getone()).value
                # Only members of a group may commit while it has any.
                with pytest.raises(ReadError, match="cannot commit offsets to group 'g': UNKNOWN_MEMBER_ID"):
                    await asyncio.to_thread(commit_offsets, config(broker), "g", {TopicPartition(topic, 1): 1})
                return value

        if release not in ("0.8.2",):
            assert asyncio.run(work()) == b"2"


def test_commit_offsets_refused_raises(broker: Embedded) -> None:
    key = TopicPartition(broker.create_topic(), 0)
    with (
        broker.faults.error("OffsetCommit", "GROUP_AUTHORIZATION_FAILED"),
        pytest.raises(ReadError, match=r"commit offsets to group 'g2': GROUP_AUTHORIZATION_FAILED.*127.0.0.1:\d+"),
    ):
        commit_offsets(config(broker), "g2", {key: 1})
    with broker.faults.error("OffsetCommit", "NOT_COORDINATOR", times=1) as fault:
        commit_offsets(config(broker), "g2", {key: 1})
    assert fault.fired == 1 and broker.group("g2").offsets[0].offset == 1
