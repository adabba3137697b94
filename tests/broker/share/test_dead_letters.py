"""Dead-letter queues of share groups (KIP-1191) through the wire: contents, refusals, creation, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from ottla.broker.metadata.topics import SHARE_STATE_TOPIC
from ottla.broker.share.values import DeadLetters, RecordState
from ottla.protocol.records import batch, formats
from ottla_testing.broker.harness import Broker, produce, records, running
from ottla_testing.broker.sharing import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    Member,
    configure,
    shared,
    written,
)
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of

QUEUE = "dlq.q"
LOCK_MS = 30_000
SMALL = {"share.coordinator.state.topic.num.partitions": "2"}
CREATING = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "3"}
COPIES = {"errors_deadletterqueue_copy_record_enable": "true"}
REJECTED, TOO_OFTEN = b"Offset rejected by client.", b"Offset delivery count exceeded the threshold."


class Letter(NamedTuple):
    """A record of the queue, with its headers without `__dlq.errors.`."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]

    @property
    def place(self) -> tuple[bytes | None, ...]:
        return tuple(self.headers[name] for name in ("partition", "offset", "delivery.count", "message"))


async def queue(
    broker: Broker, configs: Mapping[str, str] | None = None, *, partitions: int = 1, copies: bool = False
) -> None:
    """Creates the topic of the queue, and makes it that of the group."""
    await broker.topic(QUEUE, partitions, {"errors.deadletterqueue.group.enable": "true", **(configs or {})})
    await configure(broker, errors_deadletterqueue_topic_name=QUEUE, **(COPIES if copies else {}))


def batches(broker: Broker, partition: int = 0, topic: str = QUEUE) -> list[list[Letter]]:
    log = broker.log(topic, partition)
    data = log.read(log.log_start_offset, 1 << 20).records
    found: list[list[Letter]] = []
    for position, _ in formats.headers(data):
        found.append([])
        for one in formats.records(data, position):
            assert all(name.startswith("__dlq.errors.") for name, _ in one.headers)
            headers = {name.removeprefix("__dlq.errors."): value for name, value in one.headers}
            found[-1].append(Letter(one.key, one.value, headers))
            assert 0 <= broker.clock.now_ms() - one.timestamp <= 15_000
    return found


def letters(broker: Broker, partition: int = 0, topic: str = QUEUE) -> list[Letter]:
    return [one for some in batches(broker, partition, topic) for one in some]


def state(broker: Broker) -> tuple[int, list[tuple[int, ...]]]:
    (led,) = broker.state.share_partitions
    return led.machine.start_offset, [tuple(one) for one in led.machine.batches]


async def reject(broker: Broker, *values: bytes) -> None:
    """Rejects the records of the group's only partition."""
    p = await shared(broker, *values)
    member = await Member.join(broker)
    assert await member.fetch(p)
    assert await member.acknowledge({p: [(0, len(values) - 1, [REJECT])]}) == {p: 0}
    await broker.settle()


@each("copies", [False, True])
async def test_rejected_records_are_in_the_queue(copies: bool, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, copies=copies)
        p = await shared(broker, b"0", b"1")
        client = await broker.client()
        await client.call(produce(records(b"2", key=b"k")), 9)
        member = await Member.join(broker)
        await member.fetch(p)
        assert await member.acknowledge({p: [(0, 2, [ACCEPT, REJECT, REJECT])]}) == {p: 0}
        await broker.settle()
        found = letters(broker)
        assert [one[:2] for one in found] == ([(None, b"1"), (b"k", b"2")] if copies else [(None, None)] * 2)
        assert list(found[0].headers.items()) == [
            *(("topic", b"t"), ("partition", b"0"), ("offset", b"1"), ("group", GROUP.encode())),
            *(("delivery.count", b"1"), ("message", REJECTED)),
        ]
        assert found[1].place == (b"0", b"2", b"1", REJECTED)
        assert state(broker) == (3, [])
        await written(broker, b"3")
        assert await member.fetch() == {p: ([(3, 3, 1)], {3: b"3"})}


@each("way", ["release", "close", "expire"])
async def test_records_that_were_delivered_too_often_are_in_the_queue(way: str, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker)
        await configure(broker, share_delivery_count_limit="2")
        p = await shared(broker, b"0")
        for _ in range(2):
            assert letters(broker) == []
            member = await Member.join(broker)
            assert await member.fetch(p)
            if way == "release":
                assert await member.acknowledge({p: [(0, 0, [RELEASE])]}) == {p: 0}
            elif way == "close":
                assert await member.acknowledge({}, epoch=-1) == {}
            else:
                broker.clock.advance(LOCK_MS)
            await broker.settle()
        assert [one.place for one in letters(broker)] == [(b"0", b"0", b"2", TOO_OFTEN)]
        assert await (await Member.join(broker, "b")).fetch(p) == {}


async def test_records_go_to_the_partition_of_their_number(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, partitions=2)
        topic_id, _ = await shared(broker, partitions=4)
        member = await Member.join(broker)
        places = [(topic_id, index) for index in range(4)]
        for index in range(4):
            await written(broker, b"%d" % index, partition=index)
        assert len(await member.fetch(*places)) == 4
        await member.acknowledge({place: [(0, 0, [REJECT])] for place in places})
        await broker.settle()
        assert [sorted(one.place[0] or b"" for one in letters(broker, n)) for n in (0, 1)] == [
            [b"0", b"2"],
            [b"1", b"3"],
        ]


@pytest.mark.parametrize(
    ("name", "configs", "reason"),
    [
        ("dlq.none", {}, "there is no topic dlq.none, and errors.deadletterqueue.auto.create.topics.enable is false"),
        ("dlq.plain", {}, "the topic dlq.plain does not have errors.deadletterqueue.group.enable=true"),
        ("other", {}, "the topic other does not begin with dlq. (errors.deadletterqueue.topic.name.prefix)"),
        ("other", {"errors.deadletterqueue.topic.name.prefix": ""}, None),
    ],
)
async def test_records_are_archived_where_there_is_no_queue(
    name: str, configs: dict[str, str], reason: str | None, tmp_path: Path
) -> None:
    async with running(tmp_path, overrides=SMALL | configs) as broker:
        await broker.topic("dlq.plain")
        await broker.topic("other", 1, {"errors.deadletterqueue.group.enable": "true"})
        await configure(broker, errors_deadletterqueue_topic_name=name)
        with capture_logs() as events:
            await reject(broker, b"0", b"1")
        assert state(broker) == (2, [])
        failed = [one for one in events if one["log_level"] == "error"]
        if reason is None:
            assert not failed and len(letters(broker, topic=name)) == 2
        else:
            (event,) = failed
            assert event["reason"] == reason and (event["first_offset"], event["last_offset"]) == (0, 1)
            assert not [topic for topic in ("dlq.plain", "other") if letters(broker, topic=topic)]


async def test_queue_is_created(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL | CREATING) as broker:
        await configure(broker, errors_deadletterqueue_topic_name=QUEUE)
        await reject(broker, b"0")
        assert [one.place for one in letters(broker)] == [(b"0", b"0", b"1", REJECTED)]
        topic = broker.state.topics.named(QUEUE)
        assert len(topic.partitions) == 3 and topic.config["message.timestamp.type"] == "CreateTime"
        assert topic.config["errors.deadletterqueue.group.enable"]


async def test_queue_is_created_once_for_two_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL | CREATING | {"num.partitions": "150"}) as broker:
        await configure(broker, errors_deadletterqueue_topic_name=QUEUE)
        await shared(broker, partitions=2)
        given = DeadLetters(0, 0, 1, is_rejected=True)
        with capture_logs() as events:
            sources = [broker.state.topics.partition("t", index) for index in (0, 1)]
            writing = asyncio.gather(*(broker.state.dead_letters.write(GROUP, one, given) for one in sources))
            for _ in range(2):  # one of them waits for the other
                await broker.settle()
                broker.clock.advance(1000)
            await writing
        assert not [one for one in events if one["log_level"] == "error"]
        assert [len(letters(broker, index)) for index in (0, 1, 2)] == [1, 1, 0]


async def test_queue_without_a_leader_is_tried_five_times(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker)
        broker.state.topology.take_offline(QUEUE, 0)
        await reject(broker, b"0")
        assert state(broker) == (0, [(0, 0, 3, 1)])
        with capture_logs() as events:
            for delay_ms in (1000, 2000, 4000):
                broker.clock.advance(delay_ms)
                await broker.settle()
            assert state(broker) == (0, [(0, 0, 3, 1)])
            broker.clock.advance(8000)
            await broker.settle()
        assert [one["reason"] for one in events if one["log_level"] == "error"] == [
            f"the topic {QUEUE} has no leader for partition 0"
        ]
        assert state(broker) == (1, [])
        broker.state.topology.bring_online(QUEUE, 0)
        assert letters(broker) == []


async def test_queue_with_a_leader_again_gets_the_records(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker)
        broker.state.topology.take_offline(QUEUE, 0)
        await reject(broker, b"0")
        broker.state.topology.bring_online(QUEUE, 0)
        broker.clock.advance(1000)
        await broker.settle()
        assert len(letters(broker)) == 1 and state(broker) == (1, [])


async def test_records_are_written_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker)
        await configure(broker, share_delivery_count_limit="2")
        broker.state.topology.take_offline(QUEUE, 0)
        await reject(broker, b"0", b"1")
    async with running(tmp_path, overrides=SMALL) as broker:
        topic_id = broker.state.topics.named("t").id
        assert await (await Member.join(broker)).fetch((topic_id, 0)) == {}
        await broker.settle()
        assert [one.place for one in letters(broker)] == [
            (b"0", b"0", b"1", REJECTED),
            (b"0", b"1", b"1", REJECTED),
        ]
        assert state(broker) == (2, [])
    async with running(tmp_path, overrides=SMALL) as broker:
        await (await Member.join(broker)).fetch((topic_id, 0))
        await broker.settle()
        assert len(letters(broker)) == 2, "they are archived now"


async def test_batches_keep_to_the_size_limit_of_the_queue(tmp_path: Path) -> None:
    limit = 500
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, {"max.message.bytes": str(limit)}, copies=True)
        values = [b"%d" % n * size for n, size in enumerate((1, 200, 100, 600, 1, 1))]
        await reject(broker, *values)
        assert [one.value for one in letters(broker)] == [v if len(v) < limit else None for v in values]
        log = broker.log(QUEUE)
        sizes = [header.size_bytes for _, header in formats.headers(log.read(0, 1 << 20).records)]
        assert len(sizes) > 2 and max(sizes) <= limit
        counts = broker.state.dead_letters
        assert (counts.records[GROUP], counts.requests[GROUP], counts.failures[GROUP]) == (6, len(sizes), 0)


async def test_record_whose_headers_exceed_the_limit_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, {"max.message.bytes": "100"})
        with capture_logs() as events:
            await reject(broker, b"0")
        (event,) = [one for one in events if one["log_level"] == "error"]
        assert event["reason"] == "MESSAGE_TOO_LARGE" and state(broker) == (1, []) and letters(broker) == []
        counts = broker.state.dead_letters
        assert (counts.records[GROUP], counts.requests[GROUP], counts.failures[GROUP]) == (0, 1, 1)


@each("codec", [0, 1, 3])
async def test_compressed_batches_are_copied_up_to_the_limit(codec: int, tmp_path: Path) -> None:
    """A compressed batch that is larger than the limit is not copied at all, as in Kafka; others are."""

    def entries(*values: bytes) -> bytes:
        return bytes(batch_of([batch.Record(n, 0, None, value, ()) for n, value in enumerate(values)], codec=codec))

    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, {"max.message.bytes": "1000"}, copies=True)
        p = await shared(broker)
        client = await broker.client()
        for data in (entries(b"a" * 700, b"b" * 700), entries(b"c", b"d" * 300)):
            await client.call(produce(data), 9)
        member = await Member.join(broker)
        await member.fetch(p)
        await member.acknowledge({p: [(0, 3, [REJECT])]})
        await broker.settle()
        first: Sequence[bytes | None] = [None, None] if codec else [b"a" * 700, b"b" * 700]
        assert [one.value for one in letters(broker)] == [*first, b"c", b"d" * 300]


async def test_records_that_are_gone_have_headers_alone(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker, copies=True)
        p = await shared(broker, b"0", b"1")
        member = await Member.join(broker)
        await member.fetch(p)
        broker.log("t").delete_records_before(2)
        await member.acknowledge({p: [(0, 1, [REJECT])]})
        await broker.settle()
        assert [one[:2] for one in letters(broker)] == [(None, None)] * 2


async def test_too_few_replicas_refuse_the_records(tmp_path: Path) -> None:
    configs = SMALL | {"share.coordinator.state.topic.min.isr": "1"}
    async with running(tmp_path, overrides=configs, brokers=3) as broker:
        await queue(broker, {"min.insync.replicas": "2"})
        for node in (2, 3):
            broker.state.topology.stop_node(node)
        broker.state.internal_topic(SHARE_STATE_TOPIC, broker.clock.now_ms())
        with capture_logs() as events:
            await reject(broker, b"0")
        assert [one["reason"] for one in events if one["log_level"] == "error"] == ["NOT_ENOUGH_REPLICAS"]
        assert letters(broker) == [] and state(broker) == (1, [])


@each("around", [("ottla", {"ottla.features": "share.version=1"}), ("4.3", {})])
async def test_no_queue_below_share_version_2(around: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    release, configs = around
    async with running(tmp_path, overrides=SMALL | configs, release=release) as broker:
        await broker.topic(QUEUE)
        if release == "ottla":
            await configure(broker, errors_deadletterqueue_topic_name=QUEUE)
        await reject(broker, b"0")
        assert letters(broker) == [] and state(broker) == (1, [])


async def test_sessions_and_views_while_records_are_on_their_way(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=SMALL) as broker:
        await queue(broker)
        broker.state.topology.take_offline(QUEUE, 0)
        await reject(broker, b"0", b"1")
        (led,) = broker.state.share_partitions
        (one,) = led.machine.records()
        assert (one.first, one.last, one.state.name, one.ended and one.ended.value) == (0, 1, "ARCHIVING", "rejected")
        assert led.machine.delivery_complete_count == 0


def test_states_have_the_numbers_of_stored_state() -> None:
    """`RecordState` of Kafka 4.4."""
    assert [(one.name, one.value, one.is_terminal) for one in RecordState] == [
        ("AVAILABLE", 0, False),
        ("ACQUIRED", 1, False),
        ("ACKNOWLEDGED", 2, True),
        ("ARCHIVING", 3, False),
        ("ARCHIVED", 4, True),
    ]
