"""confluent-kafka (librdkafka) with the interface of `ports`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)

from ottla_testing.history.ports import (
    PATIENCE_S,
    Abortable,
    Acks,
    Final,
    Joining,
    Lost,
    Moved,
    NotSent,
    OnSent,
    Results,
    SharedRecords,
    Stalled,
    Took,
    split,
)

QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 5000,
    "log_level": 0,
}
CALL_S = 5.0
MOST_RECORDS = 100

# Errors of a group coordinator that moves or loads its log, and of a lost connection. Kafka's own consumer requests the
# committed offsets again. librdkafka does not after the first two, nor after any of them if its assignment changed
# meanwhile: it has the partition, sends heartbeats, and never reads it (its issue 5586, in 2.16.0).
PASSING = (
    *(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
    *(KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE),
)


def look_at(error: KafkaError) -> None:
    """Raises Stalled if librdkafka has given up the committed offsets of its partitions because of a passing error. No
    other error excuses it: the run then ends with records that are not read, and the log of the client has the error.
    """
    if error.str().startswith("Failed to fetch committed offset"):
        if error.code() in PASSING:
            raise Stalled(f"librdkafka: {error.str()}")
        print(error, file=sys.stderr, flush=True)


class Sending:
    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        more: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": 30_000}
        if transactional_id:
            more |= {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
            more |= {"delivery.timeout.ms": timeout_ms}
        self._producer = Producer({"bootstrap.servers": address, **QUICK, **more})
        self._has_purged = False

    def init(self) -> None:
        self._insist(self._producer.init_transactions)

    def _insist(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Calls again while the error is retriable."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(*arguments, CALL_S)
                return
            except KafkaException as error:
                cause = error.args[0]
                if cause.txn_requires_abort():
                    raise Abortable(cause) from None
                if not cause.retriable() or time.monotonic() > end:
                    raise Final(cause) from None

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise Final(error.args[0]) from None

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        def delivered(error: KafkaError | None, message: Any) -> None:
            self._has_purged |= error is not None and error.code() == KafkaError._PURGE_QUEUE
            on_sent(None if error else message.offset(), error)

        topic, index = split(partition)
        try:
            self._producer.produce(topic, data, partition=index, on_delivery=delivered)
        except BufferError as error:
            raise NotSent(error) from None
        except KafkaException as error:
            on_sent(None, error)
            cause = error.args[0]
            raise (Final if cause.code() == KafkaError._FATAL or cause.fatal() else Abortable)(cause) from None

    def work(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None:
        wanted = [TopicPartition(*split(partition), offset) for partition, offset in offsets.items()]
        metadata = receiving.consumer.consumer_group_metadata()
        self._insist(self._producer.send_offsets_to_transaction, wanted, metadata)

    def commit(self) -> None:
        self._insist(self._producer.commit_transaction)

    def abort(self) -> None:
        """Raises Final if records were purged. librdkafka 2.16 also purges those whose response was lost and that it
        would send again, and gives their sequences to the next records. If these are as many, every broker takes them
        for the earlier ones, and they are lost without an error.
        """
        self._producer.flush(CALL_S / 10)
        try:
            self._insist(self._producer.abort_transaction)
        except Abortable as error:
            raise Final(*error.args) from None
        self._producer.poll(0)
        if self._has_purged:
            raise Final("librdkafka: records were purged")

    def close(self) -> None:
        pass


class Sharing:
    """A member of a share group. librdkafka has the sessions, which begin and end unseen."""

    session = None

    def __init__(self, address: str, joining: Joining) -> None:
        config = {"bootstrap.servers": address, "group.id": joining.group, "share.acknowledgement.mode": "explicit"}
        self._consumer = ShareConsumer({**config, **QUICK, "max.poll.records": MOST_RECORDS})
        self._consumer.subscribe(joining.topics)

    def ready(self) -> None:
        pass

    def fetch(self, seconds: float, acks: Acks | None = None) -> tuple[SharedRecords, Results]:
        records: SharedRecords = {}
        try:
            for message in self._consumer.poll(seconds):
                if message.error():
                    continue
                partition = f"{message.topic()}-{message.partition()}"
                count = message.delivery_count()
                records.setdefault(partition, []).append((message.offset() or 0, message.value() or b"", count or 0))
        except KafkaException as error:
            raise Lost(error) from None
        return records, {}

    def acknowledge(self, acks: Acks) -> Results:
        for partition, kinds in acks.items():
            for offset, kind in kinds.items():
                self._consumer.acknowledge_offset(*split(partition), offset, AcknowledgeType(kind))
        try:
            found = self._consumer.commit_sync(CALL_S)
        except KafkaException as error:
            raise Lost(error) from None
        return {f"{one.topic}-{one.partition}": error and error.args[0].name() for one, error in found.items()}

    def reopen(self) -> None:
        pass

    def end(self) -> None:
        pass

    def break_off(self) -> None:
        pass

    def close(self) -> None:
        self._consumer.close()


class Receiving:
    def __init__(self, address: str, joining: Joining, took: Took, assigned: Moved, revoked: Moved) -> None:
        self._took = took
        protocol: dict[str, Any] = {"group.protocol": joining.protocol}
        if joining.protocol == "classic":  # in the other one, the broker has these configs
            protocol |= {"session.timeout.ms": 4000, "heartbeat.interval.ms": 500}
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": joining.group,
                "isolation.level": joining.isolation,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **protocol,
                **QUICK,
            }
        )

        def names(partitions: list[TopicPartition]) -> list[str]:
            return [f"{one.topic}-{one.partition}" for one in partitions]

        self.consumer.subscribe(
            joining.topics,
            on_assign=lambda _, partitions: assigned(names(partitions)),
            on_revoke=lambda _, partitions: revoked(names(partitions)),
            on_lost=lambda _, partitions: revoked(names(partitions)),
        )

    def poll(self, seconds: float) -> None:
        # One by one: a rebalance may interrupt a call for many.
        for number in range(MOST_RECORDS):
            message = self.consumer.poll(0 if number else seconds)
            if message is None:
                return
            if error := message.error():
                look_at(error)
                continue
            partition = f"{message.topic()}-{message.partition()}"
            self._took(partition, [(message.offset() or 0, message.value() or b"")])

    def commit(self, offsets: Mapping[str, int]) -> None:
        wanted = [TopicPartition(*split(partition), offset) for partition, offset in offsets.items()]
        for one in self.consumer.commit(offsets=wanted, asynchronous=False) or ():
            if one.error:
                raise KafkaException(one.error)

    def rewind(self) -> dict[str, int | None]:
        places: dict[str, int | None] = {}
        for one in self.consumer.committed(self.consumer.assignment(), CALL_S):
            if one.error:
                raise Final(one.error)
            offset = max(one.offset, 0)
            self.consumer.seek(TopicPartition(one.topic, one.partition, offset))
            places[f"{one.topic}-{one.partition}"] = offset
        return places

    def close(self) -> None:
        self.consumer.close()
