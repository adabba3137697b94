"""The transactional producers of three clients and Ottla with one blocking interface, for loops and tests.

`begin, send, flush, send_offsets, commit, abort, close`; a group is a client's own group metadata (KIP-447) or a group
id, except for confluent-kafka, which has no such call. Errors are the client's own, except for MustAbort.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CALL_SECONDS = 20.0  # a bound for one call of a client
TRANSACTION_TIMEOUT_MS = 30_000
Place = tuple[str, int]  # topic, partition


class MustAbort(Exception):
    """The transaction can only be aborted; the producer continues."""


class Fatal(Exception):
    """The producer has failed permanently, by the client's own flag."""


def librdkafka(address: str) -> dict[str, Any]:
    """Returns the common settings of confluent-kafka's clients. Without its only broker 2.16 would bootstrap again and
    lose the connection that its transactional producer waits for: it would hang until the call times out.
    """
    return {
        "bootstrap.servers": address,
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    }


class ConfluentKafka:
    """librdkafka's errors have flags for a retry, an abort, or a fatal error."""

    name = "confluent-kafka"

    def __init__(self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        from confluent_kafka import Producer

        config: dict[str, Any] = {"transaction.timeout.ms": timeout_ms, "linger.ms": 0, "error_cb": lambda _error: None}
        self.producer = Producer({**librdkafka(address), "transactional.id": transactional_id, **config})
        self.again(self.producer.init_transactions, CALL_SECONDS)

    @staticmethod
    def again(call: Callable[..., Any], *arguments: Any) -> Any:
        """Repeats a call as long as the client marks its error as retriable."""
        from confluent_kafka import KafkaException

        while True:
            try:
                return call(*arguments)
            except KafkaException as error:
                metadata = error.args[0]
                if metadata.fatal():
                    raise Fatal(metadata.name()) from error
                if metadata.txn_requires_abort():
                    raise MustAbort(metadata.name()) from error
                if not metadata.retriable():
                    raise

    def begin(self) -> None:
        self.again(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        self.producer.flush(CALL_SECONDS)

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        from confluent_kafka import TopicPartition

        places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self.again(self.producer.send_offsets_to_transaction, places, group, CALL_SECONDS)

    def commit(self) -> None:
        self.again(self.producer.commit_transaction, CALL_SECONDS)

    def abort(self) -> None:
        self.again(self.producer.abort_transaction, CALL_SECONDS)

    def close(self) -> None:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):  # of the transaction that it was in
            self.producer.purge()
            self.producer.flush(0)


class KafkaPython:
    """Its errors do not show whether they are fatal; the next transaction does."""

    name = "kafka-python"

    def __init__(self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        from kafka import KafkaProducer

        self.producer: Any = KafkaProducer(
            bootstrap_servers=address,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self.producer.flush(CALL_SECONDS)

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        given = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self.producer.send_offsets_to_transaction(given, group)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()
        # 3.0.12 would commit refused offsets with the next transaction: offsets of records that were not copied.
        self.producer._transaction_manager._pending_txn_offset_commits.clear()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.producer.close(timeout=1)


class Aiokafka:
    """Its event loop runs during calls only; it supports groups by their id only."""

    name = "aiokafka"

    def __init__(self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        self.runner = asyncio.Runner()
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self.run(self._start(address, transactional_id, timeout_ms))

    async def _start(self, address: str, transactional_id: str, timeout_ms: int) -> None:
        from aiokafka import AIOKafkaProducer

        self.producer = AIOKafkaProducer(
            bootstrap_servers=address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await self.producer.start()

    def run(self, work: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(work, CALL_SECONDS)

        return self.runner.run(bounded())

    def begin(self) -> None:
        with self._last_words():
            self.run(self.producer.begin_transaction())

    @contextlib.contextmanager
    def _last_words(self) -> Iterator[None]:
        """After a fatal error the next transaction fails with an assertion about its states."""
        try:
            yield
        except AssertionError as error:
            raise Fatal(str(error)) from error

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self.run(self.producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self.run(self.producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: str) -> None:
        from aiokafka import TopicPartition

        given = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self.run(self.producer.send_offsets_to_transaction(given, group))

    def commit(self) -> None:
        with self._last_words():
            self.run(self.producer.commit_transaction())

    def abort(self) -> None:
        with self._last_words():
            self.run(self.producer.abort_transaction())

    def close(self) -> None:
        with contextlib.suppress(Exception):  # after a fatal error it does not close its connections
            self.run(self.producer.stop())
        self.run(self.producer.client.close())
        self.runner.close()


class Ottla:
    """Ottla's client, the one that supports the second version of transactions; its event loop runs during calls only.

    A call that did not finish in time is repeated.
    """

    name = "ottla"

    def __init__(self, address: str, transactional_id: str, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> None:
        from ottla.client import Producer

        self.runner = asyncio.Runner()
        self.producer = Producer(address, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self.run(self.producer.start())
        self.again(self.producer.init_transactions)

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def again(self, call: Callable[..., Any], *arguments: Any) -> None:
        from ottla.client import ProducerFailed, TransactionFailed, TransactionUnsettled

        while True:
            try:
                return self.run(call(*arguments))
            except TransactionUnsettled:
                continue
            except ProducerFailed as error:
                raise Fatal(repr(error)) from error
            except TransactionFailed as error:
                raise MustAbort(repr(error)) from error

    def begin(self) -> None:
        self.again(self.producer.begin)

    def send(self, topic: str, partition: int, value: bytes) -> None:
        async def send() -> None:
            metadata = await self.producer.send(topic, value, partition=partition)
            metadata.add_done_callback(lambda future: future.exception())  # the commit returns it

        self.again(send)

    def flush(self) -> None:
        self.run(self.producer.flush())

    def send_offsets(self, offsets: Mapping[Place, int], group: Any) -> None:
        self.again(self.producer.send_offsets_to_transaction, offsets, group)

    def commit(self) -> None:
        self.again(self.producer.commit)

    def abort(self) -> None:
        self.again(self.producer.abort)

    def close(self) -> None:
        self.run(self.producer.stop())
        self.runner.close()


PRODUCERS: dict[str, type[Any]] = {one.name: one for one in (ConfluentKafka, KafkaPython, Aiokafka, Ottla)}
