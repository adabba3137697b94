"""Transactions that are open while sessions are renewed (KIP-368), and when they end: nothing is lost or added."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from ottla.broker import Embedded
from ottla.client import Producer as OttlaProducer
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

SESSION_MS = 1200  # Kafka refuses a renewal within a second
PACE_S = 0.02
RENEWALS = 2
IDENTITY = "transactional.id"

Step: TypeAlias = Callable[[], Awaitable[Any]]
Continues: TypeAlias = Callable[[], bool]
"""Called after each record; returns whether the transaction is to continue."""


def by_confluent(settings: dict[str, Any], topic: str, transactions: list[Continues]) -> None:
    producer = Producer({**settings, IDENTITY: topic, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for number, continues in enumerate(transactions):
        producer.begin_transaction()
        for count in range(1_000_000):
            producer.produce(topic, f"{number}-{count}".encode())
            assert producer.flush(PATIENCE_S) == 0
            if not continues():
                break
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(PATIENCE_S)


def by_kafka_python(settings: dict[str, Any], topic: str, transactions: list[Continues]) -> None:
    producer = KafkaProducer(transactional_id=topic, **settings)
    producer.init_transactions()
    for number, continues in enumerate(transactions):
        producer.begin_transaction()
        for count in range(1_000_000):
            producer.send(topic, f"{number}-{count}".encode()).get(PATIENCE_S)
            if not continues():
                break
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.close()


def by_aiokafka(settings: dict[str, Any], topic: str, transactions: list[Continues]) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(transactional_id=topic, **settings) as producer:
            ends = producer.commit_transaction, producer.abort_transaction
            await sent_by(producer, topic, transactions, producer.begin_transaction, *ends)

    asyncio.run(main())


def by_ottla(settings: dict[str, Any], topic: str, transactions: list[Continues]) -> None:
    async def main() -> None:
        async with OttlaProducer.from_config({**settings, IDENTITY: topic}) as producer:
            await sent_by(producer, topic, transactions, producer.begin, producer.commit, producer.abort)

    asyncio.run(main())


async def sent_by(
    producer: Any, topic: str, transactions: list[Continues], begin: Step, commit: Step, abort: Step
) -> None:
    for number, continues in enumerate(transactions):
        await begin()
        for count in range(1_000_000):
            await producer.send_and_wait(topic, f"{number}-{count}".encode())
            if not await asyncio.to_thread(continues):
                break
        await (abort if number % 2 else commit)()


LIBRARIES = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ottla": by_ottla,
}


class Records:
    """The records of the transactions that were sent: committed and aborted ones take turns."""

    def __init__(self, broker: Embedded, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.counts: Counter[int] = Counter()

    def check(self) -> None:
        """Compares those that a consumer with read_committed gets, and those that are stored."""
        expected = [f"{n}-{count}" for n, total in sorted(self.counts.items()) for count in range(total)]
        committed = [one for one in expected if int(one.partition("-")[0]) % 2 == 0]
        settings = self.broker.client_settings("confluent-kafka")
        more = {"group.id": "readers", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, **more, "log_level": 0})
        consumer.subscribe([self.topic])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < len(committed) and time.monotonic() < deadline:
            found += [(message.value() or b"").decode() for message in consumer.consume(500, 0.5)]
        consumer.close()
        assert found == committed
        self.broker.assert_produced(self.topic, [one.encode() for one in committed])

    def until_renewed(self, number: int) -> Continues:
        """Continues until the connections that send records have renewed their sessions so often."""
        deadline: list[float] = []
        before: list[int] = []

        def continues() -> bool:
            self.counts[number] += 1
            if not deadline:
                deadline.append(time.monotonic() + PATIENCE_S)
                before.append(self.renewals())
            assert time.monotonic() < deadline[0], "no session was renewed"
            time.sleep(PACE_S)
            return self.renewals() - before[0] < RENEWALS

        return continues

    def renewals(self) -> int:
        """Returns how often a connection that has sent records has logged in again."""
        sending = {one.connection for one in self.broker.requests(api="Produce")}
        logins = Counter(one.connection for one in self.broker.requests(api="SaslHandshake"))
        return sum(logins[connection] - 1 for connection in sending)

    def until_ended(self, number: int) -> Continues:
        """Ends the session by the moved clock after the third record, and continues for three more."""

        def continues() -> bool:
            self.counts[number] += 1
            if self.counts[number] == 3:
                self.broker.clock.advance(30_001)
            return self.counts[number] < 6

        return continues


@each(
    "library, word",
    [
        ("confluent-kafka", "oauth_plaintext"),
        ("kafka-python", "sasl_plaintext"),
        ("ottla", "sasl_plaintext"),
        ("ottla", "oauth_plaintext"),
    ],
)
def test_transaction_stays_open_while_its_session_is_renewed(library: str, word: str) -> None:
    with Embedded(security=word, configs={"connections.max.reauth.ms": str(SESSION_MS)}) as broker:
        records = Records(broker, broker.create_topic())
        transactions = [records.until_renewed(number) for number in range(2)]
        LIBRARIES[library](broker.client_settings(library), records.topic, transactions)
        records.check()
        assert records.renewals() >= 2 * RENEWALS
        assert not any(one.errors for one in broker.requests(api="SaslAuthenticate"))


@each("word", ["sasl_plaintext", "oauth_plaintext"])
@each("library", list(LIBRARIES))
def test_transaction_stays_open_when_its_session_ends(library: str, word: str) -> None:
    with Embedded(security=word, configs={"connections.max.reauth.ms": "30000"}) as broker:
        records = Records(broker, broker.create_topic())
        transactions = [records.until_ended(number) for number in range(3)]
        LIBRARIES[library](broker.client_settings(library), records.topic, transactions)
        records.check()
        assert any(one.ending == "closed" for one in broker.requests(api="Produce"))
