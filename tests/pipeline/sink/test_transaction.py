"""The driver's side of a transaction: a micro-batch is committed as a whole or not at all, with crashes and lost
responses."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.client import Producer
from ottla.client.consumer.group_offsets import GroupMetadata
from ottla.pipeline.sink.errors import SinkError, SinkFenced, SinkTimedOut
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task_writer import send
from ottla.pipeline.sink.transaction import Grant, SinkTransaction, idempotent_grant
from ottla_testing.each import each as all_of
from ottla_testing.each import parts
from ottla_testing.pipeline import sink_world as world

ROWS = world.values(40)


@pytest.fixture(scope="module", params=parts(world.RELEASES, 2))
def each(request: pytest.FixtureRequest, stride: int) -> Iterator[Embedded]:
    """Starts a broker of each release; in a small run, of an old and a new one."""
    with Embedded(release=random.choice(request.param)) as broker:
        yield broker


@pytest.fixture(scope="module", params=["0.11", "2.5", "4.3"])
def some(request: pytest.FixtureRequest) -> Iterator[Embedded]:
    """Starts brokers of an old, a middle and the newest release."""
    with Embedded(release=request.param) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(SinkTransaction, "copies_live_s", 0.0)
    yield
    for name in ("each", "some", "broker"):
        if name in request.fixturenames:
            request.getfixturevalue(name).faults.clear()


def filled(options: SinkOptions, transaction: SinkTransaction, name: str, rows: list[bytes] = ROWS) -> Grant:
    """Begins, and writes rows to the first partition."""
    grant = transaction.begin()
    transaction.add([(name, 0)])
    send(options, grant, (name, 0), world.rows(rows))
    return grant


# -- a query's life


def test_consecutive_micro_batches(each: Embedded) -> None:
    options, name, owner = world.options(each), world.topic(each, 2), world.transactional_id()
    with SinkTransaction(options, owner) as transaction:
        assert transaction.partitions([name]) == {name: 2}
        epochs = []
        for number in range(3):
            epochs.append(transaction.begin())
            assert transaction.committed_batch() == (number - 1 if number else None)
            transaction.add([(name, 0), (name, 1)])
            transaction.add([(name, 0)])
            some = world.values(5, 100 * number)
            send(options, epochs[-1], (name, 1), world.rows(some))
            assert len(world.seen(each, name).get(1, [])) == 5 * number
            transaction.commit(number)
        assert transaction.committed_batch() == 2
    assert world.seen(each, name) == {1: [value for number in range(3) for value in world.values(5, 100 * number)]}
    assert len({grant.producer_epoch for grant in epochs}) == 3 and len({grant.producer_id for grant in epochs}) == 1
    assert pickle.loads(pickle.dumps(epochs[0])) == epochs[0]
    # Another id has no committed batch.
    with SinkTransaction(options, owner + "-other") as other:
        other.begin()
        assert other.committed_batch() is None


def test_id_of_another_query_refused(broker: Embedded) -> None:
    """The micro-batches of the other query have the same ids, so one of them would be skipped."""
    options, name, owner = world.options(broker), world.topic(broker), world.transactional_id()

    def committed(query: str | None, number: int) -> int | None:
        with SinkTransaction(options, owner, query=query) as transaction:
            filled(options, transaction, name)
            last = transaction.committed_batch()
            transaction.commit(number)
            return last

    assert committed("first", 0) is None
    with pytest.raises(SinkError, match=r"belongs to query first, .* query second .* needs its own"):
        committed("second", 1)
    assert committed("first", 1) == 0
    assert committed(None, 2) == 1
    assert committed("second", 3) == 2


def test_micro_batch_without_rows_committed(broker: Embedded) -> None:
    name, owner = world.topic(broker), world.transactional_id()
    with SinkTransaction(world.options(broker), owner) as transaction:
        transaction.begin()
        transaction.commit(0)  # to no topic: nothing is written
        assert transaction.committed_batch() is None
    with SinkTransaction(world.options(broker, topic=name), owner) as transaction:
        transaction.begin()
        transaction.commit(1)
    with SinkTransaction(world.options(broker), owner) as transaction:
        transaction.begin()
        assert transaction.committed_batch() == 1
        transaction.commit(2)  # to the topics of the one before
        transaction.begin()
        assert transaction.committed_batch() == 2
    assert world.seen(broker, name) == {}


def test_committed_batch_after_topic_change(broker: Embedded) -> None:
    """The newest committed id counts, on whichever topic it is."""
    options, owner = world.options(broker), world.transactional_id()
    names = [world.topic(broker) for _ in range(3)]
    with SinkTransaction(options, owner) as transaction:
        for number, some in enumerate([names[:2], names[1:], names[:1]]):
            transaction.begin()
            transaction.add([(name, 0) for name in some])
            transaction.commit(number)
        transaction.begin()
        assert transaction.committed_batch() == 2
        broker.delete_topic(names[1])
        assert transaction.committed_batch() == 2


def test_exit_without_commit_aborts(each: Embedded) -> None:
    options, name, owner = world.options(each), world.topic(each), world.transactional_id()
    with SinkTransaction(options, owner) as transaction:
        filled(options, transaction, name)
    each.send(name, "after")  # is not after an open transaction
    assert world.seen(each, name) == {0: [b"after"]}
    with SinkTransaction(options, owner) as transaction:
        transaction.begin()
        assert transaction.committed_batch() is None


def test_new_driver_fences_dead_one(each: Embedded) -> None:
    options, name, owner = world.options(each), world.topic(each), world.transactional_id()
    dead = SinkTransaction(options, owner)
    grant = filled(options, dead, name, ROWS[:30])
    with SinkTransaction(options, owner) as successor:
        filled(options, successor, name)
        with pytest.raises(SinkFenced, match=f"another query with transactional id '{owner}' took over"):
            dead.commit(0)
        with pytest.raises(SinkFenced):
            dead.abort()  # must not affect the other's transaction
        with pytest.raises(SinkFenced):
            send(options, grant, (name, 0), world.rows(ROWS))
        successor.commit(0)
        assert successor.committed_batch() == 0
    dead.close()
    assert world.seen(each, name) == {0: ROWS}


def test_task_of_aborted_transaction_fenced(each: Embedded) -> None:
    """Even if the next transaction does not use its partition, and before one begins."""
    options, name, owner = world.options(each, rows_per_batch=4), world.topic(each, 2), world.transactional_id()
    with SinkTransaction(options, owner) as transaction:
        grant = transaction.begin()
        transaction.add([(name, 0), (name, 1)])
        with pytest.raises(SinkFenced, match=f"{name}-0 has a newer owner"):
            send(options, grant, (name, 0), world.interrupted(ROWS, 13, transaction.abort))
        with pytest.raises(SinkFenced):
            send(options, grant, (name, 1), world.rows(ROWS))
        again = transaction.begin()
        transaction.add([(name, 0)])
        with pytest.raises(SinkFenced):
            send(options, grant, (name, 0), world.rows(ROWS))
        send(options, again, (name, 0), world.rows(ROWS[:3]))
        transaction.commit(0)
    each.send(name, "after", partition=1)
    assert world.seen(each, name) == {0: ROWS[:3], 1: [b"after"]}


def test_task_of_committed_transaction_adds_nothing(each: Embedded) -> None:
    options, name, owner = world.options(each, rows_per_batch=4), world.topic(each), world.transactional_id()
    with SinkTransaction(options, owner) as transaction:
        grant = filled(options, transaction, name)
        transaction.commit(0)
        with contextlib.suppress(SinkError):
            send(options, grant, (name, 0), world.rows(ROWS))
        transaction.begin()
        transaction.add([(name, 0)])
        with contextlib.suppress(SinkError):
            send(options, grant, (name, 0), world.rows(ROWS))
        transaction.commit(1)
    assert world.seen(each, name) == {0: ROWS}


# -- lost responses, and retriable errors

CALLS = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "OffsetFetch"]


@all_of(("api", "when"), [(api, when) for when in ("before", "after") for api in CALLS], strided=True)
def test_lost_response_retried(some: Embedded, api: str, when: str) -> None:
    options, name, owner = world.options(some), world.topic(some), world.transactional_id()
    fault = some.faults.disconnect(api, when, times=2)
    with SinkTransaction(options, owner) as transaction:
        filled(options, transaction, name)
        assert transaction.committed_batch() is None
        transaction.commit(0)
        assert transaction.committed_batch() == 0
    assert fault.fired == 2
    assert world.seen(some, name) == {0: ROWS}


NOT_READY = [
    (api, code) for code in ("NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS") for api in (*CALLS[:-1], "FindCoordinator")
]


@all_of(("api", "code"), NOT_READY, strided=True)
def test_coordinator_not_ready_retried(broker: Embedded, api: str, code: str) -> None:
    options, name, owner = world.options(broker), world.topic(broker), world.transactional_id()
    fault = broker.faults.error(api, code, times=3)
    with SinkTransaction(options, owner) as transaction:
        filled(options, transaction, name)
        transaction.commit(0)
    assert fault.fired == 3
    assert world.seen(broker, name) == {0: ROWS}


def test_commit_without_response_found_by_next_begin(some: Embedded) -> None:
    hasty = world.options(some, delivery_timeout_ms=150, request_timeout_ms=150)
    name, owner = world.topic(some), world.transactional_id()
    with SinkTransaction(hasty, owner) as transaction:
        filled(world.options(some), transaction, name)
        with some.faults.disconnect("EndTxn", "after"):
            with pytest.raises(SinkError, match="it is unknown whether the micro-batch is committed: ") as unknown:
                transaction.commit(4)
            assert "\n" not in str(unknown.value)
            transaction.abort()  # must not undo the commit
    with SinkTransaction(world.options(some), owner) as successor:
        successor.begin()
        assert successor.committed_batch() == 4
    assert world.seen(some, name) == {0: ROWS}


def test_broker_restart_between_steps(tmp_path: Any) -> None:
    with Embedded(data_dir=tmp_path, listeners=world.free_listener(), release="2.5") as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        options, name, owner = world.options(broker), world.topic(broker), "q"
        with SinkTransaction(options, owner) as transaction:
            grant = transaction.begin()
            restart()
            transaction.add([(name, 0)])
            restart()
            send(options, grant, (name, 0), world.rows(ROWS))
            restart()
            transaction.commit(0)
            restart()
            transaction.begin()
            assert transaction.committed_batch() == 0
        assert world.seen(broker, name) == {0: ROWS}


def test_coordinator_and_leader_move_between_steps() -> None:
    with Embedded(brokers=3) as broker:
        options, name, owner = world.options(broker), world.topic(broker), "q"
        down = 0

        def move() -> None:
            nonlocal down
            if down:
                broker.topology.start_node(down)
            down = down % 3 + 1
            broker.topology.stop_node(down)

        with SinkTransaction(options, owner) as transaction:
            for number in range(3):
                move()
                grant = transaction.begin()
                move()
                transaction.add([(name, 0)])
                move()
                send(options, grant, (name, 0), world.rows(world.values(10, 100 * number)))
                move()
                transaction.commit(number)
                move()
                assert transaction.committed_batch() == number
        assert world.seen(broker, name) == {0: [one for number in range(3) for one in world.values(10, 100 * number)]}


# -- refusals


class Clock:
    """Seconds that a test advances."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@all_of("step", ["add", "commit", "send", "abort"], strided=True)
def test_transaction_timeout_raises_sink_timed_out(some: Embedded, step: str) -> None:
    options = world.options(some, transaction_timeout_ms=2000, rows_per_batch=4)
    name, owner, clock = world.topic(some, 2), world.transactional_id(), Clock()
    with SinkTransaction(options, owner, clock=clock) as transaction:
        grant = transaction.begin()
        transaction.add([(name, 0)])
        send(options, grant, (name, 0), world.rows(ROWS))
        some.clock.advance(ms=60_000)
        clock.now_s += 60
        if step == "send":
            with pytest.raises(SinkError, match="aborted after its timeout"):
                send(options, grant, (name, 0), world.rows(ROWS))
        elif step == "abort":
            transaction.abort()
        else:
            with pytest.raises(SinkTimedOut, match=r"took longer than kafka.transaction.timeout.ms, 2000 ms, and was"):
                transaction.add([(name, 1)]) if step == "add" else transaction.commit(0)
        filled(options, transaction, name, ROWS[:2])
        transaction.commit(0)
    assert world.seen(some, name) == {0: ROWS[:2]}


def test_calls_out_of_order_refused(broker: Embedded) -> None:
    options, name = world.options(broker), world.topic(broker)
    with SinkTransaction(options, world.transactional_id()) as transaction:
        for call in (lambda: transaction.add([(name, 0)]), lambda: transaction.commit(0)):
            with pytest.raises(SinkError, match=r"no transaction of 'query-[0-9]+' is open: call begin first"):
                call()
        transaction.abort()
        transaction.begin()
        transaction.abort()
        with pytest.raises(SinkError, match="call begin first"):
            transaction.commit(0)


def test_group_of_consumer_refused(broker: Embedded) -> None:
    options, name, owner = world.options(broker), world.topic(broker), world.transactional_id()

    async def consume() -> None:
        async with Producer(broker.bootstrap, transactional_id="other") as producer, producer.transaction():
            await producer.send_offsets_to_transaction({(name, 0): 5}, GroupMetadata(owner))

    asyncio.run(consume())
    with SinkTransaction(options, owner) as transaction:
        transaction.begin()
        with pytest.raises(SinkError, match=f"group '{owner}' has an offset of {name}-0 that is not from this sink"):
            transaction.committed_batch()


def test_missing_topic_refused(broker: Embedded) -> None:
    with SinkTransaction(world.options(broker), "q") as transaction:
        with pytest.raises(SinkError, match="topic 'nowhere' does not exist: the sink creates no topics"):
            transaction.partitions(["nowhere"])
        assert transaction.partitions([]) == {}
    assert "nowhere" not in {topic.name for topic in broker.topics()}


@pytest.mark.parametrize(
    ("api", "code", "message"),
    [
        (
            "InitProducerId",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "a producer id was refused to transactional id 'q'",
        ),
        ("InitProducerId", "INVALID_TRANSACTION_TIMEOUT", "kafka.transaction.timeout.ms is 600000, more than the"),
        ("AddPartitionsToTxn", "TOPIC_AUTHORIZATION_FAILED", "a place in the transaction for the partitions was"),
        ("AddPartitionsToTxn", "INVALID_PRODUCER_ID_MAPPING", "the brokers have expired transactional id 'q'"),
        ("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED", "a place in the transaction for the micro-batch's id was"),
        ("OffsetFetch", "GROUP_AUTHORIZATION_FAILED", "the committed micro-batch was refused to transactional id 'q'"),
        ("EndTxn", "INVALID_TXN_STATE", "the commit was refused to transactional id 'q': INVALID_TXN_STATE"),
        (
            "EndTxn",
            "UNKNOWN_SERVER_ERROR",
            "it is unknown whether the micro-batch is committed: the commit was refused",
        ),
        ("EndTxn", "PRODUCER_FENCED", "another query with transactional id 'q' took over"),
    ],
)
def test_final_errors_in_one_sentence(broker: Embedded, api: str, code: str, message: str) -> None:
    options, name = world.options(broker), world.topic(broker)
    with pytest.raises(SinkError, match=message) as refused, broker.faults.error(api, code):
        transaction = SinkTransaction(options, "q")
        filled(options, transaction, name)
        transaction.committed_batch()
        transaction.commit(0)
    assert "\n" not in str(refused.value)
    transaction.close()


def test_broker_without_transactions_refused() -> None:
    with Embedded(release="0.10.2") as broker:
        transaction = SinkTransaction(world.options(broker), "q")
        with pytest.raises(SinkError, match=r"the brokers do not support transactions \(Kafka has them since 0\.11\)"):
            transaction.begin()
        transaction.close()
        with pytest.raises(SinkError, match="cannot get a producer id"):
            idempotent_grant(world.options(broker))


def test_unreachable_broker_raises() -> None:
    with (
        SinkTransaction(world.options("127.0.0.1:1", max_block_ms=100), "q") as transaction,
        pytest.raises(SinkError, match=r"cannot connect to the brokers at 127.0.0.1:1"),
    ):
        transaction.begin()


def test_transaction_within_running_loop(broker: Embedded) -> None:
    """A notebook has a running loop."""
    options, name = world.options(broker), world.topic(broker)

    async def work() -> None:
        world.written(options, world.transactional_id(), 0, {(name, 0): world.rows(ROWS)})

    asyncio.run(work())
    assert world.seen(broker, name) == {0: ROWS}
