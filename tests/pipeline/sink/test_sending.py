"""Rows sent by a task are in the log once, with concurrent attempts and lost responses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.testing.embedded import Embedded
from ottla.client.admin.logs import LogCalls
from ottla.client.net.errors import KafkaError
from ottla.pipeline.sink.batches import cut
from ottla.pipeline.sink.errors import SinkError, SinkFenced
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task_writer import Sending, Sent, TaskSender, send
from ottla.pipeline.sink.transaction import Grant, SinkCalls, SinkTransaction, idempotent_grant
from ottla.protocol.errors import ErrorCode
from ottla_testing.each import each as all_of
from ottla_testing.each import parts
from ottla_testing.pipeline import sink_world as world

BATCHES, ROWS = 9, 4
ALL = world.values(BATCHES * ROWS)
IN_ORDER = [(number // ROWS * ROWS, number, value) for number, value in enumerate(ALL)]
"""The expected log: whole batches, sequences from 0 on."""


@pytest.fixture(scope="module", params=parts(world.RELEASES, 2))
def each(request: pytest.FixtureRequest, stride: int) -> Iterator[Embedded]:
    """Starts a broker of each release; in a small run, of an old and a new one."""
    with Embedded(release=random.choice(request.param)) as broker:
        yield broker


@pytest.fixture(scope="module", params=["2.5", "4.3"])
def broker(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    """Starts a broker with DescribeProducers, and one without."""
    with Embedded(release=request.param) as broker:
        yield broker


@pytest.fixture(scope="module", params=["0.11", "2.5", "4.3"])
def some(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    """The same, and one that keeps a single batch of a producer."""
    with Embedded(release=request.param) as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("each", "some", "broker"):
        if name in request.fixturenames:
            request.getfixturevalue(name).faults.clear()


def in_batches(broker: Embedded, **more: Any) -> SinkOptions:
    return world.options(broker, rows_per_batch=ROWS, **more)


def committed(
    broker: Embedded, work: Callable[[SinkOptions, Grant, tuple[str, int]], Any], **more: Any
) -> list[tuple[int, int, bytes]]:
    """Returns the log after a transaction with one partition, in which `work` runs."""
    options, name = in_batches(broker, **more), world.topic(broker)
    with world.begun(options, world.transactional_id(), (name, 0)) as (transaction, grant):
        work(options, grant, (name, 0))
        transaction.commit(0)
    return world.log(broker, name)


# -- without faults


def test_send_rows_once(each: Embedded) -> None:
    options, name = in_batches(each), world.topic(each, 2)
    more = world.values(5, 1000)
    parts = {(name, 0): world.rows(ALL, 7), (name, 1): world.rows(more)}
    sent = world.written(options, world.transactional_id(), 0, parts)
    assert sent == [Sent(name, 0, len(ALL), 10 * len(ALL), 0, len(ALL) - 1), Sent(name, 1, 5, 50, 0, 4)]
    assert world.log(each, name) == IN_ORDER
    assert world.seen(each, name) == {0: ALL, 1: more}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_send_each_compression(codec: str) -> None:
    headers = [None, [("a", b"1"), ("b", None)], []]
    listed = [None if one is None else [{"key": k, "value": v} for k, v in one] for one in headers]
    rows = pa.record_batch(
        {
            "key": ["k", None, ""],
            "value": pa.array([b"v", None, b""], pa.binary()),
            "timestamp": pa.array([1_700_000_000_123_456, None, 1_700_000_000_000_000], pa.timestamp("us", tz="UTC")),
            "headers": pa.array(listed, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )
    with Embedded() as broker:
        options, name = world.options(broker, compression_type=codec), world.topic(broker)
        with world.begun(options, "q", (name, 0)) as (transaction, grant):
            send(options, grant, (name, 0), iter([rows]))
            transaction.commit(0)
        found = broker.records(name)
    assert [(r.key, r.value, r.timestamp_ms) for r in found] == [
        (b"k", b"v", 1_700_000_000_123),
        (None, None, -1),
        (b"", b"", 1_700_000_000_000),
    ]
    assert [[tuple(header) for header in r.headers] for r in found] == [[], [("a", b"1"), ("b", None)], []]


def test_sender_of_several_partitions_connects_once() -> None:
    with Embedded() as broker:
        options, name = in_batches(broker), world.topic(broker, 4)
        where = [(name, number) for number in range(4)]
        with world.begun(options, "q", *where) as (transaction, grant):
            delay = broker.faults.delay("ApiVersions", 1)
            with TaskSender(options, grant) as sender:
                for one in where:
                    if one[1] == 2:  # a failure in one does not affect the next
                        broker.faults.disconnect("Produce", "after", times=1)
                    assert sender.send(one, world.rows(ALL)).last_offset == len(ALL) - 1
                assert delay.fired <= 4  # one for the lookup, one for the leader, and that once more
            transaction.commit(0)
        assert world.seen(broker, name) == dict.fromkeys(range(4), ALL)


def test_send_no_rows_needs_no_broker() -> None:
    options = world.options("127.0.0.1:1")
    empty = pa.record_batch({"value": pa.array([], pa.binary())})
    assert send(options, Grant("q", 1, 0), ("t", 3), iter([empty])) == Sent("t", 3, 0, 0, -1, -1)


# -- more than one attempt


@all_of("done", [1, 5, 6, BATCHES - 1, BATCHES], strided=True)
def test_retried_task_continues(each: Embedded, done: int) -> None:
    def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
        send(options, grant, where, world.rows(ALL[: done * ROWS]))
        again = send(options, grant, where, world.rows(ALL, 3))
        assert again.last_offset == len(ALL) - 1
        assert again[:4] == (where[0], 0, len(ALL), 10 * len(ALL))

    assert committed(each, work) == IN_ORDER


def test_retried_task_sends_only_last_batch_again() -> None:
    with Embedded(release="4.3") as broker:
        produced = broker.faults.delay("Produce", 1)

        def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
            send(options, grant, where, world.rows(ALL[: 7 * ROWS]))
            assert produced.fired == 7
            send(options, grant, where, world.rows(ALL))
            assert produced.fired == 7 + 1 + 2

        assert committed(broker, work) == IN_ORDER


@all_of("at", [0, ROWS + 1, 3 * ROWS, len(ALL) - 1], strided=True)
def test_zombie_task_beside_successor(some: Embedded, at: int) -> None:
    def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
        def successor() -> None:
            send(options, grant, where, world.rows(ALL))

        send(options, grant, where, world.interrupted(ALL, at, successor))

    assert committed(some, work) == IN_ORDER


@settings(max_examples=max(1, settings().max_examples // 12))
@given(st.lists(st.integers(0, 2), min_size=4, max_size=40))
def test_attempts_in_any_order_same_log(broker: Embedded, order: list[int]) -> None:
    def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
        callers = [SinkCalls(options) for _ in range(3)]
        attempts = [Sending(options, grant, where, calls) for calls in callers]
        left = [iter(list(cut(world.rows(ALL, 1 + number), options.batch_bytes))) for number in range(3)]
        for number in [*order, *(number for number in range(3) for _ in range(BATCHES))]:
            batch = next(left[number], None)
            if batch is not None:
                attempts[number].put(batch)
        for attempt, calls in zip(attempts, callers, strict=True):
            with attempt:
                attempt.finish()
            calls.close()

    assert committed(broker, work) == IN_ORDER


@pytest.mark.parametrize(
    ("done", "other"),
    [
        pytest.param(len(ALL), ALL[:-1], id="more was written"),
        pytest.param(len(ALL), ALL[: -2 * ROWS], id="much more was written"),
        pytest.param(len(ALL), [ALL[0] * 20, *ALL[1:]], id="batches begin elsewhere"),
        pytest.param(6 * ROWS, [ALL[0] * 20, *ALL[1:]], id="batches end elsewhere"),
    ],
)
def test_attempt_with_other_rows_refused(broker: Embedded, done: int, other: list[bytes]) -> None:
    options, name = in_batches(broker), world.topic(broker)
    with world.begun(options, world.transactional_id(), (name, 0)) as (_, grant):
        send(options, grant, (name, 0), world.rows(ALL[:done]))
        with pytest.raises(SinkError, match="0 has other rows from another attempt of this task") as refused:
            send(options, grant, (name, 0), world.rows(other))
        assert "\n" not in str(refused.value)


def test_progress_without_describe_producers_found_in_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(self: Any, partitions: Any, **_: Any) -> Any:
        return dict.fromkeys(partitions, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
        send(options, grant, where, world.rows(ALL[: 8 * ROWS]))
        send(options, grant, where, world.rows(ALL))

    monkeypatch.setattr(LogCalls, "describe_producers", refused)
    with Embedded(release="4.3") as broker:
        assert committed(broker, work) == IN_ORDER


def test_idempotent_grant_shared_by_tasks(each: Embedded) -> None:
    options, name = in_batches(each), world.topic(each)
    grant = idempotent_grant(options)
    assert grant.transactional_id is None
    send(options, grant, (name, 0), world.rows(ALL[: 6 * ROWS]))
    assert world.seen(each, name) == {0: ALL[: 6 * ROWS]}
    send(options, grant, (name, 0), world.rows(ALL))
    assert world.log(each, name) == IN_ORDER


# -- faults

RETRIED = [
    "NOT_LEADER_OR_FOLLOWER",
    "NOT_ENOUGH_REPLICAS",
    "REQUEST_TIMED_OUT",
    "KAFKA_STORAGE_ERROR",
    "CORRUPT_MESSAGE",
]
FAULT = st.one_of(
    st.tuples(st.sampled_from(RETRIED), st.integers(0, 12), st.integers(1, 3)),
    st.tuples(st.sampled_from(["before", "after"]), st.integers(0, 12), st.integers(1, 2)),
)


def inject(broker: Embedded, kind: str, after: int, times: int) -> None:
    if kind in ("before", "after"):
        broker.faults.disconnect("Produce", kind, after=after, times=times)
    else:
        broker.faults.error("Produce", kind, after=after, times=times)


def send_all(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
    assert send(options, grant, where, world.rows(ALL, 5)).records == len(ALL)


TRANSIENT = [(kind, after) for after in (0, 3) for kind in (*RETRIED[:2], "before", "after")]


@all_of(("kind", "after"), TRANSIENT, strided=True)
def test_transient_failure_retried(some: Embedded, kind: str, after: int) -> None:
    some.faults.clear()
    inject(some, kind, after, 2)
    assert committed(some, send_all) == IN_ORDER


@settings(max_examples=max(1, settings().max_examples // 8))
@given(st.lists(FAULT, min_size=1, max_size=4))
def test_random_faults_each_row_once(broker: Embedded, faults: list[tuple[str, int, int]]) -> None:
    broker.faults.clear()
    for fault in faults:
        inject(broker, *fault)
    assert committed(broker, send_all) == IN_ORDER


def test_first_requests_retried() -> None:
    with Embedded(release="4.3") as broker:
        broker.faults.disconnect("DescribeProducers", "after", times=1)
        broker.faults.error("DescribeProducers", "NOT_LEADER_OR_FOLLOWER", times=2)
        assert committed(broker, send_all) == IN_ORDER


def test_broker_restart_during_send(tmp_path: Any) -> None:
    with Embedded(data_dir=tmp_path, listeners=world.free_listener()) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
            send(options, grant, where, world.interrupted(ALL, 5 * ROWS + 1, restart))

        assert committed(broker, work) == IN_ORDER


@all_of("release", ["2.8", "3.9", "4.3", "ottla"], strided=True)
def test_rows_lost_by_broker_detected(release: str) -> None:
    with Embedded(release=release) as broker:
        options, name = in_batches(broker), world.topic(broker)
        empty, grant = broker.snapshot(), idempotent_grant(options)
        rows = world.interrupted(ALL, 8 * ROWS, lambda: broker.restore(empty))
        with pytest.raises(SinkError, match=f"{name}-0 lost rows of this task up to"):
            send(options, grant, (name, 0), rows)


def test_first_batch_sent_alone(broker: Embedded) -> None:
    """Otherwise Kafka 2.5 to 3.5 could accept the second as the producer's first batch."""
    refused = broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", times=1)
    assert committed(broker, send_all) == IN_ORDER
    assert refused.matched == BATCHES + 1


def test_first_batch_after_failure_sent_alone() -> None:
    """A broker of 2.5 does not report its producer state, and after losing that state it accepts any sequence."""
    with Embedded(release="2.5") as broker:
        options, name = in_batches(broker), world.topic(broker)
        empty, grant, calls = broker.snapshot(), idempotent_grant(options), SinkCalls(options)
        batches = list(cut(world.rows(ALL), options.batch_bytes))
        with Sending(options, grant, (name, 0), calls) as sending:
            for batch in batches[:3]:
                sending.put(batch)
            sending.finish()
            refused = broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS", times=1)
            broker.restore(empty)
            for batch in batches[3:]:
                sending.put(batch)
            sending.finish()
        calls.close()
        assert refused.matched == BATCHES - 3 + 1
        assert [sequence for _, sequence, _ in world.log(broker, name)] == list(range(3 * ROWS, len(ALL)))


def test_leader_moves_and_stops() -> None:
    with Embedded(brokers=3) as broker:

        def move(where: tuple[str, int]) -> None:
            leader = broker.topology.leader(*where)
            if where[1]:
                broker.topology.stop_node(leader)
            else:
                broker.topology.move_leader(*where, leader % 3 + 1)

        options, name = in_batches(broker), world.topic(broker, 2)
        with world.begun(options, "q", (name, 0), (name, 1)) as (transaction, grant):
            for where in ((name, 0), (name, 1)):
                send(options, grant, where, world.interrupted(ALL, 3 * ROWS, lambda: move(where)))  # noqa: B023
            transaction.commit(0)
        assert world.seen(broker, name) == {0: ALL, 1: ALL}


def test_delivery_timeout_raises(broker: Embedded) -> None:
    hasty = in_batches(broker, delivery_timeout_ms=100, request_timeout_ms=100)

    def work(options: SinkOptions, grant: Grant, where: tuple[str, int]) -> None:
        with (
            broker.faults.error("Produce", "NOT_ENOUGH_REPLICAS"),
            pytest.raises(
                SinkError, match=r"0 could not be written within kafka.delivery.timeout.ms, 100 ms: "
            ) as late,
        ):
            send_all(hasty, grant, where)
        assert "\n" not in str(late.value)

    assert committed(broker, work) == []


# -- final errors


def test_row_above_size_limit_refused() -> None:
    with Embedded() as broker:
        small = world.topic(broker, max_message_bytes=500)
        large = world.topic(broker)

        def refused(options: SinkOptions, name: str, *some: bytes) -> str:
            with (
                world.begun(options, "q", (name, 0)) as (_, grant),
                pytest.raises(SinkError) as error,
            ):
                send(options, grant, (name, 0), world.rows(some))
            assert "\n" not in str(error.value)
            return str(error.value)

        message = refused(world.options(broker), small, b"x" * 900)
        assert f"a record of 900 bytes for {small}-0 is larger than its topic allows (max.message.bytes)" in message
        message = refused(world.options(broker), small, *[b"x" * 90] * 9)
        assert f"for {small}-0 is larger than its topic allows: set kafka.batch.size below" in message
        message = refused(world.options(broker, max_request_size=1000), large, b"small", b"x" * 1000)
        assert f"a record of 1000 bytes for {large}-0 is larger than kafka.max.request.size, 1000" in message
        options = world.options(broker, batch_size=450)
        world.written(options, "q", 0, {(small, 0): world.rows([b"x" * 90] * 9)})
        assert world.seen(broker, small) == {0: [b"x" * 90] * 9}


def test_fenced_task_stops(each: Embedded) -> None:
    options, name, owner = in_batches(each), world.topic(each), world.transactional_id()
    with SinkTransaction(options, owner) as successor:

        def take_over() -> None:
            grant = successor.begin()
            successor.add([(name, 0)])
            send(options, grant, (name, 0), world.rows(ALL))

        with pytest.raises(SinkFenced, match="took over"), world.begun(options, owner, (name, 0)) as (_, grant):
            with pytest.raises(SinkFenced, match=f"{name}-0 has a newer owner of transactional id"):
                send(options, grant, (name, 0), world.interrupted(ALL, 3 * ROWS, take_over))
            with pytest.raises(SinkFenced):
                send(options, grant, (name, 0), world.rows(ALL))
            successor.commit(0)
            with pytest.raises(SinkFenced):
                send(options, grant, (name, 0), world.rows(ALL))
    assert world.seen(each, name) == {0: ALL}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("TOPIC_AUTHORIZATION_FAILED", "0 refuses rows 0 to 3 of this task: TOPIC_AUTHORIZATION_FAILED"),
        ("INVALID_TXN_STATE", "0 has no open transaction of transactional id 'query-[0-9]+': it may have been"),
        ("UNSUPPORTED_FOR_MESSAGE_FORMAT", "0 has an older message format than v2"),
        ("INVALID_PRODUCER_EPOCH", "0 has a newer owner of transactional id"),
    ],
)
def test_final_errors_in_one_sentence(broker: Embedded, code: str, message: str) -> None:
    options, name = in_batches(broker), world.topic(broker)
    broker.faults.error("Produce", code)
    with world.begun(options, world.transactional_id(), (name, 0)) as (_, grant):
        with pytest.raises(SinkError, match=message) as refused:
            send(options, grant, (name, 0), world.rows(ALL))
        assert "\n" not in str(refused.value)


def test_missing_topic_partition_or_broker_raises(broker: Embedded) -> None:
    options, name = in_batches(broker, max_block_ms=200), world.topic(broker)
    with pytest.raises(SinkError, match=f"topic '{name}' has 1 partitions, no partition 7"):
        send(options, Grant(None, 1, 0), (name, 7), world.rows(ALL))
    options = world.options("127.0.0.1:1", delivery_timeout_ms=150, request_timeout_ms=100)
    with pytest.raises(SinkError, match=r"cannot connect to the brokers at 127.0.0.1:1"):
        send(options, Grant(None, 1, 0), (name, 0), world.rows(ALL))
