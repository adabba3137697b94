"""Real clients and a broker whose clock is moved: days of retention, expiries and timeouts, in a test of one second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import CommitFailedError as AioCommitFailedError
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import CommitFailedError as PyCommitFailedError

from ottla.broker import Embedded
from ottla_testing.clients.quick_clients import CLIENTS, consuming, producing
from ottla_testing.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("close_what_kafka_python_leaves_open")]

every_client = pytest.mark.parametrize("client", CLIENTS)
SECOND_MS = 1000
DAY_MS = 24 * 3600 * SECOND_MS
EXPIRED_MS = DAY_MS + 600 * SECOND_MS  # every ten minutes Kafka checks for producers that were silent for a day
TIMED_OUT_MS = 71 * SECOND_MS  # the clients' 60 s; checked every ten seconds


@pytest.fixture(scope="module")
def module_broker() -> Iterator[Embedded]:
    with Embedded() as embedded:
        yield embedded


@pytest.fixture
def clocked(module_broker: Embedded) -> Iterator[Embedded]:
    """A broker for these tests only: other tests' topics would be affected by its clock."""
    yield module_broker
    module_broker.reset()


@every_client
def test_seven_days_expire_records_producers_and_members(client: str, clocked: Embedded) -> None:
    """What expires in a week: records, producer states (a day), the member of a group (its session)."""
    topic, kept = clocked.create_topic("orders"), clocked.create_topic("kept", configs={"retention.ms": "-1"})
    with (
        producing(client, clocked.bootstrap, idempotent=True) as producer,
        consuming(client, clocked.bootstrap, topic, "readers", heartbeat_interval_ms=2000) as consumer,
    ):
        producer.send(topic, b"a")
        producer.send(kept, b"b")
        assert [read.value for read in consumer.read(1)] == [b"a"]
        consumer.commit()
        assert len(clocked.producers()) == 2
        assert clocked.group("readers").state == "Stable"

        clocked.clock.advance((9 if client == "aiokafka" else 44) * SECOND_MS)  # its session is 10 s, the others' 45
        assert clocked.group("readers").state == "Stable"
        clocked.clock.advance(EXPIRED_MS)
        assert clocked.group("readers").state == "Empty"
        assert [committed.offset for committed in clocked.group("readers").offsets] == [1]
        assert not clocked.producers()
        assert [record.value for record in clocked.records(topic)] == [b"a"]
        clocked.clock.advance(6 * DAY_MS)
        assert clocked.group("readers").state == "Dead"  # its offsets were kept for seven days
        assert not clocked.records(topic)
        assert [record.value for record in clocked.records(kept)] == [b"b"]

        assert producer.send(topic, b"c") == 1
        assert [read.value for read in consumer.read(1)] == [b"c"]
        with pytest.raises((PyCommitFailedError, AioCommitFailedError, KafkaException)):
            consumer.commit()
        assert [read.value for read in consumer.read(1)] == [b"c"]  # it has joined again, without committed offsets
        consumer.commit()
        assert (clocked.group("readers").state, clocked.group("readers").lag) == ("Stable", 0)


@every_client
def test_keep_members_moves_the_clock_without_expiring_members(client: str, clocked: Embedded) -> None:
    """With keep_members a day passes for the log, but not for the sessions of the group."""
    topic = clocked.create_topic("orders", configs={"retention.ms": str(3600 * SECOND_MS)})
    clocked.send(topic, b"a")
    with consuming(client, clocked.bootstrap, topic, "readers") as consumer:
        assert len(consumer.read(1)) == 1
        consumer.commit()
        generation = clocked.group("readers").generation
        clocked.clock.advance(DAY_MS, keep_members=True)
        assert not clocked.records(topic)
        clocked.send(topic, b"b")
        assert [read.value for read in consumer.read(1)] == [b"b"]
        consumer.commit()
        assert (clocked.group("readers").state, clocked.group("readers").generation) == ("Stable", generation)


@every_client
def test_append_time_is_that_of_the_moved_clock(client: str, clocked: Embedded) -> None:
    topic = clocked.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    clocked.clock.freeze()
    day = clocked.clock.now_ms // DAY_MS * DAY_MS + 3 * DAY_MS
    with producing(client, clocked.bootstrap) as producer:
        for number in range(3):
            clocked.clock.set(day + number)
            producer.send(topic, b"%d" % number)
    with consuming(client, clocked.bootstrap, topic) as consumer:
        assert [read.timestamp_ms for read in consumer.read(3)] == [day, day + 1, day + 2]


def confluent_transaction(clocked: Embedded, topic: str) -> None:
    producer = Producer({"bootstrap.servers": clocked.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"late")
    assert producer.flush(PATIENCE_S) == 0
    clocked.clock.advance(TIMED_OUT_MS)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(10)
    assert caught.value.args[0].fatal() or caught.value.args[0].txn_requires_abort()


def kafka_python_transaction(clocked: Embedded, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=clocked.bootstrap, transactional_id="t")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late").get(PATIENCE_S)
        clocked.clock.advance(TIMED_OUT_MS)
        with pytest.raises(Exception, match=r"(?i)fenced|epoch|abort"):
            producer.commit_transaction()
    finally:
        producer.close(0.2)


def aiokafka_transaction(clocked: Embedded, topic: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=clocked.bootstrap, transactional_id="t") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"late")
            clocked.clock.advance(TIMED_OUT_MS)
            with pytest.raises(Exception, match=r"(?i)fenced|epoch|newer"):
                await producer.commit_transaction()

    asyncio.run(run())


TRANSACTIONS = {
    "confluent-kafka": confluent_transaction,
    "kafka-python": kafka_python_transaction,
    "aiokafka": aiokafka_transaction,
}


@every_client
def test_transaction_is_aborted_after_its_timeout(client: str, clocked: Embedded) -> None:
    """After the client's transaction timeout (60 s) it is aborted: its commit is fenced, readers continue."""
    topic = clocked.create_topic("orders")
    TRANSACTIONS[client](clocked, topic)
    clocked.send(topic, b"next")
    assert [record.value for record in clocked.records(topic)] == [b"next"]
    with consuming(client, clocked.bootstrap, topic, isolation_level="read_committed") as consumer:
        assert [read.value for read in consumer.read(1)] == [b"next"]
