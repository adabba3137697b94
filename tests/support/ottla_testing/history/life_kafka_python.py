"""kafka-python with the interface of `ports`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata, TopicPartition

from ottla_testing.history.ports import PATIENCE_S, Abortable, Assigned, Final, Joining, Moved, OnSent, Took, split

QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
    "request_timeout_ms": 5000,
}
FATAL = ("ProducerFencedError", "InvalidProducerEpochError", "OutOfOrderSequenceNumberError", "IllegalStateError")


class Sending:
    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        more: dict[str, Any] = {"delivery_timeout_ms": 30_000, "linger_ms": 2}
        if transactional_id:
            more |= {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
            more |= {"delivery_timeout_ms": timeout_ms}
        self._failed: list[BaseException] = []  # failed sends of the transaction
        self._producer = KafkaProducer(bootstrap_servers=address, **QUICK, **more)

    def init(self) -> None:
        self._call(self._producer.init_transactions)

    @staticmethod
    def _call(call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except KafkaError as error:
            raise (Final if type(error).__name__ in FATAL else Abortable)(repr(error)) from None

    def begin(self) -> None:
        self._failed.clear()
        try:
            self._producer.begin_transaction()
        except KafkaError as error:
            raise Final(repr(error)) from None

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        topic, index = split(partition)
        try:
            sent = self._producer.send(topic, data, partition=index)
        except KafkaError as error:
            self._failed.append(error)
            on_sent(None, error)
            raise Abortable(repr(error)) from None
        sent.add_callback(lambda metadata: on_sent(metadata.offset, None))
        sent.add_errback(lambda error: (self._failed.append(error), on_sent(None, error)))

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None:
        consumer: Any = receiving.consumer  # type: ignore[attr-defined]
        wanted = {TopicPartition(*split(place)): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self._call(self._producer.send_offsets_to_transaction, wanted, consumer.group_metadata())

    def commit(self) -> None:
        # 3.0.12 commits the rest of a transaction whose records have expired, unless the application checks.
        self._call(self._producer.flush, PATIENCE_S)
        if self._failed:
            raise Abortable(repr(self._failed[0]))
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        try:
            self._producer.abort_transaction()
        except KafkaError as error:
            raise Final(repr(error)) from None

    def close(self) -> None:
        self._producer.close(PATIENCE_S)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, consumer: Any, assigned: Assigned, revoked: Moved) -> None:
        self._consumer, self._assigned, self._revoked = consumer, assigned, revoked

    def on_partitions_assigned(self, assigned: Any) -> None:
        # 3.0.12 keeps the position of a partition that stays here. What was polled before and is not committed is
        # not polled again: if nothing more is written, no later poll would lead to its commit.
        has_position = self._consumer._subscription.has_valid_position
        names = {f"{one.topic}-{one.partition}": has_position(one) for one in assigned}
        self._assigned(list(names), [name for name, kept in names.items() if kept])

    def on_partitions_revoked(self, revoked: Any) -> None:
        self._revoked([f"{one.topic}-{one.partition}" for one in revoked])


class Receiving:
    def __init__(self, address: str, joining: Joining, took: Took, assigned: Assigned, revoked: Moved) -> None:
        group, topics, isolation, _ = joining
        self._took = took
        quick: dict[str, Any] = {"isolation_level": isolation, **QUICK}
        self.consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=4000,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=100,
            **quick,
        )
        self.consumer.subscribe(topics, listener=_Listener(self.consumer, assigned, revoked))

    def poll(self, seconds: float) -> None:
        try:
            # Long enough to join a group: 3.0.12 loses an assignment that arrives between two polls.
            found = self.consumer.poll(int(max(seconds, 2.0) * 1000), max_records=200)
        except KafkaError:  # the broker is down
            time.sleep(seconds)
            return
        for place, records in found.items():
            self._took(f"{place.topic}-{place.partition}", [(one.offset, one.value) for one in records])

    def commit(self, offsets: Mapping[str, int]) -> None:
        wanted = {TopicPartition(*split(place)): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        self.consumer.commit(wanted, timeout_ms=5000)

    def rewind(self) -> dict[str, int | None]:
        places: dict[str, int | None] = {}
        for one in self.consumer.assignment():
            try:
                offset = self.consumer.committed(one, timeout_ms=5000) or 0
            except KafkaError as error:
                raise Final(repr(error)) from None
            self.consumer.seek(one, offset)
            places[f"{one.topic}-{one.partition}"] = offset
        return places

    def close(self) -> None:
        self.consumer.close()
