"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata, TopicPartition

from shop import wire

NO_EPOCH = -1
# A poll of 3.0.12 that ends between a member's SyncGroup and its response loses the assignment for good: polls of
# members are long enough for both, and a member without records for so long subscribes again.
MEMBER_POLL_SECONDS = 0.25
RESUBSCRIBE_SECONDS = 3.0


def places_of(offsets: Mapping[wire.Place, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*place): OffsetAndMetadata(offset, "", NO_EPOCH) for place, offset in offsets.items()}


class Sender:
    """A KafkaProducer and its records without a response so far."""

    def __init__(self, bootstrap: str, settings: wire.Sending) -> None:
        transactional = settings.transactional_id is not None
        compression: Any = None if settings.compression == "none" else settings.compression
        self.client = KafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=settings.client_id,
            acks=-1 if transactional or settings.idempotent else settings.acks,
            enable_idempotence=transactional or settings.idempotent,
            transactional_id=settings.transactional_id,
            compression_type=compression,
            linger_ms=settings.linger_ms,
            max_request_size=settings.max_request_bytes,
            delivery_timeout_ms=settings.timeout_ms,
            request_timeout_ms=settings.timeout_ms - settings.linger_ms,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
        )
        self.queued: list[Any] = []
        if transactional:
            self.client.init_transactions()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[wire.Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        try:
            self.queued.append(self.client.send(topic, value, key, list(headers), partition, timestamp_ms))
        except KafkaError as error:
            raise wire.SendFailed(str(error)) from error

    def flush(self) -> list[int]:
        queued, self.queued = self.queued, []
        try:
            self.client.flush(wire.CALL_SECONDS)
            return [future.get(wire.CALL_SECONDS).offset for future in queued]
        except ProducerFencedError as error:
            raise wire.Fenced(str(error)) from error
        except KafkaError as error:
            raise wire.SendFailed(str(error)) from error

    def begin(self) -> None:
        self.client.begin_transaction()

    def commit(self, read: Mapping[wire.Place, int] | None = None, receiver: wire.Receiver | None = None) -> None:
        try:
            if read and receiver:
                self.client.send_offsets_to_transaction(places_of(read), receiver.client.group_metadata())
            self.client.commit_transaction()
        except ProducerFencedError as error:
            raise wire.Fenced(str(error)) from error

    def abort(self) -> None:
        self.client.abort_transaction()

    def close(self) -> None:
        self.client.close(timeout=1)


class Receiver:
    """A KafkaConsumer that commits on request."""

    def __init__(self, bootstrap: str, settings: wire.Receiving) -> None:
        self.group = settings.group
        start: Any = settings.start
        self.client: Any = KafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id=settings.client_id,
            group_id=settings.group,
            group_instance_id=settings.instance,
            auto_offset_reset=start,
            enable_auto_commit=False,
            isolation_level="read_committed" if settings.committed_only else "read_uncommitted",
            session_timeout_ms=settings.session_ms,
            heartbeat_interval_ms=max(100, settings.session_ms // 30),
            fetch_max_wait_ms=50,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
        )

        self.topics: tuple[str, ...] = ()
        self.idle_since = time.monotonic()

    def subscribe(self, *topics: str) -> None:
        self.topics = topics
        for topic in topics:
            self.client.partitions_for_topic(topic)  # it would join twice if it did not know them yet
        self.client.subscribe(list(topics))

    def assign(self, *places: wire.Place) -> None:
        self.client.assign([TopicPartition(*place) for place in places])

    def poll(self, seconds: float = 0.05) -> list[wire.Message]:
        if self.topics and self.client.assignment():
            self.idle_since = time.monotonic()
        elif self.topics:
            seconds = max(seconds, MEMBER_POLL_SECONDS)
            if time.monotonic() - self.idle_since > RESUBSCRIBE_SECONDS:
                self.client.unsubscribe()
                self.client.subscribe(list(self.topics))
                self.idle_since = time.monotonic()
        return [
            wire.Message(r.topic, r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
            for records in self.client.poll(int(seconds * 1000)).values()
            for r in records
        ]

    def assigned(self) -> set[wire.Place]:
        return {(place.topic, place.partition) for place in self.client.assignment()}

    def commit(self, read: Mapping[wire.Place, int]) -> None:
        self.client.commit(places_of(read))

    def committed(self, place: wire.Place) -> int | None:
        return self.client.committed(TopicPartition(*place))

    def seek(self, place: wire.Place, offset: int) -> None:
        self.client.seek(TopicPartition(*place), offset)

    def pause(self, *places: wire.Place) -> None:
        self.client.pause(*(TopicPartition(*place) for place in places))

    def resume(self, *places: wire.Place) -> None:
        self.client.resume(*(TopicPartition(*place) for place in places))

    def offset_at(self, place: wire.Place, timestamp_ms: int) -> int | None:
        at = TopicPartition(*place)
        found = self.client.offsets_for_times({at: timestamp_ms})[at]
        return None if found is None else found.offset

    def ends(self, place: wire.Place) -> tuple[int, int]:
        at = TopicPartition(*place)
        return self.client.beginning_offsets([at])[at], self.client.end_offsets([at])[at]

    def close(self) -> None:
        self.client.close(autocommit=False)


class Admin:
    """A KafkaAdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self.client: Any = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self.client.create_topics([NewTopic(topic, partitions, topic_configs=dict(configs or {}))])

    def delete(self, topic: str) -> None:
        self.client.delete_topics([topic])

    def topics(self) -> set[str]:
        return set(self.client.list_topics())

    def partitions(self, topic: str) -> int:
        (described,) = self.client.describe_topics([topic])
        return len(described["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self.client.create_partitions({topic: NewPartitions(partitions)})

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        return self.client.describe_configs([resource], config_filter="all")["topic"][topic][name]["value"]

    def set_config(self, topic: str, name: str, value: str) -> None:
        self.client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self.client.list_groups()}

    def group_offsets(self, group: str) -> dict[wire.Place, int]:
        found = self.client.list_group_offsets([group])[group]
        return {(place.topic, place.partition): one.offset for place, one in found.items()}

    def delete_records(self, place: wire.Place, before: int) -> None:
        self.client.delete_records({TopicPartition(*place): before})

    def close(self) -> None:
        self.client.close()
